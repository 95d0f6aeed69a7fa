"""Candidates measured and put in order: what the search for neighbours does with those it was proposed.

Letters here: P points, C candidates of each, K that are kept, D coordinates.
"""

import jax
import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, Float, Int

GATHERED = 2**17  # coordinates of candidates that exist at once: a core's cache holds them; an accelerator takes more


def by_subtraction(
    cloud_PD: Float[Array, "P D"], candidate_PC: Int[Array, "P C"], count: int
) -> tuple[Float[Array, "P K"], Int[Array, "P K"]]:
    """Distances to the `count` nearest candidates, ascending, and their indices: inf and 0 where there is none."""
    points, width = cloud_PD.shape
    ones_D = jnp.ones(width)

    def of_point(of: tuple[Array, Array]) -> Array:
        i, index_C = of
        # a product with ones adds up what lies in the cache in half the time of a sum
        square_C = jnp.matmul(jnp.square(cloud_PD[index_C] - cloud_PD[i][None]), ones_D, precision=Precision.HIGHEST)
        return jnp.where(index_C < points, jnp.sqrt(square_C), jnp.inf)

    gathered = GATHERED if jax.default_backend() == "cpu" else 8 * GATHERED
    at_once = max(1, min(points, gathered // (candidate_PC.shape[1] * width)))
    distance_PC = jax.lax.map(of_point, (jnp.arange(points), candidate_PC), batch_size=at_once)
    return nearest_of(distance_PC, jnp.where(candidate_PC < points, candidate_PC, 0), count)


def nearest_of(
    distance_PC: Float[Array, "P C"], index_PC: Int[Array, "P C"], count: int
) -> tuple[Float[Array, "P K"], Int[Array, "P K"]]:
    """The `count` least distances in their order, of equal ones in the order given; inf and 0 past all there are."""
    some = min(count, distance_PC.shape[1])
    # Barriers keep XLA from cutting it shorter, which would make a sort of the call, many times as slow. One for each
    # output: where XLA decomposes the call, a barrier of both together aborts the compiler.
    negative_PK, place_PK = map(jax.lax.optimization_barrier, jax.lax.top_k(-distance_PC, some))
    index_PK = jnp.take_along_axis(index_PC, place_PK, axis=1, mode="promise_in_bounds")
    narrow = ((0, 0), (0, count - some))
    return jnp.pad(-negative_PK, narrow, constant_values=jnp.inf), jnp.pad(index_PK, narrow)
