"""A cloud, its neighbors, and its resamples: what the families measure.

R replicates come last in every array: the whole cloud, then each of the resamples (see
intervals.py). A cloud is fold-major: P/J points of each of J folds of windows, one fold after
another.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from anisoscope.measurement.quantity import Values
from anisoscope.metrics import cloud
from anisoscope.metrics.comparison import Nearest
from anisoscope.metrics.neighbors import Neighbors, nearest_neighbors
from anisoscope.metrics.subclouds import neighbors_in_subsamples


class Searched(NamedTuple):
    """The neighbors of a cloud's points, found once for all that is read from them; those of each
    section among its own points.
    """

    whole: Neighbors | Nearest  # or the few that comparisons keep of them
    parts: Neighbors | Nearest | None  # arrays (section, …)


class Places(NamedTuple):
    """The windows and positions of a cloud's points."""

    window_P: Array  # the number of each one's window, below the number of points
    time_P: Array  # its place there; 0 is the first token


class Types(NamedTuple):
    """The last n characters at each point of a cloud, a row for each n of data.unigrams.LENGTHS."""

    # a number, the same for the same characters; below 0 where a window has too few before the
    # point
    type_LP: Array
    # of that type in the training split; -inf where it does not occur there
    log_frequency_LP: Array
    bin_P: Array  # of the character, by its frequency; data.frequency.BINS


class Cloud(NamedTuple):
    points_PD: Array
    folds: int
    searched: Searched | None  # None where no family asks for neighbors
    places: Places | None = None  # None where the points have none
    types: Types | None = None  # None where they are not known


class Clouds(NamedTuple):
    """Arguments of a family that compares layers."""

    points_NPD: Array
    folds: int
    nearest_N: Searched | None  # of each layer; None where no family asks for neighbors
    others: dict[str, Array]  # clouds of the same points, to compare with: (layers, points, width)
    over: Callable[[Callable, Any], Any] = jax.lax.map  # layers, or layers on devices
    # the number of a permutation -> its clouds (N, P, D)
    permuted: Callable[[Array], Array] | None = None
    known: dict[str, Searched] | None = None  # neighbors in `others`; None: not searched yet


def search(cloud_PD: Array, count: int, folds: int, parts: int | None = None) -> Searched | None:
    """Search the `count` nearest of every point; None where none are asked for.

    Of each section too: so many `parts`, or as many as `section_count` says.
    """
    if count == 0:
        return None
    if folds == 1:
        return Searched(nearest_neighbors(cloud_PD, count), None)
    return Searched(*neighbors_in_subsamples(cloud_PD, count, parts or section_count(folds)))


def leave_out(folds: int, points: int) -> Array:
    """Weights (R, points): all, then all but one fold after another."""
    return jnp.repeat(cloud.leave_out(folds), points // folds, axis=1)


def sections(cloud_PD: Array, parts: Any) -> Array:
    """Cut a cloud into sections (S, P / S, D); `parts` is what was found of each, (S, …)."""
    return cloud_PD.reshape(len(jax.tree.leaves(parts)[0]), -1, cloud_PD.shape[1])


def over_folds(read: Callable[[Array], Values], folds: int, points: int) -> Values:
    """Apply `read` to weights of the points: all of them, then all but one fold after another."""
    return jax.vmap(read)(leave_out(folds, points))


def over_sections(read: Callable[..., Values], *searched: Searched) -> Values:
    """Apply `read` to the neighbors of one or several clouds: of the whole, then of each section."""
    whole = read(*(found.whole for found in searched))
    if searched[0].parts is None:
        return {name: value[..., None] for name, value in whole.items()}
    parts = tuple(found.parts for found in searched)
    parts = jax.lax.map(lambda neighbors: read(*neighbors), parts)
    return {
        name: jnp.concatenate([value[..., None], jnp.moveaxis(parts[name], 0, -1)], -1)
        for name, value in whole.items()
    }


def stacked(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def section_count(folds: int) -> int:
    """Sections of equal numbers of whole folds: 4, 3 or 2 where that divides them, else the fewest
    that do.

    Small sections see other scales than the whole.
    """
    return next(count for count in (4, 3, *range(2, folds + 1), 1) if folds % count == 0)
