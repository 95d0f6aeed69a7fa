"""Tangent proxies of every layer, fitted to its activations: semi-NMF concepts and principal
directions.

Here A are the restarts of semi-NMF, Y its rounds.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from anisoscope.config.tangents_config import TangentsConfig
from anisoscope.metrics import tangent

KINDS = ("semi-NMF", "PCA")
LAST = 10  # rounds of semi-NMF over which its progress is told

Frames = dict[int, Array]  # by rank: orthonormal columns (…, kind, layer, D, rank)


class Fitted(NamedTuple):
    frames: Frames  # (kind, layer, D, rank)
    residual: Array  # (rank, layer): |A - Z C|^2 / |A|^2 of the best restart
    progress: Array  # (rank, layer): the share of it that the last rounds took off
    spread: Array  # (rank, layer): of the residual between restarts, largest less least


# Accelerators round the factors of float32 products to TF32 or bfloat16 unless told not to.
@jax.default_matmul_precision("highest")
def fit(points_NPD: Array, tangents: TangentsConfig) -> Fitted:
    """Pure and un-jitted. Layers and restarts go one after another."""
    keys_A = jax.random.split(jax.random.key(tangents.seed), tangents.restarts)
    fits = [
        jax.lax.map(lambda x_PD, k=rank: _of_layer(x_PD, keys_A, k, tangents.rounds), points_NPD)
        for rank in tangents.ranks
    ]
    frames = {
        rank: jnp.swapaxes(one[0], 0, 1) for rank, one in zip(tangents.ranks, fits, strict=True)
    }
    return Fitted(frames, *(jnp.stack(parts) for parts in list(zip(*fits, strict=True))[1:]))


def _of_layer(
    x_PD: Array, keys_A: Array, rank: int, rounds: int
) -> tuple[Array, Array, Array, Array]:
    def once(key: Array) -> tangent.Factors:
        return tangent.semi_nmf(x_PD, tangent.start(x_PD, key, rank), rounds)

    factors_A = jax.lax.map(once, keys_A)
    last_A = factors_A.residual_Y[:, -1]
    best = last_A.argmin()
    concept_ED, residual_Y = factors_A.concept_ED[best], factors_A.residual_Y[best]
    before = residual_Y[max(len(residual_Y) - 1 - LAST, 0)]
    frames = jnp.stack([tangent.orthonormal(concept_ED), tangent.principal(x_PD, rank)])
    return frames, last_A[best], (before - last_A[best]) / before, last_A.max() - last_A.min()
