"""The eigendecomposition of a cloud's scatter in float32, small eigenvalues included.

Here Q are the rows that are decomposed: points, or coordinates of few points.
"""

import jax
import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, Float

from anisoscope.metrics.cloud import eigh

RESOLUTION = 1e-9  # an eigenvalue below this share of the largest drowns in the rounding of float32, and is set to 0
GRADED = 3e-4  # eigenvalues below this share of the largest are decomposed again, on their own


def product(a: Float[Array, "..."], b: Float[Array, "..."]) -> Float[Array, "..."]:
    """In all digits of float32, on every device."""
    return jnp.matmul(a, b, precision=Precision.HIGHEST)


def eigen(x_QE: Float[Array, "Q E"]) -> tuple[Float[Array, " E"], Float[Array, "E E"]]:
    """Eigenvalues of x^T x, largest first, and eigenvectors as columns.

    One decomposition leaves an error of 3e-7 of the largest eigenvalue: rounding of the product, and of eigh. Where
    smaller ones are at stake, the coordinates x v of the data along their directions still have all their digits, and
    so has the product of these. What couples them to the large ones is of second order, and left out.
    """
    value_E, vector_EE = eigh(product(x_QE.T, x_QE))
    value_E, vector_EE = value_E[::-1], vector_EE[:, ::-1]

    def again() -> tuple[Float[Array, " E"], Float[Array, "E E"]]:
        small_E = value_E < GRADED * value_E[0]
        coordinate_QE = product(x_QE, vector_EE)
        gram_EE = product(coordinate_QE.T, coordinate_QE)
        square_E = jnp.diagonal(gram_EE)
        # keeps the large ones out of the turn
        last_E = jnp.where(small_E, 0.0, -jnp.where(small_E, square_E, 0.0).sum())
        small_EE = jnp.where(small_E[:, None] & small_E[None], gram_EE, 0.0) + jnp.diag(last_E)
        small_value_E, turn_EE = eigh(small_EE)
        behind_large = (~small_E).sum()
        small_value_E = jnp.roll(small_value_E[::-1], behind_large)
        turned_EE = jnp.roll(product(vector_EE, turn_EE[:, ::-1]), behind_large, axis=1)
        value_again_E = jnp.where(small_E, small_value_E, square_E)
        return jnp.maximum(value_again_E, 0.0), jnp.where(small_E[None], turned_EE, vector_EE)

    return jax.lax.cond(value_E[-1] < GRADED * value_E[0], again, lambda: (value_E, vector_EE))


def resolved(value_E: Float[Array, " E"]) -> Float[Array, " E"]:
    """Those below RESOLUTION of the largest set to 0."""
    return jnp.where(value_E < RESOLUTION * value_E.max(), 0.0, value_E)
