"""What every cloud metric does first: cast to float32 and move the origin to the mean."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def centred(cloud_PD: Float[Array, "P D"]) -> Float[Array, "P D"]:
    """x_i - mean(x), in float32. A column that does not vary comes out as exact zeros, one that is not finite as NaN.

    The second subtraction removes the rounding of the first mean, which matters when |mean| >> spread; a constant
    column needs its own rule because the float32 mean of equal numbers need not be that number.
    """
    cloud_PD = cloud_PD.astype(jnp.float32)
    constant_D = (cloud_PD == cloud_PD[:1]).all(axis=0) & jnp.isfinite(cloud_PD[0])
    once_PD = cloud_PD - cloud_PD.mean(axis=0, keepdims=True)
    twice_PD = once_PD - once_PD.mean(axis=0, keepdims=True)
    return jnp.where(constant_D[None], 0.0, twice_PD)
