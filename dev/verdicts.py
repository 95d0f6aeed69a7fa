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
    """The verdicts on claims, each run counted once."""
    places = zip(frame["experiment"], frame["model"], strict=True)
    return frame[
        np.array([[*place] not in ABOUT["again"] for place in places]) & frame["paper"].ne(CONTRAST)
    ]


def columns(frame: pd.DataFrame) -> dict[str, list[tuple[str, str]]]:
    """Kinds of model; and what is said between models, or of no trained model."""
    named = {
        name: [(one, model) for one, model in places] for name, places in ABOUT["columns"].items()
    }
    counted = {place for places in named.values() for place in places}
    there = dict.fromkeys(frame[["experiment", "model"]].itertuples(index=False, name=None))
    return named | {
        "between, models;, untrained": [place for place in there if place not in counted]
    }


def main(given: list[str]) -> None:
    for path in map(pathlib.Path, given):
        (RESULTS / path.name).mkdir(exist_ok=True)
        joined_files.write_csv(evidence.read(path), RESULTS / path.name / evidence.NAME)
    frame = anisoscope.verdicts(RESULTS / name for name in ABOUT["folders"])
    joined_files.write_csv(frame, RESULTS / "verdicts.csv")
    with style.context():
        for name in (
            name for name in ABOUT["folders"] if (RESULTS / name / "primary.csv").exists()
        ):
            figure = plots.forest(on_disk.read_primary(RESULTS / name))
            figure.savefig(DOCS / "figures" / f"{name}_primary.png", dpi=150)
        for name in (
            name for name in ABOUT["folders"] if (RESULTS / name / on_disk.BY_LEVEL).exists()
        ):
            table = on_disk.read_by_level(RESULTS / name, {})
            quantities = {*on_disk.read_primary(RESULTS / name)["quantity"]}
            figure = experiment_figures.curves_by_level(table, quantities)
            style.add_footer(figure, [experiment_figures.by_level_bands(table, quantities)])
            figure.savefig(DOCS / "figures" / f"{name}_by_level.png", dpi=150)
        plots.matrix(once(frame), columns(once(frame))).savefig(
            DOCS / "figures" / "verdicts.png", dpi=150
        )
    print(once(frame).groupby(["paper", "verdict"], sort=False).size().to_string())


if __name__ == "__main__":
    main(sys.argv[1:])
