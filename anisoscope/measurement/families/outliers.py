"""Family outliers: coordinates that carry far more than their share, and the spectrum without them."""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
from jax import Array

from anisoscope.measurement.families import spectrum
from anisoscope.measurement.quantity import HERE, LAYER, ONE_OR_MORE, SHARE, Family, Quantity, Values
from anisoscope.measurement.resamples import Cloud, over_folds
from anisoscope.metrics import outliers
from anisoscope.metrics.cloud import largest
from anisoscope.metrics.lapack import LARGE

MASSIVE = "after Sun et al. 2024, Massive Activations in Large Language Models; the median of each position"
BY_TOP = ("layer", "top")


def _outlier(
    long_name: str,
    formula: str,
    source: str,
    read: Callable[[Array, Array], Array] | None = None,
    dims: tuple[str, ...] = LAYER,
    resampling: str = "jackknife",
    range: tuple[float, float] = ONE_OR_MORE,
) -> Quantity:
    """`read` takes the cloud and weights 1 or 0 of its points."""
    about = {"long_name": long_name, "formula": formula, "source": source, "range": range}
    return Quantity(read=read, dims=dims, resampling=resampling, **about)


LEFT_OUT = {  # the spectral quantity -> the same of the cloud without its top coordinates
    name: (
        f"{name}_left_out",
        dataclasses.replace(
            quantity,
            read=None,
            dims=BY_TOP,
            long_name=f"{quantity.long_name}, top coordinates left out",
            formula=f"{quantity.formula}, of the cloud without its `top` coordinates of largest variance",
        ),
    )
    for name, quantity in spectrum.QUANTITIES.items()
}
QUANTITIES = {
    "coordinate_share": _outlier(
        "variance in the top coordinates",
        "share of the total variance in the `top` coordinates of largest variance",
        HERE,
        outliers.coordinate_share,
        BY_TOP,
        range=SHARE,
    ),
    "coordinate_kurtosis": _outlier(
        "kurtosis across coordinates",
        "D sum_j v_j^2 / (sum_j v_j)^2, v_j the variance of coordinate j",
        "after He et al. 2024",
        outliers.coordinate_kurtosis,
    ),
    "activation_kurtosis": _outlier(
        "kurtosis of the activations",
        "mean over coordinates of the kurtosis over points",
        HERE,
        outliers.activation_kurtosis,
    ),
    "coordinate_peak": _outlier(
        "peak of a vector's coordinates",
        "mean over points i of max_j |x_ij| / median_j |x_ij|, of two medians the lower",
        MASSIVE,
    ),
    "massive_activation": _outlier(
        "most massive activation",
        "largest over points i of max_j |x_ij| / median_j |x_ij|, of two medians the lower",
        MASSIVE,
        resampling="",
    ),
    **dict(LEFT_OUT.values()),
}
OF_COORDINATES = {name: quantity.read for name, quantity in QUANTITIES.items() if quantity.read}


def measure(cloud: Cloud) -> Values:
    """Also the spectral quantities without the top coordinates; NaN where no coordinate would be left."""
    cloud_PD, folds = cloud.points_PD, cloud.folds
    points, width = cloud_PD.shape
    peak_P = outliers.coordinate_peaks(cloud_PD)

    def of_kept(keep_P: Array) -> Values:
        found = {name: read(cloud_PD, keep_P) for name, read in OF_COORDINATES.items()}
        return found | {"coordinate_peak": (keep_P * peak_P).sum() / keep_P.sum()}

    values = over_folds(of_kept, folds, points)
    values["coordinate_share"] = values["coordinate_share"].T
    values["massive_activation"] = largest(peak_P)
    without = []
    for top in outliers.TOPS:
        if top >= width:
            without.append(dict.fromkeys(LEFT_OUT, jnp.full(len(values["coordinate_peak"]), jnp.nan)))
            continue
        if without and min(points, width) >= LARGE:  # one after another: each takes all cores
            cloud_PD = jnp.where(without[-1]["anisotropy"][0] > 1.5, 0.0, cloud_PD)  # which never holds
        without.append(spectrum.readings(outliers.without_top(cloud_PD, top), folds))
    return values | {own: jnp.stack([one[name] for one in without]) for name, (own, _) in LEFT_OUT.items()}


FAMILY = Family(of="cloud", measure=measure, quantities=QUANTITIES, coordinates={"top": outliers.TOPS})
