"""The spectrum of the next update of a checkpoint, in its table and in that of all: variables (block, kernel)."""

from typing import NamedTuple

import numpy as np
import xarray as xr


class Quantity(NamedTuple):
    read: str  # of metrics/matrix.py
    long_name: str
    formula: str
    source: str


MATRICES = "of each matrix of a block: what the optimizer would add to it with the batch that comes next"
QUANTITIES = {
    "update_stable_rank": Quantity(
        "stable_rank", "stable rank of an update", "|M|_F^2 / |M|_2^2", "Rudelson and Vershynin 2007"
    ),
    "update_effective_rank": Quantity(
        "effective_rank",
        "effective rank of an update",
        "exp(-sum p ln p), p = sigma / sum sigma",
        "Roy and Vetterli 2007",
    ),
}


def labelled(kernels: list[str], values: dict[str, np.ndarray]) -> xr.Dataset:
    """{quantity: (block, kernel)} as a table."""
    variables = {
        name: (
            ("block", "kernel"),
            values[name],
            {
                "long_name": about.long_name,
                "units": "directions",
                "formula": f"{about.formula} {MATRICES}",
                "source": about.source,
                "resampling": "none",
                "family": "updates",
            },
        )
        for name, about in QUANTITIES.items()
    }
    blocks = len(next(iter(values.values())))
    return xr.Dataset(variables, {"block": np.arange(1, blocks + 1), "kernel": kernels})


def over_training(raw: dict[int, xr.Dataset]) -> xr.Dataset:
    """Of all checkpoints, NaN at those whose table lacks it; empty where every one does."""
    held = [table[list(QUANTITIES)] for table in raw.values() if {*QUANTITIES} <= {*table.data_vars}]
    if not held:
        return xr.Dataset()
    like = held[0]
    tables = [
        table[list(QUANTITIES)].reset_coords(drop=True)
        if {*QUANTITIES} <= {*table.data_vars}
        else xr.full_like(like, np.nan).reset_coords(drop=True)
        for table in raw.values()
    ]
    return xr.concat(tables, "step", combine_attrs="override").assign_coords(step=list(raw))
