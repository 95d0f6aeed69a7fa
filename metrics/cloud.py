"""Operations that cloud metrics share: centering, and reductions that propagate NaN.

X and Y are arbitrary axes.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import Precision
from jaxtyping import Array, Float

AnyArray = Array | np.ndarray  # what a metric takes; NumPy arrays are read in float32
Points = Float[AnyArray, "P D"]
Weights = Float[AnyArray, " P"] | None  # 1 or 0 for each point; None: all are kept
Scalar = Float[Array, ""]


def centered(cloud_PD: Float[AnyArray, "P D"]) -> Float[Array, "P D"]:
    """Center a cloud: x_i - mean(x), in float32.

    A constant column becomes exact zeros, though its float32 mean need not be its value; a column
    that is not finite becomes NaN. The second subtraction removes the rounding of the first mean,
    which matters when |mean| >> spread. The first mean is cut to 16 bits: a compiler may compute it
    twice, once rounded and once inside a multiply-add, unrounded.
    """
    cloud_PD = jnp.asarray(cloud_PD, jnp.float32)
    constant_D = (cloud_PD == cloud_PD[:1]).all(axis=0) & jnp.isfinite(cloud_PD[0])
    mean_1D = cloud_PD.mean(axis=0, keepdims=True)
    once_PD = cloud_PD - jax.lax.reduce_precision(mean_1D, exponent_bits=8, mantissa_bits=16)
    twice_PD = once_PD - once_PD.mean(axis=0, keepdims=True)
    return jnp.where(constant_D[None], 0.0, twice_PD)


def scale_to_unit(cloud_PD: Float[AnyArray, "P D"]) -> Float[Array, "P D"]:
    """Scale by the power of two that brings the largest coordinate between 1/2 and 1.

    No digits are lost. A cloud of zeros, or one that is not finite, stays as it is.
    """
    cloud_PD = jnp.asarray(cloud_PD, jnp.float32)
    return jnp.ldexp(cloud_PD, -jnp.frexp(jnp.abs(cloud_PD).max())[1])


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
