"""What the page holds of the tables: every variable as float32, with its words; one block of bytes for each run."""

import base64
import gzip
import itertools
import json
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.colors import to_hex

from anisoscope.analysis.runs import conditions
from anisoscope.measurement.families.entries import quantities
from anisoscope.measurement.tables.excess import NULL, excess_name, is_excess, nulls_in
from anisoscope.plot import style
from anisoscope.plot.run import ENDS, NULLS, POSITIONS, Run, bands, embedded
from anisoscope.tangents.quantities import GRADIENT

INNER = (NULL, "statistic", "positions")  # controls of their own; all other dimensions can be an axis
DEPTHS = ("layer", "block")
VECTORS = ("query_projection", "key_projection")  # drawn together, on a plane
TANGENTS, CLOUDS = "tangents: gradients in activation subspaces", "gradients as clouds"  # families of tangents.nc
SYMBOLS = {"o": "circle", "s": "square", "^": "triangle-up", "D": "diamond", "v": "triangle-down"}
SYMBOLS |= {"P": "cross", "X": "x"}
INKS_ON_DARK = ("#56B4E9", "#F0803C", "#2FC79A", "#E29CC6", "#E69F00", "#8CD2FF", "#FFFFFF", "#A8A8A8", "#B79BEA")


def entries(runs: dict[str, Run], drawn: dict[str, Run]) -> list[dict[str, Any]]:
    """What can be switched on and off: all that is `drawn`, and the single seeds of what is drawn as one."""
    alone = {label for label, run in drawn.items() if runs.get(label) is run}
    seeds = iter(conditions({label: run.results for label, run in runs.items() if label not in alone}).values())
    dark = dict(zip(style.INKS, INKS_ON_DARK, strict=True))
    switches = []
    for label, look in style.inks(drawn).items():
        own = {"group": label, "ink": look["color"], "ink_on_dark": dark[look["color"]]}
        members = [] if label in alone else next(seeds)  # in the order of `drawn`; labels may be others among fewer
        name = f"{label}, {len(members)} seeds together" if members else label
        switches.append(own | {"label": name, "symbol": SYMBOLS[look["marker"]], "on": True, "run": drawn[label]})
        for member, symbol in zip(members, itertools.cycle(SYMBOLS.values()), strict=False):
            switches.append(own | {"label": member, "symbol": f"{symbol}-open", "on": False, "run": runs[member]})
    return switches


def variables(run: Run) -> dict[str, xr.DataArray]:
    """Those that can be drawn, in the order of the families, without their excess.

    The deviation between batches stays in results.nc.

    Joined seeds have quantities of single heads for each seed, where head 2 of one is not head 2 of another: the page
    shows the single seeds of those. Tables of tangents have the run's steps, NaN where one was not read.
    """
    order, results = {name: place for place, name in enumerate(quantities())}, run.results
    names = [name for name, values in results.data_vars.items() if not is_excess(values)]
    arrays = {}
    for name in sorted(names, key=lambda name: order.get(name, len(order))):
        values = results[name]
        drawable = free(values) and "seed" not in values.dims and np.issubdtype(values.dtype, np.number)
        if drawable and ("vector" not in values.dims or name in VECTORS):
            arrays[name] = values.sel(statistic=list(ENDS)) if "statistic" in values.dims else values
    if run.tangents is not None:
        for name, values in run.tangents.reindex(step=results["step"].values).items():
            about = {"family": CLOUDS if name.startswith(GRADIENT) else TANGENTS, "file": "tangents.nc"}
            arrays[name] = values.assign_attrs(about)
    return arrays


def band(run: Run, name: str, values: xr.DataArray) -> str:
    """What lies between low and high."""
    if values.attrs.get("file") is None:
        sentence = bands({"": run}, name)
    elif values.attrs["resampling"] == "none":
        return "least and greatest of the random subspaces"
    else:
        sentence = bands({"": Run(run.tangents, [])}, name)
    return sentence.removeprefix("Band: ").removesuffix(".")


