"""The further families on pretrained models and a pair of ours: docs/results/families/layers.csv.

    .venv/bin/python -m dev.families NAME=RUN ...

RUN is a folder that the commands of docs/findings/families.md have measured, or how the names of
several seeds begin; NAME what it is called. Its first and last step are written.
"""

import pathlib
import sys

import pandas as pd
import scipy.stats
import xarray as xr

from anisoscope.config.measure_config import FURTHER
from anisoscope.measurement.families.registry import FAMILIES
from anisoscope.results import joined_files

TABLE = pathlib.Path("docs/results/families/layers.csv")
PARTS = ["mean", "low", "high"]
NAMES = tuple(name for family in FURTHER for name in FAMILIES[family].quantities)
# of layers by pairs: the other layer is the next one, or the one before
ACROSS = {"next": 1, "before": -1}
AT = ("threshold", "ratio", "from_position")
DIGITS = 4
KEYS = ["model", "step", "positions", "quantity", "layer", "depth", "at"]
REST = [*PARTS, "gaussian", "permuted"]  # the value, and its excess over null models


def read(name: str, root: pathlib.Path) -> pd.DataFrame:
    """A row for each step, set of positions, quantity and layer; of several seeds means, with
    Student's intervals.
    """
    if (root / "results.nc").exists():
        return read_one(name, root)
    each = pd.concat(
        read_one(name, path.parent) for path in sorted(root.parent.glob(f"{root.name}*/results.nc"))
    )
    groups = each.assign(error=each["mean"]).groupby(KEYS, dropna=False, sort=False)
    frame = groups.agg({**dict.fromkeys(["mean", "gaussian", "permuted"], "mean"), "error": "sem"})
    half = frame["error"] * scipy.stats.t.ppf(0.975, groups.size() - 1)
    return frame.assign(low=frame["mean"] - half, high=frame["mean"] + half).reset_index()[
        [*KEYS, *REST]
    ]


def read_one(name: str, root: pathlib.Path) -> pd.DataFrame:
    table = joined_files.read_table(root / "results.nc")
    made = [_rows(table, one) for one in NAMES if one in table]
    frame = pd.concat(made).dropna(subset="mean")
    frame = frame[frame["step"].isin([int(table.step[0]), int(table.step[-1])])]
    depth = frame["layer"] / frame["layer"].max()
    return frame.assign(model=name, depth=depth)[[*KEYS, *REST]]


def _rows(table: xr.Dataset, name: str) -> pd.DataFrame:
    value, nulls = table[name].sel(statistic=PARTS), table.get(f"{name}_excess")
    parts = [value.assign_coords(statistic=PARTS)]
    if nulls is not None:
        of = nulls.sel(statistic="mean", drop=True).rename(null="statistic")
        parts.append(of.sel(statistic=[one for one in REST if one in of.statistic.values]))
    wide = xr.concat(parts, "statistic")
    if "other_layer" in wide.dims:
        beside = [_beside(wide, by) for by in ACROSS.values()]
        wide = xr.concat(beside, pd.Index(list(ACROSS), name="at"), join="outer")
    wide = wide.rename({dim: "at" for dim in AT if dim in wide.dims})
    wide = wide.rename({"block": "layer"} if "block" in wide.dims else {})
    frame = wide.to_series().unstack("statistic").reset_index()
    return frame.reindex(columns=["step", "positions", "layer", "at", *REST]).assign(quantity=name)


def _beside(wide: xr.DataArray, by: int) -> xr.DataArray:
    """Each layer with the one that is so far behind it."""
    layers = [one for one in wide.layer.values if one + by in wide.layer.values]
    pairs = [wide.sel(layer=one, other_layer=one + by, drop=True) for one in layers]
    return xr.concat(pairs, pd.Index(layers, name="layer"))


if __name__ == "__main__":
    for name, _, root in (word.partition("=") for word in sys.argv[1:]):
        table, kept = read(name, pathlib.Path(root)), pd.read_csv(TABLE)
        table = pd.concat([kept[kept.model != name], table])
        digits = {
            part: table[part].map(lambda x: float(f"{x:.{DIGITS}g}")) for part in [*REST, "depth"]
        }
        joined_files.write_csv(table.assign(**digits), TABLE)
