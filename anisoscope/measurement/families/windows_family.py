"""Family windows: quantities of each window alone.

It takes several times as long as the family spectrum.
"""

import jax.numpy as jnp
from jax.lax import Precision

from anisoscope.measurement.quantity import NOT_NEGATIVE, Family, Values, jackknifed
from anisoscope.measurement.resampling import Cloud, leave_out
from anisoscope.metrics import windows

QUANTITIES = {
    "prompt_entropy": jackknifed(
        long_name="entropy of a window's spectrum",
        units="nat",
        formula="mean over windows of -sum p ln p, p = s^2 / sum(s^2), s the singular values of the n vectors of the "
        "cloud in one window, not centered; at most ln min(n, D)",
        source="Skean et al. 2025, Layer by Layer, order 1; by window as in Queipo-de-Llano et al. 2025",
        range=NOT_NEGATIVE,
    ),
}


def compute(cloud: Cloud) -> Values:
    """Average over windows, (R,); NaN where the windows of the points are unknown."""
    keep_RP = leave_out(cloud.folds, len(cloud.points_PD))
    if cloud.places is None:
        return dict.fromkeys(QUANTITIES, jnp.full(len(keep_RP), jnp.nan))
    entropy_P, first_P = windows.prompt_entropy(cloud.points_PD, cloud.places.window_P)
    weight_RP = keep_RP * first_P[None]
    mean_R = jnp.matmul(weight_RP, entropy_P, precision=Precision.HIGHEST) / weight_RP.sum(axis=1)
    return dict.fromkeys(QUANTITIES, mean_R)


FAMILY = Family(input_kind="cloud", compute=compute, quantities=QUANTITIES)
