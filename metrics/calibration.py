"""A similarity calibrated by K permutations of unrelated points: its score, and its p-value."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from anisoscope.metrics.cloud import AnyArray, Points, Scalar
from anisoscope.metrics.comparison import Cka, cross_energy, prepare_cloud

PERMUTATIONS, LEVEL = 200, 0.05  # as in Gröger, Wen and Brbić


class Calibrated(NamedTuple):
    value: Scalar
    score: Scalar
    p: Scalar
    null_mean: Scalar


def calibrated(
    value: Float[AnyArray, ""], null_K: Float[AnyArray, " K"], level: float = LEVEL
) -> Calibrated:
    """Similarity of at most 1, calibrated by its values under K permutations.

    score: max(0, (s - t) / (1 - t)), t the ceil((1 - level) (K + 1))-th smallest of the value s and
    the K together: 0 for all but a share `level` of unrelated clouds, 1 where s is 1. p: (1 +
    number of the K that reach s) / (K + 1). Units: none. Range: score [0, 1], p [1/(K + 1), 1]. A
    value that is not finite: NaN. Source: Gröger, Wen and Brbić 2026, Revisiting the Platonic
    Representation Hypothesis (arXiv 2602.14486), as in their package calibrated_similarity.
    """
    null_K = jnp.asarray(null_K)
    rank = math.ceil((1 - level) * (len(null_K) + 1) - 1e-9)
    threshold = jnp.sort(jnp.append(null_K, value))[rank - 1]
    known = value * 0 + null_K.sum() * 0  # keeps NaN, which comparisons would hide
    score = jnp.clip((value - threshold) / (1 - threshold), 0.0, 1.0)
    reached = (null_K >= value).sum()
    return Calibrated(
        value, score + known, (1 + reached) / (len(null_K) + 1) + known, null_K.mean()
    )


def calibrated_cka(
    x_PD: Points,
    y_PE: Float[AnyArray, "P E"],
    key: Array,
    together: int = 1,
    permutations: int = PERMUTATIONS,
) -> Cka:
    """Linear CKA of two clouds, biased and unbiased, each `calibrated` by permuted points of y.

    `together` consecutive points, such as those of a window, are permuted together: separately,
    dependent points would make any two networks that read the same text seem similar. P is a
    multiple of `together`, or ValueError. All points of a cloud equal, or not finite: NaN. Source:
    Murphy, Zylberberg and Fyshe 2024 (arXiv 2405.01012) for the bias; whole windows: this project.
    """
    if len(x_PD) % together:
        raise ValueError(f"x has {len(x_PD)} points; pass a multiple of together={together}")
    keep_1P = jnp.ones((1, len(x_PD)))
    x, y = (prepare_cloud(jnp.asarray(cloud), keep_1P) for cloud in (x_PD, y_PE))
    places_WT = jnp.arange(len(x_PD)).reshape(-1, together)

    def compare(y_PE: Array) -> Array:
        shared_2 = cross_energy(x.x_PD, y_PE, keep_1P)[:, 0]
        return jnp.clip(shared_2 / jnp.sqrt(x.energy_2R * y.energy_2R)[:, 0], -1.0, 1.0)

    def compare_permuted(key: Array) -> Array:
        return compare(y.x_PD[jax.random.permutation(key, places_WT).ravel()])

    null_K2 = jax.lax.map(compare_permuted, jax.random.split(key, permutations))
    return Cka(*map(calibrated, compare(y.x_PD), null_K2.T))
