"""Compare two conditions at equal gain over unigram, not at equal steps.

The level of a contrast is the best gain over unigram (bits below the best answer without context,
on the validation windows) that all its runs reach in the constant part of their schedule, before
the final decay. If a schedule has no constant part, all steps after the warm-up count. Each run is
read by itself, by linear interpolation between the two checkpoints on both sides of the level. A
run that never gains anything has no value.

Gain over unigram is itself an outcome of the varied setting, so a loss-matched difference is not
caused by that setting alone. The sign of a contrast may differ at another level.
"""

import json

import numpy as np
import pandas as pd
import xarray as xr

from anisoscope.analysis.contrasts import (
    CONTRAST_COLUMNS,
    STEPS,
    Change,
    RunPair,
    contrast_conditions,
    pairs,
)
from anisoscope.analysis.run_summaries import CORPUS, Tables
from anisoscope.analysis.shapes import shapes
from anisoscope.config.experiment_config import Config
from anisoscope.training import optimizer
from anisoscope.training.objective import next_positions
from anisoscope.utils.settings import from_dict

GAIN = "validation_gain_over_unigram"  # bits at each checkpoint, in results.nc
LOSS_MATCHED_COLUMNS = ("level", "without")  # bits; the runs that have no value


def contrast_at_equal_gain(runs: xr.Dataset, tables: Tables) -> pd.DataFrame:
    """Contrast conditions that differ in a single setting, except the text, each at its own level.

    An experiment of two conditions has a single contrast, whatever differs between them. The noise
    is estimated from the runs of a contrast alone, since other contrasts have other levels. The
    steps to the level are a quantity too.

    Args:
        runs: The contents of runs.nc.
        tables: The contents of results.nc of each run that is measured to its last step.

    Returns:
        A row for each pair, quantity and set of positions: the columns of contrasts.csv, and
        LOSS_MATCHED_COLUMNS.
    """
    configs = {run: from_dict(json.loads(x.attrs["config"]), Config) for run, x in tables.items()}
    best = {run: best_gain(table, configs[run]) for run, table in tables.items()}
    parts = []
    for pair in pairs(runs, several=np.unique(runs["condition"]).size == 2):
        own = runs[["condition"]].isel(run=np.isin(runs["condition"].values, pair.labels))
        names = [str(run) for run in own.run.values]
        able = [run for run in names if best.get(run, np.nan) > 0]
        if CORPUS in pair.changed or not able or not scores_agree(pair, names, configs):
            continue
        level = min(best[run] for run in able)
        values = xr.concat([read_shapes(tables[run], level) for run in able], "run")
        own = own.merge(values.assign_coords(run=able).reindex(run=names), join="left")
        without = ", ".join(run for run in names if run not in able)
        frame = contrast_conditions(own, several=True)
        parts.append(frame.assign(**pair.attributes, level=level, without=without))
    columns = [*CONTRAST_COLUMNS, *Change._fields, *LOSS_MATCHED_COLUMNS]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def read_gains(table: xr.Dataset) -> dict[int, float]:
    """Return the gain over unigram, in bits, of each checkpoint that was validated."""
    if GAIN not in table:
        return {}
    gains = dict(zip(table.step.values.tolist(), table[GAIN].values.tolist(), strict=True))
    return {step: gain for step, gain in gains.items() if np.isfinite(gain)}


def best_gain(table: xr.Dataset, config: Config) -> float:
    """Return the largest gain of a checkpoint in the constant part of the schedule; NaN if none."""
    whole = optimizer.warmup_steps(config.train), config.train.steps
    first, last = optimizer.constant_part(config.train) or whole
    gains = [gain for step, gain in read_gains(table).items() if first <= step <= last]
    return max(gains, default=np.nan)


def read_shapes(table: xr.Dataset, level: float) -> xr.Dataset:
    """Read the shapes of a run, and its steps, where it first reaches a gain over unigram."""
    gains = read_gains(table)
    reached = next(step for step, gain in gains.items() if gain >= level)
    below = max((step for step in gains if step < reached), default=reached)
    rise = gains[reached] - gains[below]
    share = (level - gains[below]) / rise if rise else 1.0
    ends = [
        shapes(table.sel(step=slice(None, step))).assign({STEPS: float(step)})
        for step in (below, reached)
    ]
    return (1 - share) * ends[0] + share * ends[1]


def scores_agree(pair: RunPair, names: list[str], configs: dict[str, Config]) -> bool:
    """Return whether validations score the same characters in all runs that predict the next one.

    A prefix leaves out the first characters of a window, which are the hardest.
    """
    own = [configs[name] for name in names if name in configs]
    scored = {next_positions(x.model).tobytes() for x in own if x.objective == "next"}
    if len(scored) > 1:
        before, after = pair.attributes["before"], pair.attributes["after"]
        print(f"loss-matched: not {before} → {after}, whose validations score other characters")
    return len(scored) < 2
