"""Family projection: no quantities, but queries and keys of one head of every block, the same
points at each step.
"""

import jax.numpy as jnp
from jax import Array

from anisoscope.measurement.families.attention_family import Heads
from anisoscope.measurement.quantity import Family, Values

COUNT = 256
CHOICE = f"of the points of the first batch, all positions, up to {COUNT} evenly spaced: the same at every checkpoint"
# name in the table of one checkpoint, and what it holds
VECTORS = {"query_vectors": "query", "key_vectors": "key"}


def chosen(picks_P: Array) -> Array:
    """Picks come fold by fold of windows: evenly spaced ones are as many of each."""
    count = min(COUNT, picks_P.size)
    return picks_P[jnp.arange(count) * picks_P.size // count]


def head_vectors(heads: Heads, head: int) -> Values:
    """Queries and keys of that head of every block as they enter the scores, each (block, vector,
    K).
    """
    picked = chosen(heads.picks_P)
    head_arrays = zip(
        VECTORS, (heads.q_NBTHK[..., head, :], heads.k_NBTHK[..., head, :]), strict=True
    )
    return {
        name: x_NBTK.reshape(len(x_NBTK), -1, x_NBTK.shape[-1])[:, picked]
        for name, x_NBTK in head_arrays
    }


FAMILY = Family(input_kind="vectors", compute=head_vectors, quantities={}, nulls=())
