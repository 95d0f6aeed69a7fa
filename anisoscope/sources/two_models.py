"""Compare two models on the same points: every layer of one with every layer of the other.

This file measures pairs; two_arrays.py pairs arrays, two_runs.py our runs, hf/two_pretrained.py
pretrained models. A comparison across different points, texts or settings is refused.

Letters: M layers of the second model, E its width, G batches, S sets of positions.
"""

import json
import pathlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.data.corpus import Corpus
from anisoscope.engine.sizes import Folds, lay_out, pad
from anisoscope.measurement.families import comparison_family
from anisoscope.measurement.null_models import PERMUTED
from anisoscope.measurement.quantity import MEASURED, Values
from anisoscope.results import joined_files
from anisoscope.results.frame import to_frame
from anisoscope.results.summary import summarize
from anisoscope.sources.evaluation_windows import POSITION_SETS
from anisoscope.sources.folds import cut_runs
from anisoscope.utils.errors import UserError
from anisoscope.utils.files import read_json, user_path
from anisoscope.utils.progress import progress_bar
from anisoscope.utils.settings import format_differences

# settings of measure that decide which vectors form a cloud
SETTINGS = ("points", "batches", "folds", "seed", "masked")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarityConfig:
    """Settings of the comparison of two models."""

    runs: tuple[str, ...] = ()  # two folders; @step selects another step than the last


class PairedClouds(NamedTuple):
    """The same P points of both models, and points of the first from other places of the text."""

    first_NPD: np.ndarray
    second_MPE: np.ndarray
    permuted_NPD: np.ndarray | None = None


class ModelPair(NamedTuple):
    """Two models to compare: their labels, settings, clouds and attributes."""

    labels: tuple[str, str]
    measure: MeasureConfig
    corpus: Corpus
    batches: Iterator[list[PairedClouds]]  # per batch, the clouds of each set of positions
    attributes: dict[str, Any]  # attributes of the table, complete once all batches are read


def measure_pair(pair: ModelPair) -> xr.Dataset:
    """Measure every layer of one model with every layer of the other, with intervals and excess."""
    folds = cut_runs(np.arange(pair.measure.points), pair.measure.folds)
    label, total = " and ".join(pair.labels), pair.measure.batches
    table = measure_batches(
        progress_bar(pair.batches, label, "batch", total=total), folds, POSITION_SETS
    )
    return table.assign_attrs(pair.attributes)


def measure_batches(
    batches: Iterable[list[PairedClouds]], folds: Folds, positions: tuple[str, ...]
) -> xr.Dataset:
    """Make the table of the clouds of each batch, one for each set of positions."""
    found = []
    for sets in batches:
        found.append([compare_clouds(clouds, folds) for clouds in sets])
    return make_pair_table(found, positions)


def make_pair_table(
    batches: list[list[dict[str, Values]]], positions: tuple[str, ...]
) -> xr.Dataset:
    """Make the table of the values of each batch and set of positions, of clouds and null model."""
    known, stack = comparison_family.BETWEEN_MODELS, lambda *values: np.stack(values)
    values_G = jax.tree.map(stack, *(jax.tree.map(stack, *sets) for sets in batches))
    schema = {name: entry for name, entry in known.items() if name in values_G[MEASURED]}

    def label(cloud: str) -> xr.Dataset:
        named = {
            name: (x.raw_dims, values_G[cloud][name], x.attributes) for name, x in schema.items()
        }
        samples = xr.Dataset(named)
        layers = {dim: np.arange(samples.sizes[dim]) for dim in ("layer", "other_layer")}
        return samples.assign_coords({"positions": list(positions)} | layers)

    table = summarize(schema, label(MEASURED), {PERMUTED: label(PERMUTED)})
    return table.assign_attrs(permutations=1)


@jax.enable_x64(False)
def compare_clouds(clouds: PairedClouds, folds: Folds, aligned: bool = False) -> dict[str, Values]:
    """Compare every layer of one model with every layer of the other; `aligned`: by RSA too."""
    layout = lay_out(folds, None)
    size, labels = layout.size, layout.labels
    padded = (None if x is None else pad(np.swapaxes(x, 0, 1), size).swapaxes(0, 1) for x in clouds)
    found = jax.device_get(comparison_family.compare_every_layer(*padded, labels, aligned))
    return {
        cloud: {
            name: folds.weight(x, comparison_family.BETWEEN_MODELS[name].resampling)
            for name, x in values.items()
        }
        for cloud, values in found.items()
    }


def write_similarity(table: xr.Dataset, labels: tuple[str, str], root: pathlib.Path) -> None:
    """Write similarity.nc and similarity.csv, with the columns of results.csv and both labels."""
    table.attrs["config"] = json.dumps({"runs": labels})
    sides = {side: table.attrs[side] for side in ("first", "second")}
    joined_files.write_table(table, root / "similarity.nc")
    joined_files.write_csv(to_frame(table).assign(**sides), root / "similarity.csv")
    print(f"{' and '.join(labels)}: {root / 'similarity.nc'}, {root / 'similarity.csv'}")


def split_step(name: str) -> tuple[str, str | None]:
    """Split "folder@step"; None without a step, also where the folder's own name has an @."""
    name = str(user_path(name)) if name.startswith("~") else name
    path, at, step = name.rpartition("@")
    named = at and "/" not in step and not pathlib.Path(name).is_dir()
    return (path, step) if named else (name, None)


def is_pretrained(name: str) -> bool:
    """Return whether the folder of a run, with or without @step, holds pretrained models."""
    path = pathlib.Path(split_step(name)[0]) / "config.json"
    settings = read_json(path, "name the folder of a trained run")
    return "pretrained" in settings or "models" in settings


def choose_step(name: str, steps: list[int]) -> int:
    """Return the step after @, or the last step."""
    path, step = split_step(name)
    if not steps:
        raise UserError(f"--similarity={name}: {path} has no checkpoint; run --stages=train first")
    if step is not None and (not (step.isascii() and step.isdecimal()) or int(step) not in steps):
        raise UserError(
            f"--similarity={name}: {path} has no checkpoint of step {step!r}; it has {steps}"
        )
    return steps[-1] if step is None else int(step)


def choose_labels(names: tuple[str, str], steps: tuple[int, int]) -> tuple[str, str]:
    """Label both runs by their folders; equal names get their steps, or else the whole path."""
    folders = [pathlib.Path(split_step(name)[0]).resolve().name for name in names]
    if folders[0] != folders[1]:
        return tuple(folders)
    if steps[0] != steps[1]:
        return tuple(f"{name}@{step}" for name, step in zip(folders, steps, strict=True))
    return tuple(pathlib.Path(name).as_posix().strip("./").replace("/", "_") for name in names)


def check_comparable(names: tuple[str, str], texts: list[dict[str, Any]], advice: str) -> None:
    """Raise UserError where {name: value} of the two models differ."""
    first, second = ({name: str(value)[:12] for name, value in text.items()} for text in texts)
    if different := format_differences(first, second, whose=("of the first", "of the second")):
        both = " and ".join(names)
        raise UserError(f"--similarity: {both} have no points in common: {different}; {advice}")
