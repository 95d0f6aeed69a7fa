"""Quantities of each window alone: the spectrum of its vectors.

Here Q are the points, sorted by window, and padding.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from anisoscope.metrics.cloud import AnyArray, entropy

ROWS = 256  # of a window that are decomposed at once; longer windows are first reduced by QR


def prompt_entropy(
    cloud_PD: Float[AnyArray, "P D"], window_P: Int[AnyArray, " P"]
) -> tuple[Float[Array, " P"], Bool[Array, " P"]]:
    """Matrix entropy of every window: -sum_j p_j ln p_j, p_j = s_j^2 / sum s_j^2.

    s are the singular values of the window's vectors. Not centered. Shapes: P points of width D,
    the number of each point's window -> the entropy of each point's window, nat, and whether a
    point is the first of its window. Range: [0, ln min(n, D)] for n vectors: 0 where all are
    parallel, or one is far longer than the rest. A window of zeros, or a coordinate that is not
    finite: NaN. Source: Skean et al. 2025, Layer by Layer (matrix entropy of order 1), by sequence
    as in Queipo-de-Llano et al. 2025, Attention Sinks and Compression Valleys.
    """
    points, width = cloud_PD.shape
    cloud_PD, window_P = jnp.asarray(cloud_PD, jnp.float32), jnp.asarray(window_P)
    finite = jnp.isfinite(cloud_PD).all()  # a decomposition of NaN may not end
    rows = min(ROWS, points)
    order_P = jnp.argsort(window_P)  # stable
    sorted_P = window_P[order_P]
    x_QD = jnp.pad(jnp.where(finite, cloud_PD, 0.0)[order_P], ((0, rows), (0, 0)))
    starts_P = jnp.concatenate([jnp.ones(1, bool), sorted_P[1:] != sorted_P[:-1]])
    number_P = jnp.cumsum(starts_P) - 1
    size_P = jnp.zeros(points, int).at[number_P].add(1)
    start_P = jnp.cumsum(size_P) - size_P

    def block(start: Array, size: Array) -> Array:
        """Return `size` rows from `start` on, followed by zeros."""
        rows_TD = jax.lax.dynamic_slice_in_dim(x_QD, start, rows)
        return jnp.where(jnp.arange(rows)[:, None] < size, rows_TD, 0.0)

    def folded(start: Array, size: Array) -> Array:
        """Compute singular values of a longer window: those of R in QR, row block by row block."""

        def add(number: Array, r_DD: Array) -> Array:
            further_TD = block(start + number * rows, size - number * rows)
            return jnp.linalg.qr(jnp.concatenate([r_DD, further_TD]), mode="r")

        r_DD = jax.lax.fori_loop(0, -(-size // rows), add, jnp.zeros((width, width)))
        return jnp.linalg.svd(r_DD, compute_uv=False)

    def at_once(start: Array, size: Array) -> Array:
        value_E = jnp.linalg.svd(block(start, size), compute_uv=False)
        return jnp.pad(value_E, (0, width - value_E.size))

    def read_window(number: Array, entropy_P: Array) -> Array:
        start, size = start_P[number], size_P[number]
        value_D = jax.lax.cond(size <= rows, at_once, folded, start, size)
        square_D = jnp.square(
            value_D / value_D[0]
        )  # otherwise squares of small values would underflow
        return entropy_P.at[number].set(entropy(square_D / square_D.sum()))

    entropy_P = jax.lax.fori_loop(0, number_P[-1] + 1, read_window, jnp.zeros(points))
    entropy_P = jnp.zeros(points).at[order_P].set(entropy_P[number_P])
    first_P = jnp.zeros(points, bool).at[order_P].set(starts_P)
    return jnp.where(finite, entropy_P, jnp.nan), first_P
