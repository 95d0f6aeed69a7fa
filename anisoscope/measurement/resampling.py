"""Clouds, their neighbors and their resamples: the input of the families.

R replicates come last in every array: the whole cloud, then each resample (see intervals.py). A
cloud is fold-major: P/J points of each of J folds of windows, fold after fold. S are sections, Z
named samples, X anything that has a value at each point.
"""

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.lax import Precision

from anisoscope.measurement.quantity import Values
from anisoscope.metrics.cloud import point_weights
from anisoscope.metrics.comparison import Nearest
from anisoscope.metrics.neighbors import Neighbors, nearest_neighbors


class Sectioned(NamedTuple):
    """A value for the whole cloud and one for each section, as neighbors or the points themselves."""

    whole: Neighbors | Nearest  # Nearest: only what comparisons need
    sections: Neighbors | Nearest | None  # in each section, among its own points: (section, …)


class Places(NamedTuple):
    """The windows and positions of a cloud's points."""

    window_P: Array  # the number of each point's window, below the number of points
    time_P: Array  # its position in the window; 0 is the first token


class Types(NamedTuple):
    """The last n characters at each point of a cloud, a row for each n of data.unigrams.LENGTHS."""

    # a number, equal for equal characters; below 0 where the window has too few before the point
    type_LP: Array
    # log frequency of the type in the training split; -inf where it does not occur
    log_frequency_LP: Array
    bin_P: Array  # bin of the character's frequency, an index into data.unigrams.BINS


class Cloud(NamedTuple):
    """The cloud of a single layer, with everything a family may read about its points."""

    points_PD: Array
    folds: int
    searched: Sectioned | None  # None where no family reads neighbors
    places: Places | None = None  # None where they are unknown
    types: Types | None = None  # None where they are unknown


class LayerClouds(NamedTuple):
    """Arguments of a family that compares layers."""

    points_NPD: Array
    folds: int
    nearest_N: Sectioned | None  # for each layer; None where no family reads neighbors
    others: dict[str, Array]  # clouds of the same points, to compare with: (layers, points, width)
    nulls: dict[str, Array]  # {"permuted": the clouds with their windows in another order}, or {}
    over: Callable[[Callable, Any], Any] = jax.lax.map  # layers, or layers on devices


def search(
    cloud_PD: Array, count: int, folds: int, sections: int | None = None
) -> Sectioned | None:
    """Search the `count` nearest neighbors of every point, in the cloud and in each section.

    None where `count` is 0. `sections` is the number of sections, None for `section_count`.
    """
    if count == 0:
        return None
    if folds == 1:
        return Sectioned(nearest_neighbors(cloud_PD, count), None)
    sections_SPD = cloud_PD.reshape(sections or section_count(folds), -1, cloud_PD.shape[1])
    searched_S = jax.lax.map(lambda part_PD: nearest_neighbors(part_PD, count), sections_SPD)
    return Sectioned(nearest_neighbors(cloud_PD, count), searched_S)


def cut_sections(cloud_PD: Array, sections: Any) -> Array:
    """Cut a cloud into sections (S, P / S, D); `sections` is any search result of the sections."""
    return cloud_PD.reshape(len(jax.tree.leaves(sections)[0]), -1, cloud_PD.shape[1])


def over_folds(read: Callable[[Array], Values], folds: int, points: int) -> Values:
    """Apply `read` to weights of the points: all points, then all but each fold in turn."""
    return jax.vmap(read)(point_weights(folds, points))


def fold_means(value_XP: Array, folds: int, counts_P: Array | None = None) -> Array:
    """Average over the points that count (None: all), of all folds and without each: (..., R).

    NaN where no point counts.
    """
    points = value_XP.shape[-1]
    counts_P = jnp.ones(points, bool) if counts_P is None else counts_P
    weight_RP = point_weights(folds, points) * counts_P[None]
    kept_XP = jnp.where(jnp.broadcast_to(counts_P, value_XP.shape), value_XP, 0.0)
    sum_XR = jnp.matmul(kept_XP, weight_RP.T, precision=Precision.HIGHEST)
    return sum_XR / jnp.broadcast_to(weight_RP.sum(axis=1), sum_XR.shape)


def over_sections(read: Callable[..., Values], *searched: Sectioned) -> Values:
    """Apply `read` to neighbors of one or several clouds: of the whole, then of each section."""
    whole = read(*(found.whole for found in searched))
    if searched[0].sections is None:
        return {name: value[..., None] for name, value in whole.items()}
    sections = tuple(found.sections for found in searched)
    sections = jax.lax.map(lambda neighbors: read(*neighbors), sections)
    return {
        name: jnp.concatenate([value[..., None], jnp.moveaxis(sections[name], 0, -1)], -1)
        for name, value in whole.items()
    }


def over_neighborhoods(read: Callable[..., Values], cloud: Cloud) -> Values:
    """Apply `read` to points and their neighbors: of the whole cloud, then of each section."""
    sections = cloud.searched.sections
    clouds = None if sections is None else cut_sections(cloud.points_PD, sections)
    return over_sections(read, Sectioned(cloud.points_PD, clouds), cloud.searched)


def stack_trees(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def unstack(names: Iterable[str], values_Z: Any) -> dict[str, Any]:
    """Split what `stack_trees` stacked, or results of it, by name."""
    return {name: jax.tree.map(itemgetter(z), values_Z) for z, name in enumerate(names)}


def map_samples(work: Callable[[Any], Any], samples: dict[str, Any]) -> dict[str, Any]:
    """Apply `work` to each sample, all trees of equal shapes; it is compiled once for all."""
    if not samples:
        return {}
    return unstack(samples, jax.lax.map(work, stack_trees([*samples.values()])))


def section_count(folds: int) -> int:
    """Choose the number of sections, each of equally many whole folds.

    4, 3, 2, or the smallest divisor: small sections have other scales than the whole cloud.
    """
    return next(count for count in (4, 3, *range(2, folds + 1), 1) if folds % count == 0)
