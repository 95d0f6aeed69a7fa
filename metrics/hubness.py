"""Hubness: how unevenly points occur among the nearest neighbors of other points."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from anisoscope.metrics.neighbors import Neighbors

COUNT = 10  # nearest neighbors


class Hubs(NamedTuple):
    skewness: Float[Array, ""]
    never: Float[Array, ""]
    most: Float[Array, ""]


def occurrences(neighbors: Neighbors, count: int = COUNT) -> Float[Array, " P"]:
    """N_k of every point: the number of distinct points that have it among their k nearest.

    0 for copies of an earlier point.
    """
    neighbors.check_searched(count)
    near_PC = jnp.isfinite(neighbors.distance_PC[:, :count]) & neighbors.first_P[:, None]
    return (
        jnp.zeros(len(near_PC)).at[neighbors.index_PC[:, :count]].add(near_PC.astype(jnp.float32))
    )


def hubs(neighbors: Neighbors, count: int = COUNT) -> Hubs:
    """Spread of the N_k of the n distinct points, whose mean is k.

    skewness: E (N_k - k)^3 / (E (N_k - k)^2)^(3/2); about 0 in few dimensions, large where some
    points are hubs; NaN where all N_k are equal. never: share of the points with N_k = 0; [0, 1].
    most: largest N_k over k; [0, (n - 1)/k]. Neighbors searched to `count` at least, or ValueError.
    Hubs come with the dimension and with points near the mean, of independent normal points too:
    the Gaussian null model tells by how much. Source: Radovanovic, Nanopoulos and Ivanovic 2010,
    Hubs in Space; in language models arXiv 2606.29655, whose formulas are not read.
    """
    count_P, first_P = occurrences(neighbors, count), neighbors.first_P
    points = first_P.sum()
    deviation_P = jnp.where(first_P, count_P - count_P.sum() / points, 0.0)
    variance, third = jnp.square(deviation_P).sum() / points, (deviation_P**3).sum() / points
    never = (first_P & (count_P == 0)).sum() / points
    return Hubs(third / variance**1.5, never, count_P.max() / count)
