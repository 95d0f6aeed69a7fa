"""The largest eigenvalue of a symmetric matrix alone, with a certificate in place of a
decomposition.

Here E is the width of the matrix, K are directions that are sought, S counts of them.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from anisoscope.metrics.cloud import eigh
from anisoscope.metrics.eigen import product

WIDE = 512  # narrower matrices are decomposed as fast
DIRECTIONS, MOST = 8, 32  # sought at once, and products with the matrix at most
ERROR = 1e-7  # share of the eigenvalue by which it may be too small
# share of the eigenvalue below which all must be known to lie that is orthogonal to the first s
APART = 0.99
TINY = 1e-20


class State(NamedTuple):
    q_EK: Float[Array, "E K"]
    products: Int[Array, ""]
    value: Float[Array, ""]
    known: Bool[Array, ""]


@jax.custom_jvp
def top_eigenvalue(square_EE: Float[Array, "E E"]) -> Float[Array, ""]:
    """The largest eigenvalue of a symmetric matrix without negative ones; NaN where an entry is not
    finite.

    Subspace iteration until a bound says that, but for rounding, theta_1, the largest Ritz value,
    is less than ERROR of itself too small. With the first s Ritz values theta_i, r_i = |A q_i -
    theta_i q_i| and rho^2 = r_1^2 + … + r_s^2, what is orthogonal to these q has no eigenvalue
    above beta = (|A|_F^2 - sum theta_i^2 - 2 rho^2)^(1/2), and where beta < theta_1 no eigenvalue
    of A is above theta_1 + rho^2/(theta_1 - beta). Where no s gives such a bound, as of spectra
    without a leading direction, or where squares vanish in float32 (|A|_F^2 < TINY), the matrix is
    decomposed. So it is wherever there is a derivative. Under vmap matrices go one after another: a
    batch would decompose them all.
    """
    return _decomposed(square_EE) if len(square_EE) < WIDE else _one_by_one(square_EE)


def _bounded(square_EE: Float[Array, "E E"]) -> Float[Array, ""]:
    kind = square_EE.dtype
    start_EK = jnp.linalg.qr(
        jax.random.normal(jax.random.key(0), (len(square_EE), DIRECTIONS), kind)
    )[0]
    start = State(start_EK, jnp.zeros((), jnp.int32), jnp.zeros((), kind), jnp.zeros((), bool))
    norm = jnp.square(square_EE).sum()
    last = jax.lax.while_loop(
        lambda state: ~state.known & (state.products < MOST),
        lambda state: _closer(square_EE, norm, state),
        start,
    )
    return jax.lax.cond(last.known, lambda: last.value, lambda: _decomposed(square_EE))


_one_by_one = jax.custom_batching.sequential_vmap(_bounded)


@top_eigenvalue.defjvp
def _along(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return jax.jvp(_decomposed, primals, tangents)


def _decomposed(square_EE: Float[Array, "E E"]) -> Float[Array, ""]:
    return eigh(square_EE)[0][-1]


def _closer(square_EE: Float[Array, "E E"], norm: Float[Array, ""], state: State) -> State:
    image_EK = product(square_EE, state.q_EK)
    ascending_K, turn_KK = eigh(product(state.q_EK.T, image_EK))
    theta_K, turn_KK = ascending_K[::-1], turn_KK[:, ::-1]
    q_EK, image_EK = product(state.q_EK, turn_KK), product(image_EK, turn_KK)
    rho_S = jnp.square(image_EK - q_EK * theta_K[None]).sum(axis=0).cumsum()
    beta_S = jnp.sqrt(jnp.maximum(norm - jnp.square(theta_K).cumsum() - 2.0 * rho_S, 0.0))
    gap_S = theta_K[0] - beta_S
    known = (norm > TINY) & (
        (beta_S < APART * theta_K[0]) & (rho_S <= ERROR * theta_K[0] * gap_S)
    ).any()
    return State(jnp.linalg.qr(image_EK)[0], state.products + 1, theta_K[0], known)
