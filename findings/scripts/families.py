"""The optional families on pretrained models and a pair of ours: findings/tables/families/layers.csv.

    .venv/bin/python -m findings.scripts.families NAME=RUN ...

RUN is a folder that the commands of findings/families.md have measured, or how the names of
several seeds begin; NAME what it is called. Its first and last step are written.
"""

import pathlib
import sys

import pandas as pd
import scipy.stats
import xarray as xr

from anisoscope.config.measure_config import OPTIONAL_FAMILIES
from anisoscope.metrics.registry import FAMILIES
from anisoscope.results import joined_files

TABLE = pathlib.Path("findings/tables/families/layers.csv")
PARTS = ["mean", "low", "high"]
NAMES = tuple(name for family in OPTIONAL_FAMILIES for name in FAMILIES[family].quantities)
ACROSS = {"next": 1, "before": -1}  # of layers by pairs: the other layer
RENAMED = {"threshold": "at", "ratio": "at", "from_position": "at", "block": "layer"}
KEYS = ["model", "step", "positions", "quantity", "layer", "depth", "at"]
REST = [*PARTS, "gaussian", "permuted"]  # the value, and its excess over null models


def read(name: str, root: pathlib.Path) -> pd.DataFrame:
    """Return a row for each step, set of positions, quantity and layer.

    Of several seeds these are means, with Student's intervals.
    """
    if (root / "results.nc").exists():
        return read_run(name, root)
    paths = sorted(root.parent.glob(f"{root.name}*/results.nc"))
    each = pd.concat(read_run(name, path.parent) for path in paths)
    groups = each.assign(error=each["mean"]).groupby(KEYS, dropna=False, sort=False)
    frame = groups.agg({**dict.fromkeys(["mean", "gaussian", "permuted"], "mean"), "error": "sem"})
    half = frame["error"] * scipy.stats.t.ppf(0.975, groups.size() - 1)
    frame = frame.assign(low=frame["mean"] - half, high=frame["mean"] + half)
    return frame.reset_index()[[*KEYS, *REST]]


def read_run(name: str, root: pathlib.Path) -> pd.DataFrame:
    table = joined_files.read_table(root / "results.nc")
    frame = pd.concat(rows(table, quantity) for quantity in NAMES if quantity in table)
    frame = frame.dropna(subset="mean")
    frame = frame[frame["step"].isin([int(table.step[0]), int(table.step[-1])])]
    depth = frame["layer"] / frame["layer"].max()
    return frame.assign(model=name, depth=depth)[[*KEYS, *REST]]


def rows(table: xr.Dataset, name: str) -> pd.DataFrame:
    """Return a row for each step, set of positions and layer of one quantity."""
    wide, nulls = table[name].sel(statistic=PARTS), table.get(f"{name}_excess")
    if nulls is not None:
        excess = nulls.sel(statistic="mean", drop=True).rename(null="statistic")
        known = [null for null in REST if null in excess.statistic.values]
        wide = xr.concat([wide, excess.sel(statistic=known)], "statistic")
    if "other_layer" in wide.dims:
        pairs = []
        for by in ACROSS.values():
            layers = [layer for layer in wide.layer.values if layer + by in wide.layer.values]
            own = [wide.sel(layer=layer, other_layer=layer + by, drop=True) for layer in layers]
            pairs.append(xr.concat(own, pd.Index(layers, name="layer")))
        wide = xr.concat(pairs, pd.Index(list(ACROSS), name="at"), join="outer")
    wide = wide.rename({dim: name for dim, name in RENAMED.items() if dim in wide.dims})
    frame = wide.to_series().unstack("statistic").reset_index()
    return frame.reindex(columns=["step", "positions", "layer", "at", *REST]).assign(quantity=name)


if __name__ == "__main__":
    for name, _, root in (word.partition("=") for word in sys.argv[1:]):
        table, kept = read(name, pathlib.Path(root)), pd.read_csv(TABLE)
        table = pd.concat([kept[kept.model != name], table])
        for part in (*REST, "depth"):
            table[part] = table[part].map(lambda x: float(f"{x:.4g}"))
        joined_files.write_csv(table, TABLE)
