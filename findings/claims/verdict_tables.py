"""Compute verdicts over all experiments of findings/tables.

It writes findings/tables/verdicts.csv and draws the figures that show verdicts.

    .venv/bin/python -m findings.claims.verdict_tables [FOLDER …]    # or --spread: twice the seeds' standard deviation

A folder of a run that keeps no CSV, as of untrained blocks and curved manifolds, is named: its
evidence.csv is written to findings/tables under the folder's name. Evidence of pretrained models and
of the published profile is read off real_models/layers.csv and published.csv, each value with its
interval or reading error.
"""

import pathlib
import sys
import tomllib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from anisoscope.analysis import on_disk
from anisoscope.plot import experiment_figures as plots
from anisoscope.plot import style
from anisoscope.results import joined_files
from findings.claims import evidence
from findings.claims.claim_entries import CLAIMS
from findings.claims.effects_figure import effects
from findings.claims.verdicts import CONTRAST, verdicts
from findings.scripts.shared_tables import read_shape

FOLDER = pathlib.Path("findings")
RESULTS = FOLDER / "tables"
ABOUT = tomllib.loads((RESULTS / "experiments.toml").read_text())
WINDOWS = 32  # of a text model: 2 batches of 8 folds of 2 windows (2,048 points, 256 tokens)
FEWER = {"Qwen2.5-Coder-1.5B-Instruct": 16, "Whisper-base": 8}  # one batch; chunks of sound
SIDES = {"all": "", "without_first_token": ", without the first token"}


def profiles() -> Iterator[dict[str, Any]]:
    """Yield what profiles over depth of single models say: bells of decoders, flatness of encoders.

    Layers are at the unfavorable ends of their intervals, since they are not independent.
    """
    folder = RESULTS / "real_models"
    published = pd.read_csv(folder / "published.csv")
    frame = pd.concat([pd.read_csv(folder / "layers.csv"), published])
    counts = dict.fromkeys(published["model"], 1) | FEWER
    frame = frame.assign(n=frame["model"].map(counts).fillna(WINDOWS).astype(int))
    frame = frame[frame["positions"].isin(SIDES)]
    for (model, kind, side), own in frame.groupby(["model", "kind", "positions"], sort=False):
        own = own.set_index("layer").reindex(range(own["layer"].max() + 1))
        for claim in ("decoder_bell", "decoder_bell_with_embedding", "flat_encoder"):
            layers = own.loc[int(claim != "decoder_bell_with_embedding") :]
            if kind not in CLAIMS[claim].models or not np.isfinite(layers["mean"]).all():
                continue
            value = read_shape(CLAIMS[claim].quantity, own["mean"].to_numpy())
            half = (layers["high"] - layers["low"]).max() / 2
            if kind == "decoder":
                inner, ends = layers.iloc[1:-1].max(), layers.iloc[[0, -1]].max()
                low, high = inner["low"] - ends["high"], inner["high"] - ends["low"]
                half = max(value - low, high - value)
            about = {"error": half / norm.ppf(0.975), "freedom": np.inf, "gain": np.inf}
            about |= {"n": int(layers["n"].iloc[-1]), "unit": "profile", "outside": ""}
            yield {"claim": claim, "model": f"{model}{SIDES[side]}", "value": value} | about


def neighborhoods() -> Iterator[dict[str, Any]]:
    """Yield what neighborhoods of pretrained models say, by real_models/local.csv."""
    if not (path := RESULTS / "real_models" / "local.csv").exists():
        return
    for (model, side), own in pd.read_csv(path).groupby(["model", "positions"], sort=False):
        own = own.set_index("quantity")
        half = (own["high"] - own["low"]) / 2
        # errors of the same points are added up, since they depend on each other
        both = ["anisotropy", "local_anisotropy"]
        found = {
            "neighborhoods_more_isotropic": (-own["mean"][both].diff().iloc[1], half[both].sum()),
            "neighborhoods_beyond_gaussian": (
                own["mean"]["local_anisotropy_excess"],
                half["local_anisotropy_excess"],
            ),
        }
        for claim, (value, error) in found.items():
            about = {"error": error / norm.ppf(0.975), "freedom": np.inf, "gain": np.inf}
            about |= {"n": WINDOWS, "unit": "over blocks", "outside": ""}
            yield {"claim": claim, "model": f"{model}{SIDES[side]}", "value": value} | about


def spread() -> pd.Series:
    """Return twice the standard deviation between seeds, pooled over conditions, of each claim."""
    frames = {name: evidence.read_evidence(RESULTS / name) for name in ABOUT["folders"]}
    rows = pd.concat([frame.assign(experiment=name) for name, frame in frames.items()])
    groups = rows[rows["n"].isna()].groupby(["claim", "experiment", "model"])["value"]
    return 2 * np.sqrt(groups.var()[groups.count() > 2].groupby("claim").mean())


def main(arguments: list[str]) -> None:
    if arguments == ["--spread"]:
        print(spread().map("{:.2g}".format).to_string())
        return
    for path in map(pathlib.Path, arguments):
        (RESULTS / path.name).mkdir(exist_ok=True)
        rows = evidence.read_evidence(path)
        rows = rows[rows["claim"].isin(ABOUT["only"].get(path.name, CLAIMS))]
        joined_files.write_csv(rows, RESULTS / path.name / evidence.NAME)
    rows = pd.DataFrame([*profiles(), *neighborhoods()]).reindex(columns=list(evidence.COLUMNS))
    joined_files.write_csv(rows, RESULTS / "real_models" / evidence.NAME)
    folders, figures = [RESULTS / name for name in ABOUT["folders"]], FOLDER / "figures"
    frame = verdicts(folders, ABOUT["duplicates"])
    joined_files.write_csv(frame, RESULTS / "verdicts.csv")
    with style.context():
        for folder in folders:
            if len(named := on_disk.read_primary(folder)):
                figure = plots.forest(named)
                figure.savefig(figures / f"{folder.name}_primary.png", dpi=150)
        effects(frame).savefig(figures / "verdicts.png", dpi=150)
    claims = frame[frame["paper"] != CONTRAST]
    print(claims.groupby(["paper", "verdict"], sort=False).size().to_string())


if __name__ == "__main__":
    main(sys.argv[1:])
