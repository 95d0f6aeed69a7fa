"""Compare two models on the same points: every layer of one with every layer of the other.

This file compares arrays; two_runs.py pairs our runs, hf/two_pretrained.py pretrained models. A
comparison across different points, texts or settings is refused.

Letters: M layers of the second model, E its width, G batches, S sets of positions.
"""

import functools
import json
import math
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.data.corpus import Corpus
from anisoscope.measurement.families import comparison_family
from anisoscope.measurement.null_models import PERMUTED
from anisoscope.measurement.quantity import MEASURED, Values
from anisoscope.metrics.convert import ArrayLike, as_vectors, check_same_points
from anisoscope.results import joined_files
from anisoscope.results.frame import to_frame
from anisoscope.results.summary import summarize
from anisoscope.sources import array_checks, array_chunks
from anisoscope.sources.array_checks import VectorsLike
from anisoscope.sources.array_chunks import resample
from anisoscope.sources.evaluation_windows import POSITION_SETS
from anisoscope.sources.folds import Folds, cut_chunks, describe
from anisoscope.utils.errors import UserError
from anisoscope.utils.files import read_json
from anisoscope.utils.progress import library_call, progress_bar
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
    permuted_NPD: np.ndarray


class ModelPair(NamedTuple):
    """Two models to compare: their labels, settings, clouds and attributes."""

    labels: tuple[str, str]
    measure: MeasureConfig
    corpus: Corpus
    batches: Iterator[list[PairedClouds]]  # per batch, the clouds of each set of positions
    about: dict[str, Any]  # attributes of the table, complete once all batches are read


def measure_pair(pair: ModelPair) -> xr.Dataset:
    """Measure every layer of one model with every layer of the other, with intervals and excess."""
    count, share = pair.measure.folds, pair.measure.points // pair.measure.folds
    folds = Folds(np.arange(count * share).reshape(count, share), *np.ones((2, count), int))
    label, total = " and ".join(pair.labels), pair.measure.batches
    table = measure_batches(
        progress_bar(pair.batches, label, "batch", total=total), folds, POSITION_SETS
    )
    return table.assign_attrs(pair.about)


def measure_batches(
    batches: Iterable[list[PairedClouds]], folds: Folds, positions: tuple[str, ...]
) -> xr.Dataset:
    """Make the table of the clouds of each batch, one for each set of positions."""
    schema, found = comparison_family.ACROSS, []
    for sets in batches:
        values = [
            resample(functools.partial(_measure_points, x), x.first_NPD.shape[1], folds, schema)
            for x in sets
        ]
        found.append(jax.tree.map(lambda *values: np.stack(values), *values))
    values_G = jax.tree.map(lambda *values: np.stack(values), *found)

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
def _measure_points(
    clouds: PairedClouds, index_P: Any, folds: int, sections: int | None
) -> dict[str, Values]:
    """Measure some of the points, as `resample` asks."""
    points = (x[:, index_P] for x in clouds)
    return jax.device_get(comparison_family.compare_every_layer(*points, folds, sections))


