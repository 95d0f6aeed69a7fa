"""The eigendecomposition of a cloud's scatter in float32, small eigenvalues included.

Here Q are the rows that are decomposed: points, or coordinates of few points. K are directions that
are taken out first, S counts of them, B the last eigenvalues.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, Bool, Float, Int

from anisoscope.metrics.cloud import AnyArray, eigen_changes, eigh

# an eigenvalue below this share of the largest drowns in the rounding of float32, and is set to 0
RESOLUTION = 1e-9
GRADED = 3e-4  # eigenvalues below this share of the largest are decomposed again, on their own
# eigenvalues from which the next two save more than a quarter, net of compiling for twelve layers
# twice
WIDE = 2048
# of these parts of the spectrum's end, the least that holds all such eigenvalues
BLOCKS = (1, 2, 4)
# directions sought by subspace iteration, and its products with the matrix
LEADING, ITERATIONS = 32, 8


class Axes(NamedTuple):
    """Eigenvalues of x^T x, largest first, eigenvectors as columns, and the data along them."""

    value_E: Float[Array, " E"]
    vector_EE: Float[Array, "E E"]
    coordinate_QE: Float[Array, "Q E"]  # x v; without columns where it was not asked for


class Leading(NamedTuple):
    """Directions of the largest eigenvalues, of which the first `count` are known well enough to be
    taken out.
    """

    vector_EK: Float[Array, "E K"]
    count: Int[Array, ""]


def product(a: Float[AnyArray, "..."], b: Float[AnyArray, "..."]) -> Float[Array, "..."]:
    """In all digits of float32, on every device."""
    return jnp.matmul(a, b, precision=Precision.HIGHEST)


def eigen(x_QE: Float[Array, "Q E"], coordinates: bool = False) -> Axes:
    """Eigenvalues and eigenvectors of x^T x, and the `coordinates` x v where they are asked for.

    One decomposition leaves an error of 3e-7 of the largest eigenvalue: rounding of the product,
    and of eigh. Where smaller ones are at stake, the coordinates x v of the data along their
    directions still have all their digits, and so has the product of these. What couples them to
    the large ones is of second order, and left out.

    From WIDE on that costs less: leading directions far above the rest are taken out of the data
    first (`_leading`), so that the error is 3e-7 of the largest that is left; and only as many of
    the last columns as BLOCKS says are decomposed again. Under vmap wide ones go one after another:
    a batch would take every branch, and decompositions of several kinds, each in parallel over a
    batch, have waited for one another for ever (jaxlib 0.10.2 on a CPU).
    """
    wide = jax.custom_batching.sequential_vmap(functools.partial(_wide, coordinates=coordinates))

    @jax.custom_jvp
    def decomposed(x_QE: Float[Array, "Q E"]) -> Axes:
        if x_QE.shape[1] >= WIDE:
            return wide(x_QE)
        value_E, vector_EE = _narrow(x_QE)
        return Axes(value_E, vector_EE, product(x_QE, vector_EE) if coordinates else x_QE[:, :0])

    @decomposed.defjvp
    def along(primals: tuple, tangents: tuple) -> tuple[Axes, Axes]:
        (x_QE,), (dx_QE,), axes = primals, tangents, decomposed(*primals)
        half_EE = product(product(x_QE, axes.vector_EE).T, product(dx_QE, axes.vector_EE))
        change = eigen_changes(axes.value_E, axes.vector_EE, half_EE + half_EE.T)
        moved_QE = (
            product(dx_QE, axes.vector_EE) + product(x_QE, change[1])
            if coordinates
            else axes.coordinate_QE
        )
        return axes, Axes(*change, moved_QE)

    return decomposed(x_QE)


def resolved(value_E: Float[Array, " E"]) -> Float[Array, " E"]:
    """Those below RESOLUTION of the largest set to 0."""
    return jnp.where(value_E < RESOLUTION * value_E.max(), 0.0, value_E)


def _narrow(x_QE: Float[Array, "Q E"]) -> tuple[Float[Array, " E"], Float[Array, "E E"]]:
    value_E, vector_EE = eigh(product(x_QE.T, x_QE))
    value_E, vector_EE = value_E[::-1], vector_EE[:, ::-1]

    def again() -> tuple[Float[Array, " E"], Float[Array, "E E"]]:
        small_E = value_E < GRADED * value_E[0]
        coordinate_QE = product(x_QE, vector_EE)
        gram_EE = product(coordinate_QE.T, coordinate_QE)
        square_E = jnp.diagonal(gram_EE)
        # keeps the large ones out of the turn
        last_E = jnp.where(small_E, 0.0, -jnp.where(small_E, square_E, 0.0).max())
        small_EE = jnp.where(small_E[:, None] & small_E[None], gram_EE, 0.0) + jnp.diag(last_E)
        small_value_E, turn_EE = eigh(small_EE)
        behind_large = (~small_E).sum()
        small_value_E = jnp.roll(small_value_E[::-1], behind_large)
        turned_EE = jnp.roll(product(vector_EE, turn_EE[:, ::-1]), behind_large, axis=1)
        value_again_E = jnp.where(small_E, small_value_E, square_E)
        return jnp.maximum(value_again_E, 0.0), jnp.where(small_E[None], turned_EE, vector_EE)

    return jax.lax.cond(value_E[-1] < GRADED * value_E[0], again, lambda: (value_E, vector_EE))


def _wide(x_QE: Float[Array, "Q E"], coordinates: bool) -> Axes:
    gram_EE = product(x_QE.T, x_QE)
    leading = _leading(gram_EE)
    out_EK = jnp.where((jnp.arange(LEADING) < leading.count)[None], leading.vector_EK, 0.0)
    some = leading.count > 0

    def rest() -> Float[Array, "Q E"]:
        return x_QE - product(product(x_QE, out_EK), out_EK.T)

    def of_rest() -> Float[Array, "E E"]:
        rest_QE = rest()
        rest_EE = product(rest_QE.T, rest_QE)
        # the last in turn, also where nothing is left but the rounding of what was taken out
        below = jnp.maximum(jnp.diagonal(rest_EE).max(), RESOLUTION * jnp.trace(gram_EE))
        return rest_EE - below * product(out_EK, out_EK.T)

    ascending_E, ascending_EE = eigh(jax.lax.cond(some, of_rest, lambda: gram_EE))
    # those taken out come first
    value_E, vector_EE = (
        jnp.roll(one[..., ::-1], leading.count, axis=-1) for one in (ascending_E, ascending_EE)
    )
    large_E = jnp.arange(value_E.size) < leading.count
    others = ((0, 0), (0, value_E.size - LEADING))
    # rounding leaves some of them in the others
    vector_EE = vector_EE - product(out_EK, product(out_EK.T, vector_EE))
    vector_EE = jnp.where(large_E[None], jnp.pad(out_EK, others), vector_EE)
    largest_left = value_E[leading.count]
    small_E = ~large_E & (value_E < GRADED * largest_left)
    graded = some | (value_E[-1] < GRADED * largest_left)

    def along() -> Float[Array, "Q E"]:
        def apart() -> Float[Array, "Q E"]:
            large_QE = jnp.pad(product(x_QE, out_EK), others)
            return jnp.where(large_E[None], large_QE, product(rest(), vector_EE))

        return jax.lax.cond(some, apart, lambda: product(x_QE, vector_EE))

    def again(coordinate_QE: Float[Array, "Q E"]) -> Axes:
        blocks = sorted(value_E.size // part for part in BLOCKS)
        ways = [functools.partial(_turned, columns=columns) for columns in blocks]
        which = sum((small_E.sum() > columns).astype(jnp.int32) for columns in blocks[:-1])
        return jax.lax.switch(which, ways, vector_EE, coordinate_QE, small_E)

    if coordinates:
        return jax.lax.cond(graded, again, functools.partial(Axes, value_E, vector_EE), along())
    without = Axes(value_E, vector_EE, x_QE[:, :0])
    return jax.lax.cond(
        graded,
        lambda: again(along())._replace(coordinate_QE=without.coordinate_QE),
        lambda: without,
    )


def _turned(
    vector_EE: Float[Array, "E E"],
    coordinate_QE: Float[Array, "Q E"],
    small_E: Bool[Array, " E"],
    columns: int,
) -> Axes:
    """Values as squares of coordinates; the small ones, all among the last `columns`, decomposed
    among themselves.
    """
    square_E = jnp.square(coordinate_QE).sum(axis=0)
    kept = square_E.size - columns
    small_B, last_EB, last_QB = small_E[kept:], vector_EE[:, kept:], coordinate_QE[:, kept:]
    gram_BB = jnp.where(small_B[:, None] & small_B[None], product(last_QB.T, last_QB), 0.0)
    # keeps the large ones out of the turn
    apart_B = jnp.where(small_B, 0.0, -jnp.diagonal(gram_BB).max())
    ascending_B, turn_BB = eigh(gram_BB + jnp.diag(apart_B))
    behind_large = (~small_B).sum()
    value_B = jnp.roll(ascending_B[::-1], behind_large)
    value_B = jnp.where(small_B, jnp.maximum(value_B, 0.0), square_E[kept:])
    turn_BB = jnp.roll(turn_BB[:, ::-1], behind_large, axis=1)
    last_EB, last_QB = (
        jnp.where(small_B[None], product(one, turn_BB), one) for one in (last_EB, last_QB)
    )
    return Axes(
        jnp.concatenate([square_E[:kept], value_B]),
        jnp.concatenate([vector_EE[:, :kept], last_EB], axis=1),
        jnp.concatenate([coordinate_QE[:, :kept], last_QB], axis=1),
    )


def _leading(gram_EE: Float[Array, "E E"]) -> Leading:
    """The top K directions by subspace iteration, and how many of them stand apart from a long
    tail.

    With q_k, theta_k and the residual r_k = |G q_k - theta_k q_k|, leaving out what couples the
    first s directions to the rest changes an eigenvalue by no more than sum_(k <= s) r_k^2 /
    (theta_k - theta_(s+1)): s is the largest for which that is below 1e-10 of theta_1, with
    theta_(s+1) < 0.9 theta_s and < 0.3 theta_1. None are sought where the mean eigenvalue without
    the first is too large for digits to be at stake: (tr G - |G|_F)/E > 10 GRADED |G|_F, where
    |G|_F >= lambda_1. That only saves time: what is small is decomposed again, whether anything is
    taken out or not.
    """
    width = gram_EE.shape[0]
    none = Leading(jnp.zeros((width, LEADING)), jnp.zeros((), jnp.int32))

    def closer(_: Int[Array, ""], q_EK: Float[Array, "E K"]) -> Float[Array, "E K"]:
        return jnp.linalg.qr(product(gram_EE, q_EK))[0]

    def sought() -> Leading:
        start_EK = jax.random.normal(jax.random.key(0), (width, LEADING))
        q_EK = jax.lax.fori_loop(0, ITERATIONS, closer, start_EK)
        image_EK = product(gram_EE, q_EK)
        theta_K, turn_KK = eigh(product(q_EK.T, image_EK))
        theta_K, turn_KK = theta_K[::-1], turn_KK[:, ::-1]
        q_EK, image_EK = product(q_EK, turn_KK), product(image_EK, turn_KK)
        square_K = jnp.square(image_EK - theta_K[None] * q_EK).sum(axis=0)
        next_S = theta_K[1:]
        gap_SK = theta_K[None] - next_S[:, None]
        within_SK = (jnp.arange(LEADING)[None] <= jnp.arange(LEADING - 1)[:, None]) & (gap_SK > 0)
        error_S = jnp.where(within_SK, square_K[None] / jnp.where(within_SK, gap_SK, 1.0), 0.0).sum(
            axis=1
        )
        apart_S = (
            (error_S <= 1e-10 * theta_K[0])
            & (next_S < 0.9 * theta_K[:-1])
            & (next_S < 0.3 * theta_K[0])
        )
        return Leading(q_EK, jnp.where(apart_S, jnp.arange(1, LEADING), 0).max())

    norm, trace = jnp.linalg.norm(gram_EE), jnp.trace(gram_EE)  # of NaN: no comparison holds
    return jax.lax.cond(trace - norm < 10 * GRADED * width * norm, sought, lambda: none)
