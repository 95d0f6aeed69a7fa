"""Compute verdicts over all experiments of findings/tables.

It writes verdicts.csv and counts.csv there, and draws the figures that show verdicts.

    .venv/bin/python -m findings.claims.verdict_tables [FOLDER …]    # or --spread: twice the seeds' standard deviation

A folder of a run that keeps no CSV, as of untrained blocks and curved manifolds, is named: its
evidence.csv is written to findings/tables under the folder's name. Evidence of pretrained models
and of the published profile is read off real_models, each value with its interval or reading error.
"""

import pathlib
import sys
import tomllib

import numpy as np
import pandas as pd

from anisoscope.analysis import on_disk
from anisoscope.plot import experiment_figures as plots
from anisoscope.plot import style
from anisoscope.results import joined_files
from findings.claims import evidence, profiles
from findings.claims.claim_entries import CLAIMS
from findings.claims.effects_figure import effects
from findings.claims.verdicts import count, verdicts
from findings.scripts.shared_tables import FIGURES, MODELS, RESULTS

TITLES = {  # of the figures of primary contrasts
    "mask_ablations": "The objective changes the geometry more than the mask",
    "interventions": "A penalty, a reward and centered queries change how anisotropy grows",
    "optimizer_ablations": "The optimizer changes the geometry at equal loss",
    "position_ablations": "Under Muon, learned positions make decoders more anisotropic",
}
WORDS = {  # of conditions in these figures
    "causal_next": "causal, next character",
    "causal_masked": "causal, masked",
    "bidirectional_masked": "bidirectional, masked",
    "softmax_one": "softmax with 1 in the denominator",
    "qk_norm": "normed queries and keys",
    "center_queries": "centered queries",
    "sink": "a learned sink",
    "isotropy": "a penalty on anisotropy",
    "anisotropy": "a reward of anisotropy",
    "learned_decoder": "learned positions, decoder",
    "rotary_decoder": "rotary",
    "learned_encoder": "learned positions, encoder",
    "rotary_encoder": "rotary",
}
ABOUT = tomllib.loads((RESULTS / "experiments.toml").read_text())


def spread() -> pd.Series:
    """Return twice the standard deviation between seeds, pooled over conditions, of each claim."""
    frames = {name: evidence.read_evidence(RESULTS / name) for name in ABOUT["folders"]}
    rows = pd.concat([frame.assign(experiment=name) for name, frame in frames.items()])
    rows = rows[rows["n"].isna() & rows["part"].eq("")]
    groups = rows.groupby(["claim", "experiment", "model"])["value"]
    return 2 * np.sqrt(groups.var()[groups.count() > 2].groupby("claim").mean())


def judge_all() -> pd.DataFrame:
    """Judge the experiments of experiments.toml."""
    return verdicts([RESULTS / name for name in ABOUT["folders"]], ABOUT["duplicates"])


def main(arguments: list[str]) -> None:
    if arguments == ["--spread"]:
        print(spread().map("{:.2g}".format).to_string())
        return
    for path in map(pathlib.Path, arguments):
        (RESULTS / path.name).mkdir(exist_ok=True)
        rows = evidence.read_evidence(path)
        rows = rows[rows["claim"].isin(ABOUT["only"].get(path.name, CLAIMS))]
        joined_files.write_csv(rows, RESULTS / path.name / evidence.NAME)
    rows = profiles.read_models().reindex(columns=list(evidence.COLUMNS))
    joined_files.write_csv(rows, MODELS / evidence.NAME)
    frame = judge_all()
    joined_files.write_csv(frame, RESULTS / "verdicts.csv")
    joined_files.write_csv(count(frame).reset_index(names="group"), RESULTS / "counts.csv")
    with style.context():
        for folder in (RESULTS / name for name in ABOUT["folders"]):
            if len(named := on_disk.read_primary(folder)):
                named = named.replace({"before": WORDS, "after": WORDS})
                figure = plots.forest(named, TITLES.get(folder.name, "Prespecified changes"))
                figure.savefig(FIGURES / f"{folder.name}_primary.png", dpi=150)
        effects(frame).savefig(FIGURES / "verdicts.png", dpi=150)
    print(count(frame).to_string())


if __name__ == "__main__":
    main(sys.argv[1:])
