"""Propose candidates for the nearest neighbors of every point by the Gram matrix.

A bound on the distance of every other point comes with them. Quick, and rough where points are
close: metrics/neighbors.py measures the candidates again. A are the points whose candidates are
sought together, X turns of a loop.
"""

import jax
import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, Float, Int

EXTRA = 6  # candidates in addition to the requested neighbors: their distances make the bound
TOGETHER = 64  # columns of the distance matrix that exist at once on a CPU
ELEMENTS = 2**27  # of the distance matrix that exist at once on an accelerator
FEW = 16  # up to so many neighbors, a CPU multiplies half of the matrix

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
    negative_AC, place_AC = jax.lax.top_k(-near_PA.T, min(kept + 1, points))
    # one for each output: XLA sorts whole rows where only a slice is read
    negative_AC, place_AC = map(jax.lax.optimization_barrier, (negative_AC, place_AC))
    place_AC = jnp.where(negative_AC > -jnp.inf, place_AC, points)[:, :kept]
    infinite_A = jnp.full(len(negative_AC), jnp.inf)
    return place_AC, -negative_AC[:, kept] if kept < points else infinite_A
