"""Null models of a cloud: a Gaussian cloud like it, and windows in another order.

gaussian: a featureless cloud of the same mean and spectrum, drawn here. permuted: of two clouds,
one with its windows in another order. shuffled: the source's input in random order. untrained: the
same network and input at step 0. Sources make the last two.

Families compute three more without a draw of points (metrics/quantity.py).
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.lax import Precision

from anisoscope.metrics.cloud import centered, only
from anisoscope.metrics.copies import copies
from anisoscope.metrics.eigen import fall_back

DRAWS = 4  # draws of a layer's Gaussian null model; their values are averaged


class Spread(NamedTuple):
    """Mean and factor of a cloud's spectrum, shared by all Gaussian draws, and its copies."""

    mean_D: Array  # of the distinct points
    factor_ED: Array  # f with f^T f = x^T x, x the distinct points about their mean
    original_P: Array  # the first of the copies of each point
    first_P: Array  # the point counts, and is the first of its copies


def factor_covariance(
    cloud_PD: Array, key: Array, valid_P: Array | None = None, original_P: Array | None = None
) -> Spread:
    """Factor the distinct points x about their mean, once for all draws.

    The factor is triangular, or where the points span too few directions q^T x, with q a basis of
    these directions drawn from the key. `valid_P` marks the points that count, which come first
    (None: all), `original_P` are the first copies, if they are known.
    """
    valid_P = jnp.ones(len(cloud_PD), bool) if valid_P is None else valid_P
    original_P = copies(cloud_PD, valid_P).original_P if original_P is None else original_P
    first_P = valid_P & (original_P == jnp.arange(len(original_P)))
    columns = min(cloud_PD.shape)

    def triangular(x_PD: Array, *_: Array) -> Array:
        return jnp.linalg.qr(x_PD, mode="r")

    def project(x_PD: Array, first_P: Array, key: Array) -> Array:
        # the other columns of a basis are arbitrary
        spanned_E = jnp.arange(columns) < first_P.sum() - 1
        basis_PE = _orthonormal(first_P, columns, key)
        projected_ED = jnp.matmul(basis_PE.T, x_PD, precision=Precision.HIGHEST)
        return jnp.where(spanned_E[:, None], projected_ED, 0.0)

    cloud_PD = only(jnp.asarray(cloud_PD, jnp.float32), valid_P)
    x_PD = _about_mean(centered(cloud_PD, valid_P), first_P)
    factor_ED = fall_back(first_P.sum() <= columns, project, triangular, x_PD, first_P, key)
    return Spread(cloud_PD[0] - x_PD[0], factor_ED, original_P, first_P)


def gaussian(factor: Spread, key: Array) -> Array:
    """Draw a featureless cloud (P, D) of the same mean and spectrum: normal points, transformed.

    Its distinct points have exactly the mean and covariance of the cloud's distinct points. If they
    had them only on average, a normal cloud would seem to exceed its own null model. It has copies
    where the cloud has. The key must not be that of the `Spread`.
    """
    normal_PE = _orthonormal(factor.first_P, len(factor.factor_ED), key)
    cloud_PD = jnp.matmul(normal_PE, factor.factor_ED, precision=Precision.HIGHEST)
    return (cloud_PD + factor.mean_D[None])[factor.original_P]


def layer_keys(key: Array, numbers: Array) -> Array:
    """Make a key for each layer, so that the layers' null models are independent."""
    return jax.vmap(functools.partial(jax.random.fold_in, key))(numbers)


def _about_mean(x_PE: Array, first_P: Array) -> Array:
    """Center the distinct points; copies become 0."""
    kept_PE = only(x_PE, first_P)
    return only(x_PE - kept_PE.sum(axis=0, keepdims=True) / first_P.sum(), first_P)


def _orthonormal(first_P: Array, columns: int, key: Array) -> Array:
    """Draw normal points for the distinct points, with mean 0 and orthonormal columns."""
    normal_PE = jax.random.normal(key, (len(first_P), columns))
    return _decorrelated(_about_mean(normal_PE, first_P), first_P.sum())


def _decorrelated(x_PE: Array, distinct: Array) -> Array:
    """Compute orthonormal columns of the same span, by Cholesky's factor where that is safe."""

    def by_cholesky(x_PE: Array) -> Array:
        factor_EE = jnp.linalg.cholesky(jnp.matmul(x_PE.T, x_PE, precision=Precision.HIGHEST))
        return jax.lax.linalg.triangular_solve(factor_EE, x_PE, lower=True, transpose_a=True)

    few = distinct < 2 * x_PE.shape[1]  # few normal points are nearly, or exactly, dependent
    return fall_back(few, lambda x_PE: jnp.linalg.qr(x_PE)[0], by_cholesky, x_PE)


def permuted(picks_P: Array, windows: int, context: int, key: Array) -> Array:
    """Index the same positions of other windows of the same batch.

    The windows are put in a circle in random order, and each is replaced by the next: none stays in
    place, unless it is the only one.
    """
    order_W = jax.random.permutation(jax.random.fold_in(key, 1), windows)
    other_W = jnp.zeros(windows, order_W.dtype).at[order_W].set(jnp.roll(order_W, -1))
    return other_W[picks_P // context] * context + picks_P % context
