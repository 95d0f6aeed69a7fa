"""Family massive: the share of massive points as a function of the threshold."""

import jax.numpy as jnp
from jax import Array
from jax.lax import Precision

from anisoscope.measurement.quantity import HERE, SHARE, Family, Quantity, Values, jackknifed
from anisoscope.measurement.resampling import Cloud, leave_out
from anisoscope.metrics.leading import lower_median
from anisoscope.metrics.outliers import coordinate_peaks

RATIOS = (3, 10, 30, 100, 300, 1000, 3000)
SUN = "Sun et al. 2024, Massive Activations in Large Language Models: about 1,000 times the median there"


def _share(long_name: str, what: str, source: str) -> Quantity:
    return jackknifed(
        dims=("layer", "ratio"),
        long_name=long_name,
        formula=f"share of the points whose {what} by a factor above `ratio`",
        source=source,
        range=SHARE,
    )


QUANTITIES = {
    "massive_points": _share(
        "share of points with a massive activation",
        "largest |coordinate| exceeds the median of their own",
        f"{SUN}, of all points together",
    ),
    "long_points": _share(
        "share of long points", "norm exceeds the median norm, of two the lower,", HERE
    ),
}


def compute(cloud: Cloud) -> Values:
    """Measure a cloud, (ratio, R); NaN where it is not finite.

    Norms are compared with the median norm of the whole cloud.
    """
    keep_RP = leave_out(cloud.folds, len(cloud.points_PD))
    norm_P = jnp.linalg.norm(jnp.asarray(cloud.points_PD, jnp.float32), axis=1)

    def share(ratio_P: Array) -> Array:
        # the sum makes the share NaN where a norm is NaN
        above = (ratio_P[None] > jnp.array(RATIOS, jnp.float32)[:, None]) + 0.0 * norm_P.sum()
        return jnp.matmul(above, keep_RP.T, precision=Precision.HIGHEST) / keep_RP.sum(axis=1)[None]

    return {
        "massive_points": share(coordinate_peaks(cloud.points_PD)),
        "long_points": share(norm_P / lower_median(norm_P)),
    }


FAMILY = Family(
    input_kind="cloud", compute=compute, quantities=QUANTITIES, coordinates={"ratio": RATIOS}
)
