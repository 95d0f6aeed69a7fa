"""Verdicts over all experiments of docs/results: verdicts.csv there, and the figures of docs/ that
show verdicts.

    .venv/bin/python -m dev.verdicts [FOLDER …]

A folder of a run that keeps no CSV, as of untrained blocks and curved manifolds, is named: its
evidence.csv is written to docs/results under the folder's name.
"""

import pathlib
import sys
import tomllib

import numpy as np
import pandas as pd

import anisoscope
from anisoscope.analysis import on_disk
from anisoscope.analysis.claims import evidence
from anisoscope.analysis.claims.verdicts import CONTRAST
from anisoscope.plot import experiment_figures, style
from anisoscope.plot import verdict_figures as plots
from anisoscope.results import joined_files

DOCS = pathlib.Path("docs")
RESULTS = DOCS / "results"
ABOUT = tomllib.loads((RESULTS / "experiments.toml").read_text())


def once(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the verdicts on claims, each run counted once."""
    places = zip(frame["experiment"], frame["model"], strict=True)
    again = np.array([[*place] in ABOUT["again"] for place in places])
    return frame[~again & frame["paper"].ne(CONTRAST)]


def columns(frame: pd.DataFrame) -> dict[str, list[tuple[str, str]]]:
    """Return kinds of model; and what is said between models, or of no trained model."""
    named = {name: [*map(tuple, places)] for name, places in ABOUT["columns"].items()}
    counted = {place for places in named.values() for place in places}
    every = dict.fromkeys(frame[["experiment", "model"]].itertuples(index=False, name=None))
    return named | {
        "between, models;, untrained": [place for place in every if place not in counted]
    }


def main(given: list[str]) -> None:
    for path in map(pathlib.Path, given):
        (RESULTS / path.name).mkdir(exist_ok=True)
        joined_files.write_csv(evidence.read(path), RESULTS / path.name / evidence.NAME)
    folders, figures = [RESULTS / name for name in ABOUT["folders"]], DOCS / "figures"
    frame = anisoscope.verdicts(folders)
    joined_files.write_csv(frame, RESULTS / "verdicts.csv")
    with style.context():
        for folder in folders:
            named, levels = on_disk.read_primary(folder), on_disk.read_by_level(folder, {})
            if len(named):
                figure = plots.forest(named)
                figure.savefig(figures / f"{folder.name}_primary.png", dpi=150)
            if len(levels):
                figure = experiment_figures.curves_by_level(levels, {*named["quantity"]})
                style.add_footer(figure, [experiment_figures.BY_LEVEL_BANDS])
                figure.savefig(figures / f"{folder.name}_by_level.png", dpi=150)
        figure = plots.matrix(once(frame), columns(once(frame)))
        figure.savefig(figures / "verdicts.png", dpi=150)
    print(once(frame).groupby(["paper", "verdict"], sort=False).size().to_string())


if __name__ == "__main__":
    main(sys.argv[1:])