def compare(
    a: VectorsLike,
    b: VectorsLike,
    clusters: ArrayLike | Sequence[object] | None = None,
    *,
    folds: int = 8,
    seed: int = 0,
    labels: tuple[str, str] = ("a", "b"),
    quiet: bool = False,
) -> xr.Dataset:
    """Compare every layer of one model with every layer of another, on the same points.

    Args:
        a: vectors of the first model, as for `measure`: (layers, points, width) or one layer.
        b: vectors of the second model at the same points in the same order; any width.
        clusters: (points,), as for `measure`: the sentence, image or window of each point.
        folds: maximum number of folds of whole clusters to resample; 1: no intervals.
        seed: random seed of the null model and the folds.
        labels: names of the models in figures.
        quiet: do not show the message about compiling.

    Returns:
        A Dataset of `cka` (linear CKA), `cka_unbiased` and `neighbor_overlap` with the dimensions
        (statistic, layer, other_layer). Each has an excess over the null model "permuted": each
        cluster of `a` beside another of `b` (without clusters, all points shifted by a random
        number, at least a quarter of them).

    Raises:
        ValueError: the points differ, or the input cannot be measured; the message is one line.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((2, 128, 8))
    >>> table = compare(x, 3 * x[:, :, ::-1])  # rotated and scaled
    >>> table.cka.sel(statistic="mean").values.diagonal().round(3)
    array([1., 1.])
    """
    if isinstance(labels, str) or len(labels) != 2:
        raise ValueError(f"labels is {labels!r}; pass two names")
    for x in (a, b):
        if isinstance(x, str | os.PathLike):
            raise ValueError(f"{x!r} names no vectors; compare_models reads models by name")
    check_same_points([y for x in (a, b) for y in (x if isinstance(x, list | tuple) else [x])])
    vectors_a, vectors_b = (array_checks.read_vectors(x, clusters) for x in (a, b))
    points, points_b = vectors_a.shape[0], vectors_b.shape[0]
    if points != points_b:
        raise ValueError(f"a has {points} points and b {points_b}; both need the same points")
    if not np.array_equal(vectors_a.cluster_P, vectors_b.cluster_P):
        why = "they have an index, and one of a and b has none"
        raise ValueError(f"clusters are in another order for a than for b ({why}); pass an array")
    sizes = [len(vectors.layers) * math.prod(vectors.shape) for vectors in (vectors_a, vectors_b)]
    floats = array_chunks.WORK * (2 * sizes[0] + sizes[1])
    layers = f"{len(vectors_a.layers)} and {len(vectors_b.layers)} layers of {points:,} points"
    array_chunks.check_available(4 * floats, layers, None)
    a_NPD, b_MPE = (
        np.stack([as_vectors(x, f"layer {n} of {name}") for n, x in enumerate(vectors.layers)])
        for name, vectors in (("a", vectors_a), ("b", vectors_b))
    )
    chunks = cut_chunks(vectors_a, 1, folds, seed)
    with library_call(quiet):
        clouds = PairedClouds(a_NPD, b_MPE, _permute(a_NPD, vectors_a.cluster_P, seed))
        table = measure_batches([[clouds]], chunks[0].folds, ("all",))
    attributes = describe(vectors_a, chunks) | {"seed": seed}
    attributes |= dict(zip(("first", "second"), labels, strict=True))
    return table.isel(positions=0, drop=True).assign_attrs(attributes)


def _permute(a_NPD: np.ndarray, cluster_P: np.ndarray | None, seed: int) -> np.ndarray:
    """Pair each point of `b` with a point of `a` from another cluster; NaN for a single cluster.

    The clusters form a circle in random order, which is turned by the points of the largest. So
    only a cluster with more than half of the points meets itself. Without clusters the points are
    turned by a quarter to three quarters of them.
    """
    rng, points = np.random.default_rng(seed), a_NPD.shape[1]
    if cluster_P is None:
        least = max(1, points // 4)  # points near one another may be alike
        return np.roll(a_NPD, -rng.integers(least, points - least + 1), axis=1)
    size_K = np.bincount(cluster_P)
    if len(size_K) == 1:
        return np.full_like(a_NPD, np.nan)
    circle_P = np.argsort(rng.permutation(len(size_K))[cluster_P], kind="stable")
    permuted_NPD = np.empty_like(a_NPD)
    permuted_NPD[:, circle_P] = a_NPD[:, np.roll(circle_P, -size_K.max())]
    return permuted_NPD


def write_similarity(table: xr.Dataset, labels: tuple[str, str], root: pathlib.Path) -> None:
    """Write similarity.nc and similarity.csv, with the columns of results.csv and both labels."""
    table.attrs["config"] = json.dumps({"runs": labels})
    sides = {side: table.attrs[side] for side in ("first", "second")}
    joined_files.write_table(table, root / "similarity.nc")
    joined_files.write_csv(to_frame(table).assign(**sides), root / "similarity.csv")
    print(f"{' and '.join(labels)}: {root / 'similarity.nc'}, {root / 'similarity.csv'}")


def split_step(name: str) -> tuple[str, str | None]:
    """Split "folder@step"; None without a step, also where the folder's own name has an @."""
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