def free(values: xr.DataArray) -> list[str]:
    """Dimensions that can be an axis: depth, then training, then further ones."""
    dims = [dim for dim in values.dims if dim not in INNER]
    return sorted(dims, key=lambda dim: (dim not in DEPTHS, dim != "step"))


def numbers(run: Run) -> tuple[dict[str, Any], bytes]:
    """Labels and layout of a run's variables, and their values: little-endian float32, one after another.

    After a quantity come, null model by null model, what it exceeds those by that have it.
    """
    layout, labels, blocks, offset = {}, {}, [], 0
    for name, values in variables(run).items():
        labels |= {dim: values[dim].values.tolist() for dim in values.dims if dim not in labels}
        layout[name] = {"dims": list(values.dims), "offset": offset}
        if "statistic" in values.dims:
            layout[name]["band"] = band(run, name, values)
        blocks.append(_float32(values))
        offset += len(blocks[-1])
        if (excess := run.results.get(excess_name(name))) is not None:
            excess = excess.sel(statistic=list(ENDS)).transpose(NULL, *values.dims)
            measured = [null for null in nulls_in(run.results) if np.isfinite(excess.sel({NULL: null})).any()]
            layout[name] |= {"nulls": measured, "excess": offset}
            blocks.append(_float32(excess.sel({NULL: measured})))
            offset += len(blocks[-1])
    labels["statistic"] = list(ENDS)
    return {"labels": labels, "variables": layout}, b"".join(blocks)


@np.errstate(over="ignore")
def _float32(values: xr.DataArray) -> bytes:
    return np.ascontiguousarray(values.values, dtype="<f4").tobytes()


def words(runs: list[Run]) -> list[dict[str, Any]]:
    """Of each quantity that some run has: what it is called, its formula, source and axes."""
    descriptions = {}
    for run in runs:
        for name, values in variables(run).items():
            usual = {"formula": "", "source": "", "long_name": name, "units": "1"}
            usual |= {"file": "results.nc", "family": "further"}
            about = {key: str(values.attrs.get(key, default)) for key, default in usual.items()}
            noise = values.attrs.get("noise_floor")
            about["noise"] = "" if noise is None else f"{noise:.1g}, with batch size and kernels"
            descriptions.setdefault(name, about | {"name": name, "dims": free(values)})
    if all(name in descriptions for name in VECTORS):
        query = descriptions[VECTORS[0]]
        descriptions[VECTORS[0]] = query | {"long_name": "queries and keys, projected", "plane": list(VECTORS)}
    for name in VECTORS:  # neither can be drawn without the other
        if "plane" not in descriptions.get(name, {}):
            descriptions.pop(name, None)
    return list(descriptions.values())


def known(runs: dict[str, Run], drawn: dict[str, Run], about: dict[str, Any]) -> tuple[str, list[str]]:
    """JSON of all words and layouts, and of each entry its numbers."""
    listed = entries(runs, drawn)
    shown = [entry.pop("run") for entry in listed]
    content = about | {"quantities": words(shown), "runs": listed, "positions": POSITIONS}
    content["embedded"] = embedded(drawn)
    content["nulls"] = {name: " ".join(said.split()) for name, said in NULLS.items()}
    content["shades"] = [to_hex(style.shades()(place)) for place in np.linspace(0, 1, 33)]
    blocks = []
    for entry, run in zip(listed, shown, strict=True):
        layout, values = numbers(run)
        entry |= layout
        blocks.append(packed(values))
    return as_json(content), blocks


def packed(content: bytes) -> str:
    """Base64 of gzip, without a date: the same content is written the same twice."""
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()


def as_json(content: Any) -> str:
    """For a <script> element: names come from users and may hold any tag."""
    return json.dumps(content, allow_nan=False, ensure_ascii=False).replace("<", "\\u003c")
