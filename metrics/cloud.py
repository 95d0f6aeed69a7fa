"""Operations that cloud metrics share: centering, and reductions that propagate NaN.

A are rows of a block; X and Y are arbitrary axes.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import Precision
from jaxtyping import Array, ArrayLike, Bool, Float, Int

AnyArray = Array | np.ndarray  # what a metric takes; NumPy arrays are read in float32
Points = Float[AnyArray, "P D"]
Weights = Float[AnyArray, " P"] | None  # 1 or 0 for each point; None: all are kept
Scalar = Float[Array, ""]


def centered(
    cloud_PD: Float[AnyArray, "P D"], valid_P: Bool[AnyArray, " P"] | None = None
) -> Float[Array, "P D"]:
    """Center a cloud: x_i - mean(x), in float32; 0 for points that are not valid (None: all are).

    A constant column becomes exact zeros, though its float32 mean need not be its value; a column
    that is not finite becomes NaN. The second subtraction removes the rounding of the first mean,
    which matters when |mean| >> spread. The first mean is cut to 16 bits: a compiler may compute it
    twice, once rounded and once inside a multiply-add, unrounded.
    """
    cloud_PD = jnp.asarray(cloud_PD, jnp.float32)
    if valid_P is None:
        first_D, equal_PD, count = cloud_PD[0], cloud_PD == cloud_PD[:1], len(cloud_PD)
    else:
        cloud_PD = only(cloud_PD, valid_P)
        first_D, count = cloud_PD[jnp.argmax(valid_P)], valid_P.sum()
        equal_PD = (cloud_PD == first_D[None]) | ~valid_P[:, None]
    constant_D = equal_PD.all(axis=0) & jnp.isfinite(first_D)
    mean_1D = cloud_PD.sum(axis=0, keepdims=True) / count
    mean_1D = jax.lax.reduce_precision(mean_1D, exponent_bits=8, mantissa_bits=16)
    once_PD = only(cloud_PD - mean_1D, valid_P)
    twice_PD = only(once_PD - once_PD.sum(axis=0, keepdims=True) / count, valid_P)
    return jnp.where(constant_D[None], 0.0, twice_PD)


def only(x_P: Float[Array, "P ..."], valid_P: Bool[AnyArray, " P"] | None) -> Float[Array, "P ..."]:
    """Replace points that are not valid by 0, whatever they hold; None: all are valid."""
    if valid_P is None:
        return x_P
    return jnp.where(jnp.reshape(valid_P, (-1, *[1] * (x_P.ndim - 1))), x_P, 0.0)


def scale_to_unit(cloud_PD: Float[AnyArray, "P D"]) -> Float[Array, "P D"]:
    """Scale by the power of two that brings the largest coordinate between 1/2 and 1.

    No digits are lost. A cloud of zeros, or one that is not finite, stays as it is.
    """
    cloud_PD = jnp.asarray(cloud_PD, jnp.float32)
    return jnp.ldexp(cloud_PD, -jnp.frexp(jnp.abs(cloud_PD).max())[1])


def nan_unless(finite: Float[AnyArray, "..."], values: ArrayLike) -> Float[Array, "..."]:
    """Return the values; NaN where the other array is NaN or infinite."""
    return jnp.where(jnp.isfinite(finite), values, jnp.nan)


def product(a: Float[AnyArray, "..."], b: Float[AnyArray, "..."]) -> Float[Array, "..."]:
    """Multiply matrices in all digits of float32, on every device."""
    return jnp.matmul(a, b, precision=Precision.HIGHEST)


def small_gram(x_PD: Float[Array, "P D"]) -> Float[Array, "E E"]:
    """Compute x^T x or x x^T, whichever is smaller: both have the same eigenvalues above 0."""
    tall = x_PD.shape[0] >= x_PD.shape[1]
    return product(x_PD.T, x_PD) if tall else product(x_PD, x_PD.T)


def largest(x: Float[Array, "*X Y"]) -> Float[Array, "*X"]:
    """Find the largest along the last axis; NaN where one is NaN, which a CPU's max may miss."""
    return jnp.where(jnp.isnan(x).any(axis=-1), jnp.nan, x.max(axis=-1))


def root(square: Float[Array, "*X"]) -> Float[Array, "*X"]:
    """Compute the square root, with derivative 0 at 0 instead of an infinite one."""
    return jnp.where(square == 0, 0.0, jnp.sqrt(jnp.where(square == 0, 1.0, square)))


def norms(x: Float[Array, "*X D"]) -> Float[Array, "*X"]:
    """Euclidean norms along the last axis; the derivative at 0 is 0."""
    return root(jnp.square(x).sum(axis=-1))


def entropy(share_E: Float[Array, "*X E"]) -> Float[Array, "*X"]:
    """-sum p ln p of shares along the last axis, in nats, with 0 ln 0 = 0; NaN where one is NaN."""
    log_E = jnp.log(jnp.where(share_E == 0, 1.0, share_E))
    return -jnp.where(share_E == 0, 0.0, share_E * log_E).sum(axis=-1)


def fold_weights(folds: int) -> Float[Array, "R J"]:
    """Mark the kept folds, 1 or 0: all folds, then all but each in turn; a single fold is kept."""
    everything_1J = jnp.ones((1, folds))
    return everything_1J if folds == 1 else jnp.concatenate([everything_1J, 1.0 - jnp.eye(folds)])


def point_weights(folds: int, points: int) -> Float[Array, "R P"]:
    """Mark the kept points, 1 or 0: all points, then all but each fold in turn."""
    return jnp.repeat(fold_weights(folds), points // folds, axis=1)


def fold_members(keep_RP: Float[AnyArray, "R P"]) -> Float[Array, "J P"]:
    """Mark the points of each fold, 1 or 0: those of all points that a resample leaves out."""
    return keep_RP if len(keep_RP) == 1 else keep_RP[:1] - keep_RP[1:]


def map_blocks(
    work: Callable[[Array], Any], rows: int, block: int, count: Int[Array, ""] | None = None
) -> Any:
    """Apply `work` to indices of `block` rows at a time; blocks past `count` rows are left at 0.

    The results of `work` have a row for each index. The last block ends with repeated rows.
    """
    turns = -(-rows // block)
    shapes = jax.eval_shape(work, jax.ShapeDtypeStruct((block,), jnp.int32))
    empty = jax.tree.map(lambda x: jnp.zeros((turns * block, *x.shape[1:]), x.dtype), shapes)

    def turn(number: Array, found: Any) -> Any:
        start = number * block
        block_A = work(jnp.minimum(start + jnp.arange(block), rows - 1))
        return jax.tree.map(
            lambda x_P, x_A: jax.lax.dynamic_update_slice_in_dim(x_P, x_A, start, 0), found, block_A
        )

    turns = turns if count is None else (count + block - 1) // block
    return jax.tree.map(lambda x: x[:rows], jax.lax.fori_loop(0, turns, turn, empty))
