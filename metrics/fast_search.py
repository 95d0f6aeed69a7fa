"""The fast search for the nearest neighbours; metrics/neighbours.py says what they are, by a plain
one.

The Gram matrix proposes candidates, with a bound on the distance of all others; where its rounding
could hide a neighbour among those, the point is compared with every other by subtraction. So
neighbours do not depend on how many are asked for, and near-duplicates (equal characters at equal
places, early in training) cannot crowd each other out.

Here A are points that are compared with all at once.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import Precision
from jaxtyping import Array, Bool, Float, Int

from anisoscope.metrics.candidates import propose

# coordinates of candidates that exist at once: a core's cache holds them; an accelerator takes more
GATHERED = 2**17
TOGETHER = 8  # points compared with all others at once


def search(
    cloud_PD: Float[Array, "P D"],
    x_PD: Float[Array, "P D"],
    square_P: Float[Array, " P"],
    original_P: Int[Array, " P"],
    count: int,
) -> tuple[Float[Array, "P {count}"], Int[Array, "P {count}"]]:
    """Distances and indices of the nearest; of the cloud, centred, its squares, and the first equal
    to each point.
    """
    proposed = propose(x_PD, square_P, original_P, count)
    return measured(cloud_PD, square_P, jnp.zeros_like(original_P), original_P, proposed, count)


def measured(
    cloud_PD: Float[Array, "P D"],
    square_P: Float[Array, " P"],
    part_P: Int[Array, " P"],
    original_P: Int[Array, " P"],
    proposed: tuple[Int[Array, "P C"], Float[Array, " P"]],
    count: int,
) -> tuple[Float[Array, "P {count}"], Int[Array, "P {count}"]]:
    """The neighbours among the proposed ones, or among all of the same part where these may not do.

    `square_P` as the proposals had.
    """
    candidate_PC, beyond_P = proposed
    first_P = original_P == jnp.arange(len(original_P))
    distance_PC, index_PC = by_subtraction(cloud_PD, candidate_PC, count)
    last_P = distance_PC[:, -1]
    unsure_P = first_P & (
        beyond_P - rounding(square_P, last_P, cloud_PD.shape[1]) <= jnp.square(last_P)
    )
    among_P = jnp.where(first_P & (square_P < jnp.inf), part_P, -1)
    distance_PC, index_PC = compared_with_all(cloud_PD, among_P, unsure_P, distance_PC, index_PC)
    return distance_PC[original_P], index_PC[original_P]


def rounding(
    square_P: Float[Array, " P"], distance_P: Float[Array, " P"], width: int
) -> Float[Array, " P"]:
    """How far the Gram distance, squared, of a point at most so far away can be from its true one.

    |x|^2 + |y|^2 - 2 x'y, where |y| <= |x| + distance, is rounded by up to (|x| + |y|)^2 2^-23
    times .05 to .8 sqrt(D) on clouds of every kind, 2 for D = 1: the bound is twice that. In theory
    D could stand for sqrt(D).
    """
    return np.float32(max(width, 16) ** 0.5 * 2.0**-22) * jnp.square(
        2.0 * jnp.sqrt(square_P) + distance_P
    )


def by_subtraction(
    cloud_PD: Float[Array, "P D"], candidate_PC: Int[Array, "P C"], count: int
) -> tuple[Float[Array, "P {count}"], Int[Array, "P {count}"]]:
    """Distances to the `count` nearest candidates, ascending, and their indices: inf and 0 where
    there is none.
    """
    points, width = cloud_PD.shape
    ones_D = jnp.ones(width)

    def of_point(of: tuple[Array, Array]) -> Array:
        i, index_C = of
        # a product with ones adds up what lies in the cache in half the time of a sum
        square_C = jnp.matmul(
            jnp.square(cloud_PD[index_C] - cloud_PD[i][None]), ones_D, precision=Precision.HIGHEST
        )
        return jnp.where(index_C < points, jnp.sqrt(square_C), jnp.inf)

    gathered = GATHERED if jax.default_backend() == "cpu" else 8 * GATHERED
    at_once = max(1, min(points, gathered // (candidate_PC.shape[1] * width)))
    distance_PC = jax.lax.map(of_point, (jnp.arange(points), candidate_PC), batch_size=at_once)
    return nearest_of(distance_PC, jnp.where(candidate_PC < points, candidate_PC, 0), count)


def nearest_of(
    distance_PC: Float[Array, "P C"], index_PC: Int[Array, "P C"], count: int
) -> tuple[Float[Array, "P {count}"], Int[Array, "P {count}"]]:
    """The `count` least distances in their order, of equal ones in the order given; inf and 0 past
    all there are.
    """
    some = min(count, distance_PC.shape[1])
    negative_PC, place_PC = jax.lax.top_k(-distance_PC, some)
    index_PC = jnp.take_along_axis(index_PC, place_PC, axis=1, mode="promise_in_bounds")
    missing = ((0, 0), (0, count - some))
    return jnp.pad(-negative_PC, missing, constant_values=jnp.inf), jnp.pad(index_PC, missing)


def compared_with_all(
    cloud_PD: Float[Array, "P D"],
    among_P: Int[Array, " P"],
    unsure_P: Bool[Array, " P"],
    distance_PC: Float[Array, "P C"],
    index_PC: Int[Array, "P C"],
) -> tuple[Float[Array, "P C"], Int[Array, "P C"]]:
    """The same neighbours, those of the unsure points from all with the same number in `among_P`;
    below 0: nobody's.
    """
    points, count = distance_PC.shape
    together, kept = min(TOGETHER, points), min(count, points)
    order_P = jnp.argsort(~unsure_P)

    def of_point(i: Array) -> tuple[Array, Array]:
        candidate_P = (among_P == among_P[i]) & (among_P[i] >= 0)
        distance_P = jnp.sqrt(jnp.square(cloud_PD - cloud_PD[i][None]).sum(axis=1))
        distance_P = jnp.where(candidate_P, distance_P, jnp.inf).at[i].set(jnp.inf)
        negative_C, index_C = jax.lax.top_k(-distance_P, kept)
        return -negative_C, jnp.where(negative_C > -jnp.inf, index_C, 0)

    def of_some(number: Array, nearest: tuple[Array, Array]) -> tuple[Array, Array]:
        # past the last of them come points that were sure, for which the same is found again
        i_A = jax.lax.dynamic_slice_in_dim(order_P, together * number, together)
        of_some_2AC = jax.vmap(of_point)(i_A)
        return tuple(
            x_PC.at[i_A, :kept].set(x_AC) for x_PC, x_AC in zip(nearest, of_some_2AC, strict=True)
        )

    return jax.lax.fori_loop(0, -(-unsure_P.sum() // together), of_some, (distance_PC, index_PC))
