"""How many directions a matrix has: readings of its singular values, not centred.

Here O are the rows of a matrix.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from anisoscope.metrics.cloud import AnyArray


def singular_values(matrix_OD: Float[AnyArray, "O D"]) -> Float[Array, " E"]:
    """sigma_1 >= sigma_2 >= ... >= 0 of a matrix, E = min(R, C). Units: those of its entries. NaN in: NaN out."""
    return jnp.linalg.svd(jnp.asarray(matrix_OD, jnp.float32), compute_uv=False)


def stable_rank(values_E: Float[AnyArray, " E"]) -> Float[Array, ""]:
    """|M|_F^2 / |M|_2^2 = sum sigma^2 / sigma_1^2 of singular values, largest first.

    Shapes: (E,) -> scalar. Units: directions. Range: [1, E]; E where all are equal. All zero: NaN.
    Source: Rudelson and Vershynin 2007 ("numerical rank").
    """
    square_E = jnp.square(values_E / values_E[0])
    return square_E.sum()


def effective_rank(values_E: Float[AnyArray, " E"]) -> Float[Array, ""]:
    """exp of the entropy of the shares sigma_e / sum sigma: exp(-sum p ln p).

    Shapes: (E,) -> scalar. Units: directions. Range: [1, E]; E where all are equal. All zero: NaN.
    Source: Roy and Vetterli 2007.
    """
    share_E = values_E / jnp.sum(values_E)
    return jnp.exp(
        -jnp.where(share_E > 0, share_E * jnp.log(jnp.where(share_E > 0, share_E, 1.0)), 0.0 * share_E).sum()
    )


def spectral_distance(values_E: Float[AnyArray, " E"], other_E: Float[AnyArray, " E"]) -> Float[Array, ""]:
    """Half of sum_e |p_e - q_e|, p and q the shares sigma / sum sigma of two matrices, each largest first.

    The total variation of two normalised spectra: the same for a matrix times a number, or turned. Shapes: (E,), (E,)
    -> scalar. Units: none. Range: [0, 1). All zero: NaN. Source: reconstruction, by shares of singular values.
    """
    p_E, q_E = (jnp.asarray(one_E) / jnp.sum(one_E) for one_E in (values_E, other_E))
    return jnp.abs(p_E - q_E).sum() / 2
