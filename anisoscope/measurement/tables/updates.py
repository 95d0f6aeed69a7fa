"""The spectrum of the next update of a checkpoint, in its table and in that of all: variables (block, kernel)."""

import numpy as np
import xarray as xr

from anisoscope.measurement.quantity import Quantity
from anisoscope.metrics import matrix

MATRICES = "of each matrix of a block: what the optimizer would add to it with the batch that comes next"
QUANTITIES = {
    "update_stable_rank": Quantity(
        "stable rank of an update", "|M|_F^2 / |M|_2^2", "Rudelson and Vershynin 2007", matrix.stable_rank
    ),
    "update_effective_rank": Quantity(
        "effective rank of an update",
        "exp(-sum p ln p), p = sigma / sum sigma",
        "Roy and Vetterli 2007",
        matrix.effective_rank,
    ),
}


def labelled(kernels: list[str], values: dict[str, np.ndarray]) -> xr.Dataset:
    """{quantity: (block, kernel)} as a table."""
    variables = {}
    for name, about in QUANTITIES.items():
        words = {"long_name": about.long_name, "units": "directions", "formula": f"{about.formula} {MATRICES}"}
        words |= {"source": about.source, "resampling": "none", "family": "updates"}
        variables[name] = ("block", "kernel"), values[name], words
    blocks = len(next(iter(values.values())))
    return xr.Dataset(variables, {"block": np.arange(1, blocks + 1), "kernel": kernels})


def over_training(raw: dict[int, xr.Dataset]) -> xr.Dataset:
    """Of all checkpoints, NaN at those whose table lacks it; empty where every one does."""
    names = list(QUANTITIES)
    held = {step: table[names].reset_coords(drop=True) for step, table in raw.items() if {*names} <= {*table.data_vars}}
    if not held:
        return xr.Dataset()
    lacking = xr.full_like(next(iter(held.values())), np.nan)
    tables = [held.get(step, lacking) for step in raw]
    return xr.concat(tables, "step", combine_attrs="override").assign_coords(step=list(raw))
