"""What positions do to anisotropy under AdamW and Muon: claims, then verdicts.

    .venv/bin/python -m findings.claims.positions_by_optimizer RUNS

It reads the runs of experiments/position_optimizer.py, as far as they are measured to their last
step, and writes runs.csv, contrasts.csv, blocks.csv and steps.csv of
findings/tables/position_optimizer. The last, anisotropy over training, was added afterwards, and so
was the comparison at the least gain with which a run ends, `late`, interpolated between checkpoints.

**Claims**, written before a run was read; the first two are what the two halves of
`findings/positions.md` found in different suites. In anisotropy, the mean over blocks, all
positions: (muon) under Muon learned positions have more than rotary ones; (adamw) under AdamW less;
(interaction) the first difference exceeds the second. The primary comparison is at equal gain over
unigram, the best that every run reaches before the rate decays, interpolated; the last checkpoint
stands beside it. Differences are between runs of a seed. Intervals are Student's, 95 %, the smallest
effect is SMALLEST, verdicts are those of `findings/rules.md`, p is corrected after Holm over the
three claims at equal gain. `blocks.csv` keeps the share of the first direction's variance that is
between positions: where it is large, anisotropy may be that of positions.
"""

import json
import pathlib
import sys

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from anisoscope.analysis.loss_matched import best_gain, read_gains, read_shapes
from anisoscope.analysis.shapes import shapes
from anisoscope.config.experiment_config import Config
from anisoscope.engine.intervals import LEVEL, holm_of
from anisoscope.experiments.optimizer_ablations import MARGINS, SEEDS
from anisoscope.experiments.position_optimizer import OPTIMIZERS, POSITIONS
from anisoscope.results import joined_files
from anisoscope.utils.settings import from_dict
from findings.claims.claim_entries import OWN, Claim
from findings.claims.verdicts import INCONCLUSIVE, judge_interval

TABLES = pathlib.Path("findings/tables/position_optimizer")
PRIMARY, SMALLEST, LEAST_SEEDS = "last_anisotropy", MARGINS["last_anisotropy"], 3
BY_BLOCK = ("anisotropy", "first_pc_variance_by_position")
WEIGHTS = {  # claim: the weight of each condition in its difference
    "muon": {"muon_learned": 1, "muon_rotary": -1},
    "adamw": {"adamw_rotary": 1, "adamw_learned": -1},
}
WEIGHTS["interaction"] = WEIGHTS["muon"] | WEIGHTS["adamw"]


def read_runs(root: pathlib.Path) -> dict[tuple[str, int], xr.Dataset]:
    """Return the tables of the runs that are measured to their last step, by condition and seed."""
    tables = {}
    for seed in SEEDS:
        for condition in (f"{name}_{kind}" for name in OPTIMIZERS for kind in POSITIONS):
            if (path := root / f"{condition}_{seed}" / "results.nc").exists():
                table = joined_files.read_table(path)
                if int(table.step.max()) == config_of(table).train.steps:
                    tables[condition, seed] = table
    return tables


def config_of(table: xr.Dataset) -> Config:
    return from_dict(json.loads(table.attrs["config"]), Config)


def read_values(tables: dict[tuple[str, int], xr.Dataset]) -> pd.DataFrame:
    """Return the shapes of every run, at the last checkpoint and at the common gain."""
    level = min(best_gain(table, config_of(table)) for table in tables.values())
    rows = []
    for (condition, seed), table in tables.items():
        read = {"last": shapes(table), "matched": read_shapes(table, level)}
        gains = {"last": [*read_gains(table).values()][-1], "matched": level}
        for at, values in read.items():
            own = values.sel(positions="all")
            row = {name: float(own[name]) for name in MARGINS if name in own}
            about = {"condition": condition, "seed": seed, "at": at, "gain": gains[at]}
            rows.append(about | row)
    return pd.DataFrame(rows)


