"""How much the quantities of one small pair differ between eight seeds, and between what else.

    .venv/bin/python -m findings.scripts.eight_seeds RUNS/eight

It reads results.nc of each run of the experiment whose command findings/seeds.md has, and writes
findings/tables/eight_seeds.csv.

Written before it was run. A value is the mean over blocks, at the last step, of all positions; of
LOGARITHMIC quantities the log2 of it. `seeds`: its standard deviation over eight seeds, with the
interval of a chi-square of seven degrees of freedom. `block`: the same of a single block, pooled over
blocks. `blocks`: between the blocks of a run, pooled over runs. `windows`: the standard error of a
run's own interval, over resampled windows (root mean square over runs). `steps`: of a step about the
line through its neighbors 250 steps away, pooled over runs and steps 500 and 750. `seeds_needed`: as
in findings/scripts/seed_noise.py, and at both ends of the interval of `seeds`.
"""

import pathlib
import sys

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from anisoscope.results import joined_files
from anisoscope.sources.folds import section_count
from findings.scripts.seed_noise import seeds_needed
from findings.scripts.shared_tables import RESULTS

TABLE = RESULTS / "eight_seeds.csv"
LINEAR = ("validation_bits", "anisotropy", "mean_cosine", "attention_entropy")
LOGARITHMIC = ("twonn", "effective_rank", "drift")
LINE, INNER = (250, 500, 750, 1000), 2  # steps of equal distance; second differences of them
POSITIONS = {"positions": "all"}


def read_quantity(run: xr.Dataset, name: str) -> dict[str, np.ndarray]:
    """Return a run's value by step, its single blocks, and its standard error over windows."""
    take = np.log2 if name in LOGARITHMIC else np.asarray
    if name not in run or "statistic" not in run[name].dims:  # a score
        return {"steps": run[name].sel(step=[*LINE, run.step[-1]]).values}
    last = run.isel(step=-1).sel(POSITIONS)
    values = run[f"{name}_over_blocks"].sel(POSITIONS)
    low, high = (take(values.isel(step=-1).sel(statistic=x)) for x in ("low", "high"))
    folds = run.attrs["folds"]
    parts = folds if run[name].attrs["resampling"] == "jackknife" else section_count(folds)
    freedom = run.attrs["batches"] * (parts - 1)
    blocks = last[name].sel(statistic="mean")
    blocks = blocks.mean("head") if "head" in blocks.dims else blocks.sel(layer=slice(1, None))
    return {
        "steps": take(values.sel(statistic="mean", step=[*LINE, run.step[-1]])),
        "blocks": take(blocks),
        "windows": (high - low) / 2 / stats.t.ppf(0.975, freedom),
    }


def describe(kind: str, name: str, runs: list[xr.Dataset]) -> dict[str, float | str | int]:
    """Return a row of the table."""
    read = [read_quantity(run, name) for run in runs]
    steps_RS = np.stack([own["steps"] for own in read])
    deviation, freedom = steps_RS[:, -1].std(ddof=1), len(runs) - 1
    ends = deviation * np.sqrt(freedom / stats.chi2.ppf([0.975, 0.025], freedom))
    row = {"kind": kind, "quantity": name, "runs": len(runs), "value": steps_RS[:, -1].mean()}
    row |= {"seeds": deviation, "seeds_low": ends[0], "seeds_high": ends[1]}
    if "blocks" in read[0]:
        blocks_RB = np.stack([own["blocks"] for own in read])
        row["block"] = np.sqrt(blocks_RB.var(axis=0, ddof=1).mean())
        row["blocks"] = np.sqrt(blocks_RB.var(axis=1, ddof=1).mean())
        row["windows"] = np.sqrt(np.mean(np.square([own["windows"] for own in read])))
    row["steps"] = np.sqrt(np.mean(np.square(np.diff(steps_RS[:, : len(LINE)], INNER)) / 6))
    needed = (seeds_needed(x) for x in (deviation, *ends))
    return row | dict(zip(("needed", "needed_low", "needed_high"), needed, strict=True))


def main(root: str) -> None:
    rows = []
    for kind in ("decoder", "encoder"):
        paths = sorted(pathlib.Path(root).glob(f"{kind}_*/results.nc"))
        runs = [xr.open_dataset(path).load() for path in paths]
        rows += [describe(kind, name, runs) for name in (*LINEAR, *LOGARITHMIC)]
    frame = pd.DataFrame(rows)
    joined_files.write_csv(frame, TABLE)
    print(frame.round(4).to_string(index=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
