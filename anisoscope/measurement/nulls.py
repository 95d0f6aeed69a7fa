"""Null models: what a value is compared with. The one made from the cloud alone is here; sources make the others.

gaussian: a featureless cloud of the same spectrum. shuffled: the source's input in random order. untrained: the same
network and input at step 0. permuted: of what compares two clouds, the windows of one of them in another order, each
position beside the same position of another window.
"""

import jax
import jax.numpy as jnp
from jax import Array
from jax.lax import Precision

from anisoscope.metrics.cloud import centred
from anisoscope.metrics.copies import copies

PERMUTED = "permuted"
PERMUTATIONS = 1  # of whose values the mean is taken, in each batch


def gaussian(cloud_PD: Array, key: Array) -> Array:
    """A featureless cloud of the same spectrum: normal points, decorrelated, then stretched as the cloud is.

    Shapes: (P, D) -> (P, D). Its distinct points have the covariance of the cloud's distinct points exactly, not on
    average: a cloud drawn from a sample's spectrum would be sampled twice, and a normal cloud would seem to exceed its
    own null model. It has copies where the cloud has: dimensions are read off distinct points, and depend on how many
    there are. The mean of its distinct points is 0: distances do not see it.

    With x the distinct points about their mean, and n the decorrelated normal points, it is n f for a factor f with
    f^T f = x^T x: the triangular one of x, or, where the points span fewer directions than n has columns, q^T x, q a
    basis of these directions.
    """
    original_P = copies(cloud_PD).original_P
    first_P = original_P == jnp.arange(len(cloud_PD))
    distinct, columns = first_P.sum(), min(cloud_PD.shape)

    def of_distinct(x_PD: Array) -> Array:
        """Centred on the mean of the distinct points; 0 for copies."""
        kept_PD = jnp.where(first_P[:, None], x_PD, 0.0)
        return jnp.where(first_P[:, None], x_PD - kept_PD.sum(axis=0, keepdims=True) / distinct, 0.0)

    def normal(key: Array) -> Array:
        return _decorrelated(of_distinct(jax.random.normal(key, (len(cloud_PD), columns))), distinct)

    def of_few(x_PD: Array) -> Array:
        spanned_E = jnp.arange(columns) < distinct - 1  # the other columns of a basis are arbitrary
        basis_PE = normal(jax.random.fold_in(key, 1))
        return jnp.where(spanned_E[:, None], jnp.matmul(basis_PE.T, x_PD, precision=Precision.HIGHEST), 0.0)

    factor_ED = jax.lax.cond(
        distinct > columns, lambda x_PD: jnp.linalg.qr(x_PD, mode="r"), of_few, of_distinct(centred(cloud_PD))
    )
    return jnp.matmul(normal(key), factor_ED, precision=Precision.HIGHEST)[original_P]


def _decorrelated(x_PE: Array, distinct: Array) -> Array:
    """Orthonormal columns with the same span: by Cholesky's factor where that is safe, many times as fast as QR."""

    def by_cholesky(x_PE: Array) -> Array:
        factor_EE = jnp.linalg.cholesky(jnp.matmul(x_PE.T, x_PE, precision=Precision.HIGHEST))
        return jax.lax.linalg.triangular_solve(factor_EE, x_PE, lower=True, transpose_a=True)

    few = distinct < 2 * x_PE.shape[1]  # few normal points are nearly, or exactly, dependent
    return jax.lax.cond(few, lambda x_PE: jnp.linalg.qr(x_PE)[0], by_cholesky, x_PE)


def permuted_clouds(resid_NWTD: Array, picks_P: Array, key: Array, number: Array) -> Array:
    """The clouds (N, P, D) of other windows at the same positions; NaN where there is one window alone."""
    layers, windows, context, width = resid_NWTD.shape
    clouds_NPD = resid_NWTD.reshape(layers, -1, width)[:, permuted(picks_P, windows, context, key, number)]
    return clouds_NPD if windows > 1 else jnp.full_like(clouds_NPD, jnp.nan)


def permuted(picks_P: Array, windows: int, context: int, key: Array, number: Array) -> Array:
    """The same positions of other windows: each window's place is taken by another one, of the same batch.

    Shapes: P indices into the windows x context positions -> as many. The windows stand in a circle in random order,
    and each is replaced by the one 1, 2, … (`number` + 1) places on: none stays, and no two numbers agree, as long as
    there are more windows than numbers; one alone stays. Windows are whole, and a position stays the position it is.
    """
    order_W = jax.random.permutation(jax.random.fold_in(key, 1), windows)
    by_W = order_W[(jnp.arange(windows) + 1 + number % max(windows - 1, 1)) % windows]
    other_W = jnp.zeros(windows, order_W.dtype).at[order_W].set(by_W)
    return other_W[picks_P // context] * context + picks_P % context
