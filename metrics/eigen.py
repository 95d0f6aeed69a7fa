"""Eigendecomposition of a cloud's scatter in float32, small eigenvalues included; top direction.

Q are rows: points, or coordinates of few points. X are the DIRECTIONS_AT_ONCE directions iterated together.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, Float

from anisoscope.metrics.cloud import Scalar, product
from anisoscope.metrics.lapack import make_sequential

# an eigenvalue below this share of the largest drowns in the rounding of float32, and is set to 0
RESOLUTION = 1e-9
GRADED = 3e-4  # eigenvalues below this share of the largest are decomposed again, on their own
POWERS, ROUNDS, DIRECTIONS_AT_ONCE, FINE, ROUGH = 4, 64, 8, 1e-5, 1e-4  # see `top_direction`


def fall_back(needed: Array, costly: Callable, cheap: Callable, *operands: Any) -> Any:
    """Return costly(*operands) where `needed`, otherwise cheap(*operands).

    Under `vmap` XLA computes both branches of `jax.lax.cond` for every element. Here `costly` runs
    only if an element of the batch needs it. The functions must read no other traced array, and the
    result has no derivative in reverse mode.
    """

    @jax.custom_batching.custom_vmap
    def choose(needed: Array, operands: tuple) -> Any:
        return jax.lax.cond(needed, costly, cheap, *operands)

    @choose.def_vmap
    def choose_for_batch(size: int, is_batched: list, needed_B: Array, operands: tuple) -> tuple:
        axes = jax.tree.map(lambda batched: 0 if batched else None, is_batched[1])
        costly_B, cheap_B = (jax.vmap(branch, axes, axis_size=size) for branch in (costly, cheap))
        needed_B = jnp.broadcast_to(needed_B, size)

        def select(needed_B: Array, *operands: Any) -> Any:
            each = jax.vmap(jnp.where)
            results = costly_B(*operands), cheap_B(*operands)
            return jax.tree.map(functools.partial(each, needed_B), *results)

        result_B = fall_back(
            needed_B.any(), select, lambda _, *operands: cheap_B(*operands), needed_B, *operands
        )
        return result_B, jax.tree.map(lambda _: True, result_B)

    return choose(needed, operands)


class Axes(NamedTuple):
    """Eigenvalues of x^T x, largest first, eigenvectors as columns, and the data along them."""

    value_E: Float[Array, " E"]
    vector_EE: Float[Array, "E E"]
    coordinate_QE: Float[Array, "Q E"]  # x v; without columns where not requested


@jax.custom_jvp
def eigh(symmetric_DD: Float[Array, "D D"]) -> tuple[Float[Array, " D"], Float[Array, "D D"]]:
    """Find ascending eigenvalues and eigenvectors; NaN for a matrix that is not finite.

    The derivative is finite where eigenvalues are equal.
    """
    finite = jnp.isfinite(symmetric_DD).all()  # on a TPU, eigh would not end
    decompose = make_sequential(lambda x_DD: tuple(jnp.linalg.eigh(x_DD, symmetrize_input=False)))
    value_D, vector_DD = decompose(jnp.where(finite, symmetric_DD, 0.0))
    return jnp.where(finite, value_D, jnp.nan), jnp.where(finite, vector_DD, jnp.nan)


@eigh.defjvp
def _eigh_jvp(primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
    value_D, vector_DD = eigh(*primals)
    change_DD = jnp.linalg.multi_dot(
        (vector_DD.T, tangents[0], vector_DD), precision=Precision.HIGHEST
    )
    return (value_D, vector_DD), _changes(value_D, vector_DD, change_DD)


def _changes(
    value_D: Float[Array, " D"], vector_ED: Float[Array, "E D"], change_DD: Float[Array, "D D"]
) -> tuple[Float[Array, " D"], Float[Array, "E D"]]:
    """Compute d lambda_e = S_ee and dV = V F, S = V^T dC V, F_ef = S_ef/(lambda_f - lambda_e) or 0."""
    gap_DD = value_D[None] - value_D[:, None]
    turn_DD = jnp.where(gap_DD == 0, 0.0, change_DD / jnp.where(gap_DD == 0, 1.0, gap_DD))
    return jnp.diagonal(change_DD), product(vector_ED, turn_DD)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def eigen(x_QE: Float[Array, "Q E"], coordinates: bool = False) -> Axes:
    """Decompose x^T x, with the `coordinates` x v where they are requested.

    One decomposition leaves an error of 3e-7 of the largest eigenvalue. Where smaller ones are at
    stake, the coordinates x v still have all their digits, and their product is decomposed once
    more. Their coupling to the large ones is of second order, and is left out.
    """
    value_E, vector_EE = eigh(product(x_QE.T, x_QE))
    value_E, vector_EE = value_E[::-1], vector_EE[:, ::-1]

    def refine(
        x_QE: Array, value_E: Array, vector_EE: Array
    ) -> tuple[Float[Array, " E"], Float[Array, "E E"]]:
        small_E = value_E < GRADED * value_E[0]
        coordinate_QE = product(x_QE, vector_EE)
        gram_EE = product(coordinate_QE.T, coordinate_QE)
        square_E = jnp.diagonal(gram_EE)
        # keeps the large eigenvalues out of the rotation
        last_E = jnp.where(small_E, 0.0, -jnp.where(small_E, square_E, 0.0).max())
        small_EE = jnp.where(small_E[:, None] & small_E[None], gram_EE, 0.0) + jnp.diag(last_E)
        small_value_E, turn_EE = eigh(small_EE)
        behind_large = (~small_E).sum()
        small_value_E = jnp.roll(small_value_E[::-1], behind_large)
        rotated_EE = jnp.roll(product(vector_EE, turn_EE[:, ::-1]), behind_large, axis=1)
        refined_E = jnp.where(small_E, small_value_E, square_E)
        return jnp.maximum(refined_E, 0.0), jnp.where(small_E[None], rotated_EE, vector_EE)

    needed = value_E[-1] < GRADED * value_E[0]
    value_E, vector_EE = fall_back(needed, refine, lambda _, *axes: axes, x_QE, value_E, vector_EE)
    return Axes(value_E, vector_EE, product(x_QE, vector_EE) if coordinates else x_QE[:, :0])


@eigen.defjvp
def _eigen_jvp(coordinates: bool, primals: tuple, tangents: tuple) -> tuple[Axes, Axes]:
    (x_QE,), (dx_QE,), axes = primals, tangents, eigen(*primals, coordinates)
    half_EE = product(product(x_QE, axes.vector_EE).T, product(dx_QE, axes.vector_EE))
    value_E, vector_EE = _changes(axes.value_E, axes.vector_EE, half_EE + half_EE.T)
    moved_QE = axes.coordinate_QE
    if coordinates:
        moved_QE = product(dx_QE, axes.vector_EE) + product(x_QE, vector_EE)
    return axes, Axes(value_E, vector_EE, moved_QE)


def drop_unresolved(value_E: Float[Array, " E"]) -> Float[Array, " E"]:
    """Set eigenvalues below RESOLUTION of the largest to 0."""
    return jnp.where(value_E < RESOLUTION * value_E.max(), 0.0, value_E)


def top_direction(square_DD: Float[Array, "D D"]) -> tuple[Scalar, Float[Array, " D"]]:
    """Find the largest eigenvalue, as a share of the trace, and its eigenvector.

    Block power iteration, in at most a third of the time that all eigenvectors take, runs until the
    residual is below FINE of the eigenvalue. If it is above ROUGH after ROUNDS, all are computed.
    """
    scaled_DD = square_DD / jnp.trace(square_DD)

    def closer(state: tuple[Array, ...]) -> tuple[Array, ...]:
        count, basis_DX, *_ = state
        for _ in range(POWERS):
            basis_DX = product(scaled_DD, basis_DX)
        basis_DX = jnp.linalg.qr(basis_DX)[0]
        image_DX = product(scaled_DD, basis_DX)
        value_X, vector_XX = eigh(product(basis_DX.T, image_DX))
        share, top_X = value_X[-1], vector_XX[:, -1]
        direction_D = product(basis_DX, top_X)
        left = jnp.linalg.norm(product(image_DX, top_X) - share * direction_D) / share
        return count + 1, basis_DX, share, direction_D, left

    def decompose(scaled_DD: Array, *_: Array) -> tuple[Array, Array]:
        value_D, vector_DD = eigh(scaled_DD)
        return value_D[-1], vector_DD[:, -1]

    width = len(square_DD)
    start_DX = jax.random.normal(jax.random.key(0), (width, min(DIRECTIONS_AT_ONCE, width)))
    state = jnp.zeros((), jnp.int32), start_DX, jnp.zeros(()), start_DX[:, 0], jnp.inf
    *_, share, direction_D, left = jax.lax.while_loop(
        lambda state: (state[0] < ROUNDS) & (state[-1] > FINE), closer, state
    )
    return fall_back(left > ROUGH, decompose, lambda _, *top: top, scaled_DD, share, direction_D)