def read_blocks(tables: dict[tuple[str, int], xr.Dataset]) -> pd.DataFrame:
    """Return what positions explain of the first direction, at the last checkpoint."""
    parts = []
    for (condition, seed), table in tables.items():
        last = table[list(BY_BLOCK)].isel(step=-1, drop=True)
        frame = last.sel(positions="all", statistic="mean").to_dataframe()[list(BY_BLOCK)]
        parts.append(frame.reset_index().assign(condition=condition, seed=seed))
    return pd.concat(parts, ignore_index=True)


def read_steps(tables: dict[tuple[str, int], xr.Dataset]) -> pd.DataFrame:
    """Return the gain and the primary quantity, the mean over blocks, at every checkpoint."""
    rows = []
    for (condition, seed), table in tables.items():
        for step, gain in read_gains(table).items():
            if step in table.step:
                own = shapes(table.sel(step=[step])).sel(positions="all")
                about = {"condition": condition, "seed": seed, "step": step, "gain": gain}
                rows.append(about | {PRIMARY: float(own[PRIMARY])})
    return pd.DataFrame(rows)


def read_late(steps: pd.DataFrame) -> pd.DataFrame:
    """Return the primary quantity of every run at the least gain with which one ends."""
    runs = steps.sort_values("step").groupby(["condition", "seed"])
    level, rows = runs["gain"].last().min(), []
    for (condition, seed), run in runs:
        after = run["gain"].ge(level).to_numpy().argmax()  # the first step with that gain
        pair = run.iloc[after - 1 : after + 1]
        value = np.interp(level, pair["gain"], pair[PRIMARY])
        about = {"condition": condition, "seed": seed, "at": "late", "gain": level}
        rows.append(about | {PRIMARY: value})
    return pd.DataFrame(rows)


def judge_differences(values: pd.DataFrame) -> pd.DataFrame:
    """Judge the three claims at equal gain, and show them at the last checkpoint."""
    rows = []
    for at in ("matched", "late", "last"):
        wide = values[values["at"] == at].pivot(index="seed", columns="condition", values=PRIMARY)
        for name, weights in WEIGHTS.items():
            own = wide.reindex(columns=list(weights)).dropna()
            effects = own @ pd.Series(weights, dtype=float)
            n, effect = len(effects), effects.mean()
            error = stats.sem(effects) if n > 1 else np.nan
            half = error * stats.t.ppf(0.5 + LEVEL / 2, n - 1) if n > 1 else np.nan
            beyond = abs(effect - np.copysign(SMALLEST, effect))
            tested = n >= LEAST_SEEDS and error > 0 and at == "matched"
            claim = Claim(OWN, name, SMALLEST, (PRIMARY,))
            verdict = judge_interval(effect - half, effect + half, claim)
            rows.append(
                {"claim": name, "at": at, "effect": effect, "low": effect - half}
                | {"high": effect + half, "n": n}
                | {"p": 2 * stats.t.sf(beyond / error, n - 1) if tested else np.nan}
                | {"verdict": verdict if n >= LEAST_SEEDS else f"{INCONCLUSIVE}: {n} seeds"}
            )
    frame = pd.DataFrame(rows)
    primary = frame["at"].eq("matched").to_numpy()
    p_holm = np.full(len(frame), np.nan)
    p_holm[primary] = holm_of(frame["p"].to_numpy(float)[primary], int(primary.sum()))
    return frame.assign(p_holm=p_holm)


def main(root: str) -> None:
    tables = read_runs(pathlib.Path(root))
    steps = read_steps(tables)
    values = pd.concat([read_values(tables), read_late(steps)], ignore_index=True)
    frames = {"runs": values, "contrasts": judge_differences(values)}
    frames |= {"blocks": read_blocks(tables), "steps": steps}
    TABLES.mkdir(exist_ok=True)
    for name, frame in frames.items():
        joined_files.write_csv(frame, TABLES / f"{name}.csv")
    print(frames["contrasts"].round(3).to_string(index=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
