"""Clouds, their neighbors and their resamples: the input of the families.

R replicates come last in every array: the whole cloud, then each resample (engine/intervals.py). Folds
and sections are labels of points. S are parts: the whole cloud, then each section. G are groupings
of the points: all together, and by section. X is anything that has a value at each point, Z are
named samples.
"""

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array

from anisoscope.metrics.cloud import AnyArray
from anisoscope.metrics.copies import Copies, copies
from anisoscope.metrics.neighbors import Nearest, Neighbors, neighbors_in_groups
from anisoscope.metrics.quantity import Values


class Labels(NamedTuple):
    """Which points are resampled together, the same for all layers of a cloud."""

    keep_RP: Array  # weights 1 or 0: all points that count, then all but each fold
    part_SP: Array  # the points that count, then those of each section
    parts: Array  # number of parts that are read; the rest are padding
    points: Array  # number of points that count; they come first

    @property
    def valid_P(self) -> Array:
        """Mark the points that count."""
        return self.part_SP[0]


# neighbors in the whole cloud, and in each point's own section: the first axis G
Searched = Neighbors | Nearest  # Nearest: only what comparisons need


class TokenPositions(NamedTuple):
    """The windows and positions of a cloud's points; below 0 where there are none."""

    window_P: Array  # the number of each point's window, below the number of points
    time_P: Array  # its position in the window; 0 is the first token


class Types(NamedTuple):
    """The last n characters at each point of a cloud, a row for each n of frequency.LENGTHS."""

    # a number, equal for equal characters; below 0 where the window has too few before the point
    type_LP: Array
    # log frequency of the type in the training split; -inf where it does not occur
    log_frequency_LP: Array
    bin_P: Array  # bin of the character's frequency, an index into frequency.BINS


class Cloud(NamedTuple):
    """The cloud of a single layer, with everything a family may read about its points."""

    points_PD: Array  # 0 for points that do not count
    labels: Labels
    places: TokenPositions
    searched: Searched | None = None  # neighbors, for a family that reads them
    types: Types | None = None  # for a family that reads them
    constants: Any = None  # what the family computes from the numbers of points and dimensions

    def over_folds(self, read: Callable[[Array], Any]) -> Any:
        """Apply `read` to weights of the points: all points, then all but each fold in turn."""
        return jax.vmap(read)(self.labels.keep_RP)

    def fold_means(self, value_XP: AnyArray, counts_P: AnyArray | None = None) -> Array:
        """Average over the points that count, as `fold_means`."""
        return fold_means(value_XP, self.labels.keep_RP, counts_P)


class LayerClouds(NamedTuple):
    """Arguments of a family that compares layers."""

    points_NPD: Array
    labels: Labels
    nearest_N: Searched | None  # for each layer; None where no family reads neighbors
    references: dict[
        str, Array
    ]  # clouds of the same points, to compare with: (layers, points, width)
    nulls: dict[str, Array]  # {"permuted": the clouds with their windows in another order}, or {}


def search(
    cloud_PD: AnyArray, count: int, labels: Labels, found: Copies | None = None
) -> Searched | None:
    """Search the `count` nearest neighbors of every point, in the cloud and in its own section.

    None where `count` is 0. `found` are the copies; None: they are searched too.
    """
    if count == 0:
        return None
    valid_P, section_SP = labels.valid_P, labels.part_SP[1:]
    whole_P = jnp.where(valid_P, 0, -1)
    groups = [whole_P]
    if len(section_SP):
        groups.append(jnp.where(section_SP.any(axis=0), section_SP.argmax(axis=0), -1))
    found = copies(cloud_PD, valid_P) if found is None else found
    most = max(len(section_SP), 1)
    return neighbors_in_groups(cloud_PD, count, jnp.stack(groups), found, most, labels.points)


def over_parts(read: Callable[..., Values], labels: Labels, *searched: Any) -> Values:
    """Apply `read` to the points of a part and neighbors among them: the whole, then each section.

    `read` takes a mark of the points, and the neighbors of each search, or other arrays with a first
    axis for both groupings. It is compiled once.
    """

    def read_part(part: Array) -> Values:
        member_P = jnp.asarray(labels.part_SP)[part]
        # the neighbors in the own section for every part but the first
        nearest = (
            jax.tree.map(lambda x_G: x_G[jnp.minimum(part, len(x_G) - 1)], found)
            for found in searched
        )
        return read(
            member_P,
            *(found.part(member_P) if isinstance(found, Searched) else found for found in nearest),
        )

    count = len(labels.part_SP)
    shapes = jax.eval_shape(read_part, jax.ShapeDtypeStruct((), jnp.int32))
    empty = jax.tree.map(lambda x: jnp.zeros((count, *x.shape), x.dtype), shapes)
    found = jax.lax.fori_loop(
        0,
        labels.parts,
        lambda part, found: jax.tree.map(
            lambda x_S, x: x_S.at[part].set(x), found, read_part(part)
        ),
        empty,
    )
    return {name: jnp.moveaxis(value_S, 0, -1) for name, value_S in found.items()}


def over_sections(read: Callable[..., Values], labels: Labels, *searched: Searched) -> Values:
    """Apply `read` to neighbors of one or several clouds: of the whole, then of each section."""
    return over_parts(lambda _, *nearest: read(*nearest), labels, *searched)


def fold_means(value_XP: AnyArray, keep_RP: AnyArray, counts_P: AnyArray | None = None) -> Array:
    """Average over the points that count (None: all that are kept), for each set of weights: (..., R).

    NaN where no point counts.
    """
    counts_P = keep_RP[0] > 0 if counts_P is None else counts_P & (keep_RP[0] > 0)
    weight_RP = keep_RP * counts_P[None]
    kept_XP = jnp.where(jnp.broadcast_to(counts_P, value_XP.shape), value_XP, 0.0)
    sum_XR = jnp.matmul(kept_XP, weight_RP.T, precision=Precision.HIGHEST)
    return sum_XR / jnp.broadcast_to(weight_RP.sum(axis=1), sum_XR.shape)


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
