"""Family leading: how few vectors carry a cloud's anisotropy, first tokens or longest vectors."""

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from anisoscope.measurement.quantity import (
    AT_LEAST_1,
    AT_MOST_1,
    SHAPE_OF_LEARNING,
    Family,
    Quantity,
    Values,
    share,
)
from anisoscope.measurement.resampling import Cloud
from anisoscope.metrics import leading

SHARE_REMOVED = 100  # the longest of so many vectors is removed
LONGEST_LEFT_OUT = ("longest of each window", "longest 1 %")
BY_WITHOUT = ("layer", "without")
REMOVED = "without the longest vector of each window, or the longest 1 % of all"


LEADING_READERS = {  # each reads the cloud, membership, weights 1 or 0, and which points are valid
    "first_token_variance_share": leading.share_between,
    "first_token_variance_share_by_norm": lambda *cloud: leading.share_by_norm(*cloud[:3]),
    "longest_vectors_variance_share": leading.share_between,
}
LEADING = {
    "first_token_variance_share": share(
        "share of the scatter between the first token of each window and the rest",
        "f (1 - f) |E x_first - E x_other|^2 / tr C, f the share of first tokens; a lower bound of "
        "the anisotropy",
    ),
    "first_token_variance_share_by_norm": share(
        "that share, expected from the norms alone",
        "f r^2 / (1 + f r^2), r^2 = E |x_first|^2 / E |x_other|^2: first tokens equal, the rest "
        "about 0",
    ),
    "longest_vectors_variance_share": share(
        "share of the scatter between the longest 1 % of the vectors and the rest",
        "f (1 - f) |E x_long - E x_other|^2 / tr C, f = 1 %; a lower bound of the anisotropy",
    ),
    "first_pc_kurtosis": Quantity(
        "kurtosis of the scores on the first principal direction",
        "E (s - E s)^4 / (E (s - E s)^2)^2, s = <x, v_1>; about 1/f where a share f of the points "
        "makes v_1",
        range=AT_LEAST_1,
    ),
    "first_pc_variance_by_position": Quantity(
        "share of the variance along the first principal direction between positions of the window",
        "1 - (1 - eta^2) (n - 1) / (n - g), eta^2 = sum_t f_t (E_t s - E s)^2 / E (s - E s)^2, s = "
        "<x, v_1>, over the g positions t of n points, f_t the share of the points at t; about 0 "
        "where positions say nothing about s",
        "epsilon squared of Kelley 1935; of this direction: this project",
        range=AT_MOST_1,
    ),
    "norm_ratio": Quantity(
        "largest norm over the median norm",
        "max |x| / median |x|, the lower of two medians",
        "after Sun et al. 2024, Massive Activations in Large Language Models",
        range=AT_LEAST_1,
        resampling="",
    ),
    "anisotropy_without_longest": share(
        "anisotropy without the longest vectors",
        f"max(lambda) / sum(lambda) {REMOVED}; what is removed is long, so that this lowers it in "
        "the Gaussian null model too",
        f"{SHAPE_OF_LEARNING}; the removal: this project",
        dims=BY_WITHOUT,
    ),
}
FIRST_TOKEN_SHARES = tuple(LEADING_READERS)[:2]


def without_longest(whole: Quantity) -> Quantity:
    """Return the entry of a quantity measured without the cloud's longest vectors."""
    return dataclasses.replace(
        whole,
        dims=BY_WITHOUT,
        long_name=f"{whole.long_name}, without the longest vectors",
        formula=f"{whole.formula}, {REMOVED}",
        source=f"{whole.source}; the removal: this project",
    )


def remaining(cloud: Cloud) -> Array:
    """Mark the points that remain after each removal of LONGEST_LEFT_OUT, (2, P).

    The first removal takes the longest vector of each window, the second the longest 1 % of all.
    Where windows are unknown, the first removal leaves no point.
    """
    points, valid_P = cloud.labels.points, cloud.labels.valid_P
    long_P = leading.longest(cloud.points_PD, jnp.maximum(1, points // SHARE_REMOVED))
    number_P = jnp.arange(len(valid_P))  # of points whose windows are unknown
    if cloud.places is not None:
        number_P = jnp.where(cloud.places.window_P < 0, number_P, cloud.places.window_P)
    longest_P = leading.longest_of_each(cloud.points_PD, number_P)
    return valid_P[None] & ~jnp.stack([longest_P, long_P])


def measure_leading(cloud: Cloud) -> Values:
    """Measure a cloud; NaN where it has no first token, or where the positions are unknown."""
    cloud_PD, labels, places = cloud.points_PD, cloud.labels, cloud.places
    valid_P = labels.valid_P
    left_2P = remaining(cloud)
    first_P = jnp.zeros_like(valid_P) if places is None else (places.time_P == 0) & valid_P
    member_3P = (first_P, first_P, valid_P & ~left_2P[1])

    def read_kept(keep_P: Array) -> Values:
        return {
            name: read(cloud_PD, member_P, keep_P, valid_P)
            for (name, read), member_P in zip(LEADING_READERS.items(), member_3P, strict=True)
        }

    values = cloud.over_folds(read_kept)
    values |= {name: jnp.where(first_P.any(), values[name], jnp.nan) for name in FIRST_TOKEN_SHARES}
    left_3P = jnp.concatenate([valid_P[None], left_2P])
    time_P = None if places is None else places.time_P
    direction_3 = jax.lax.map(
        lambda left_P: leading.first_direction(cloud_PD, left_P, labels.keep_RP, time_P, valid_P),
        left_3P,
    )
    return values | {
        "first_pc_kurtosis": direction_3.kurtosis[0],
        "first_pc_variance_by_position": direction_3.between[0],
        "norm_ratio": leading.norm_ratio(cloud_PD, valid_P),
        "anisotropy_without_longest": direction_3.share[1:],
    }


FAMILIES = {
    "leading": Family(
        measure_leading,
        LEADING,
        ("gaussian", "shuffled", "untrained"),
        coordinates={"without": LONGEST_LEFT_OUT},
    )
}
