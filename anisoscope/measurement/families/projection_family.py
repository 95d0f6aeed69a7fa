"""Family projection: queries and keys of one head of every block, of the same points at each step.

It has no quantities: the vectors are stored for projection to a plane.
"""

import jax.numpy as jnp
from jax import Array

from anisoscope.measurement.families.attention_family import Heads
from anisoscope.measurement.quantity import Family, Values

COUNT = 256
CHOICE = f"of the points of the first batch, all positions, up to {COUNT} evenly spaced: the same at every checkpoint"
# {variable in a checkpoint's table: kind of vector}
VECTORS = {"query_vectors": "query", "key_vectors": "key"}


def select_points(picks_P: Array) -> Array:
    """Select evenly spaced points; picks come fold by fold, so each fold has equally many."""
    count = min(COUNT, picks_P.size)
    return picks_P[jnp.arange(count) * picks_P.size // count]


def head_vectors(heads: Heads, head: int) -> Values:
    """Select queries and keys of a head of every block, as they enter the scores.

    Shapes: (block, vector, K) each.
    """
    picked = select_points(heads.picks_P)
    head_arrays = zip(
        VECTORS, (heads.q_NBTHK[..., head, :], heads.k_NBTHK[..., head, :]), strict=True
    )
    return {
        name: x_NBTK.reshape(len(x_NBTK), -1, x_NBTK.shape[-1])[:, picked]
        for name, x_NBTK in head_arrays
    }


FAMILIES = {"projection": Family("vectors", head_vectors, {}, ())}
