"""Propose candidates for the nearest neighbors of every point by the Gram matrix.

A bound on the distance of every other point comes with them. Quick, and rough where points are
close: metrics/neighbors.py measures the candidates again. A are the points whose candidates are
sought together, X turns of a loop or blocks of a row.
"""

import jax
import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, Float, Int

EXTRA = 6  # candidates in addition to the requested neighbors: their distances make the bound
TOGETHER = 64  # columns of the distance matrix that exist at once on a CPU
ELEMENTS = 2**27  # of the distance matrix that exist at once on an accelerator
FEW = 16  # up to so many neighbors, a CPU multiplies half of the matrix
BLOCK = 32  # numbers of a row whose maximum stands for them on an accelerator

# indices, P in place of a candidate that does not exist; and a bound of all other points
Proposed = tuple[Int[Array, "P _"], Float[Array, " P"]]


def propose(
    x_PD: Float[Array, "P D"],
    square_P: Float[Array, " P"],
    original_P: Int[Array, " P"],
    count: int,
) -> Proposed:
    """Propose C > count candidates of every point, and bound the squared Gram distance of the rest.

    Args:
        x_PD: the points, centered.
        square_P: their squared norms, inf for points that neither have nor are neighbors.
        original_P: the first copy of each point; only these are proposed.
        count: number of neighbors.

    Returns:
        Indices, P in place of a candidate that does not exist; and for each point a number that no
        other point's squared Gram distance is below, inf where there is no other.
    """
    points = len(x_PD)
    candidate_P = jnp.where(original_P == jnp.arange(points), square_P, jnp.inf)

    def propose_some(i_A: Array) -> tuple[Array, Array]:
        product_PA = jnp.matmul(x_PD, x_PD[i_A].T, precision=Precision.HIGHEST)
        near_PA = candidate_P[:, None] + (square_P[i_A][None] - 2.0 * product_PA)
        near_PA = jnp.where(jnp.arange(points)[:, None] == i_A[None], jnp.inf, near_PA)
        return least(near_PA, min(count + EXTRA, points))

    together = TOGETHER if jax.default_backend() == "cpu" else max(TOGETHER, ELEMENTS // points)
    together = min(together, points)
    # past the end, the last point again
    i_XA = jnp.minimum(jnp.arange(-(-points // together) * together), points - 1)
    proposed = jax.lax.map(propose_some, i_XA.reshape(-1, together))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:points], proposed)


def least(near_PA: Float[Array, "P A"], kept: int) -> tuple[Int[Array, "A C"], Float[Array, " A"]]:
    """Find the `kept` least numbers of each column, ascending, and a bound of all others.

    Negative numbers, which rounding leaves of squared distances, count as 0, NaN as inf. Places are
    P where there are fewer finite numbers. Nothing else in a column is below its bound, which is
    inf where all finite numbers are kept.
    """
    near_PA = jnp.where(near_PA < jnp.inf, jnp.maximum(near_PA, 0.0), jnp.inf)
    points = len(near_PA)
    negative_AC, place_AC = _largest(-near_PA.T, min(kept + 1, points))
    place_AC = jnp.where(negative_AC > -jnp.inf, place_AC, points)[:, :kept]
    infinite_A = jnp.full(len(negative_AC), jnp.inf)
    return place_AC, -negative_AC[:, kept] if kept < points else infinite_A


def _largest(x_AP: Float[Array, "A P"], count: int) -> tuple[Array, Array]:
    """Find the `count` largest of each row and their places, in descending order.

    On an H100 the time of `top_k` grows with all numbers. The largest lie in the `count` blocks with
    the largest maxima, so that it is called on these maxima and on the numbers of these blocks.
    """
    rows, points = x_AP.shape
    blocks = -(-points // BLOCK)
    if jax.default_backend() == "cpu" or blocks <= 2 * count:
        return _top_k(x_AP, count)
    x_AP = jnp.pad(x_AP, ((0, 0), (0, blocks * BLOCK - points)), constant_values=-jnp.inf)
    x_AXB = x_AP.reshape(rows, blocks, BLOCK)
    block_AC = _top_k(x_AXB.max(axis=2), count)[1]
    chosen_ACB = jnp.take_along_axis(x_AXB, block_AC[:, :, None], 1, mode="promise_in_bounds")
    value_AC, place_AC = _top_k(chosen_ACB.reshape(rows, -1), count)
    block_AC = jnp.take_along_axis(block_AC, place_AC // BLOCK, 1, mode="promise_in_bounds")
    return value_AC, block_AC * BLOCK + place_AC % BLOCK


def _top_k(x_AP: Float[Array, "A P"], count: int) -> tuple[Array, Array]:
    # one barrier for each output: XLA sorts whole rows where only a slice is read
    return tuple(map(jax.lax.optimization_barrier, jax.lax.top_k(x_AP, count)))
