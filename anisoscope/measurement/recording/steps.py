"""A table for each step of somebody's training, and all of them in one: what the figures over training read."""

import json
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

import anisoscope
from anisoscope.config.measure import MeasureConfig
from anisoscope.measurement.recording.recorder import Recorder
from anisoscope.measurement.sources import arrays, validate
from anisoscope.measurement.sources.pieces import of_layers, pieces_of
from anisoscope.measurement.tables import files, join
from anisoscope.measurement.tables.averages import BLOCK
from anisoscope.metrics import convert

MADE_BY = "anisoscope.write_table"
TABLES = "measurements"


def write_table(
    x: Any,
    step: int,
    folder: Any,
    clusters: Any,
    names: Sequence[str] | None,
    families: str | Sequence[str],
    nulls: str | Sequence[str],
    seed: int,
) -> xr.Dataset:
    """`anisoscope.write_table`."""
    root, positions, recorder = pathlib.Path(folder), None, x if isinstance(x, Recorder) else None
    if not isinstance(step, int | np.integer) or step < 0:
        raise ValueError(f"step is {step!r}; a whole number from 0 on is needed")
    refuse(root, int(step))
    if recorder is not None:
        sample = recorder.sample()
        if "vectors" not in sample:
            raise ValueError("hook points differ in width or positions; record those of one kind together")
        x, clusters, positions, names = sample["vectors"], sample["clusters"], sample["positions"], [*recorder.groups]
    settings = validate.settings_of(validate.chosen(families, validate.OF_VECTORS, False), nulls, 8, seed)
    raw = measured(x, int(step), validate.aligned(clusters, x, "clusters"), positions, names, settings)
    raw.attrs |= {"run": root.name, "corpus": "a training of one's own", "made_by": json.dumps({"by": MADE_BY})}
    (root / TABLES).mkdir(parents=True, exist_ok=True)
    files.write(raw, root / TABLES / f"{step}.nc")
    if recorder is not None:
        recorder.start_over()
    return joined(root, settings)


def measured(
    x: Any, step: int, clusters: Any, positions: Any, names: Sequence[str] | None, settings: MeasureConfig
) -> xr.Dataset:
    """The raw table of one step; layers are those of blocks: an average over them is one over all that are given."""
    layers = validate.layers_of(convert.as_arrays(x))
    validate.check_names(names, len(layers))
    pieces = pieces_of(np.shape(layers[0])[0], clusters, positions, 1, settings.folds, settings.seed)
    values, doubtful = of_layers(layers, pieces, settings)
    about = arrays.described(layers, clusters, pieces) | doubtful | {"seed": settings.seed, "config": "{}"}
    about["provenance"] = f"{len(layers)} hook points; {about['points']:,} vectors at a step; D={about['width']}"
    raw = arrays.raw_table(values, about | {"anisoscope": anisoscope.__version__}).assign_coords(step=step)
    raw.attrs["layer_0"] = BLOCK
    return raw if names is None else raw.assign_coords(layer_name=("layer", list(names)))


def joined(root: pathlib.Path, settings: MeasureConfig) -> xr.Dataset:
    """results.nc and results.csv of all steps that are there."""
    paths = sorted((root / TABLES).glob("*.nc"), key=lambda path: int(path.stem))
    raw = {int(path.stem): files.read_table(path) for path in paths}
    last = raw[max(raw)].attrs
    sizes = {tuple(table.sizes[name] for name in ("layer", "positions")) for table in raw.values()}
    if len(sizes) > 1:
        raise ValueError(f"{root}: steps have {sorted(sizes)} layers and sets of positions; all must have the same")
    join.write(root, raw, settings.families, settings.nulls, last)
    return files.read_table(root / "results.nc")


def refuse(root: pathlib.Path, step: int) -> None:
    """ValueError where something lies there that this function has not written, or the table of this step."""
    if root.exists() and not root.is_dir():
        raise ValueError(f"folder: {root} is a file; name a folder")
    there = sorted(root.iterdir()) if root.exists() else []
    tables = [*(root / TABLES).glob("*.nc")]
    ours = tables and all(MADE_BY in files.read_table(path).attrs.get("made_by", "") for path in tables[:1])
    if there and not ours:
        raise ValueError(f"folder: {root} holds {there[0].name}, and nothing is overwritten: name another folder")
    if (root / TABLES / f"{step}.nc").exists():
        raise ValueError(f"folder: {root} has a table of step {step}, and nothing is overwritten: name another folder")
