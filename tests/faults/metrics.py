"""Faults in the formulas."""

from tests.faults.entry import Fault

FAULTS = [
    Fault(
        "both axes of a mean swapped in the drift",
        "metrics/similarity.py",
        "return jnp.linalg.norm(mean_vector(cloud_PD, keep_P))",
        "return jnp.linalg.norm(mean_vector(cloud_PD.T))",
    ),
    Fault(
        "a point is a pair with itself",
        "metrics/similarity.py",
        "pairs = jnp.square(_sum(weight_P, unit_PD)).sum() - _sum(weight_P, jnp.square(unit_PD).sum(axis=1))",
        "pairs = jnp.square(_sum(weight_P, unit_PD)).sum()",
    ),
    Fault(
        "weights of points are dropped",
        "metrics/similarity.py",
        "return jnp.ones(cloud_PD.shape[0]) if keep_P is None else keep_P",
        "return jnp.ones(cloud_PD.shape[0])",
    ),
    Fault(
        "products of similarities in the default precision",
        "metrics/similarity.py",
        "return jnp.matmul(weight_P, x_P, precision=Precision.HIGHEST)",
        "return jnp.matmul(weight_P, x_P)",
        ("tests/metrics/test_precision.py",),
    ),
    Fault(
        "the cloud is not centred before CKA",
        "metrics/comparison.py",
        "    x_PD = centred(x_PD)\n    return x_PD / jnp.abs(x_PD).max()",
        "    return x_PD / jnp.abs(x_PD).max()",
    ),
    Fault(
        "copies are neighbours in the overlap",
        "metrics/comparison.py",
        "usable_P = a.first_P & b.first_P",
        "usable_P = a.first_P | b.first_P",
    ),
    Fault(
        "copies are neighbours",
        "metrics/neighbours.py",
        "ranked_P = jnp.where(first_P, square_P, jnp.inf)",
        "ranked_P = square_P",
    ),
    Fault(
        "unsure neighbours are believed",
        "metrics/neighbours.py",
        "<= jnp.square(distance_PC[:, -1]))",
        "< -1.0)",
    ),
    Fault(
        "GRIDE reads one rank too near",
        "metrics/scale.py",
        "jnp.take(neighbours.distance_PC, rank - 1, axis=1",
        "jnp.take(neighbours.distance_PC, rank - 2, axis=1",
    ),
    Fault("doublings for natural logarithms", "metrics/scale.py", "log_PC = jnp.log1p(", "log_PC = 1.5 * jnp.log1p("),
    Fault(
        "a masked key enters the smallest weight",
        "metrics/attention.py",
        "least_BT = jnp.where(visible_BTT, e_BTT, jnp.inf).min(axis=2)",
        "least_BT = e_BTT.min(axis=2)",
    ),
    Fault(
        "scores are not scaled",
        "metrics/attention.py",
        "q_BTK = q_BTK * q_BTK.shape[-1] ** -0.5",
        "q_BTK = q_BTK",
    ),
    Fault(
        "the variance of a coordinate about zero",
        "metrics/outliers.py",
        "variance_D = jnp.maximum(second_D - jnp.square(mean_D), 0.0)",
        "variance_D = second_D",
    ),
    Fault(
        "the largest coordinates are kept and the smallest left out",
        "metrics/outliers.py",
        "jnp.argsort(-jnp.square(centred(cloud_PD)).sum(axis=0))",
        "jnp.argsort(jnp.square(centred(cloud_PD)).sum(axis=0))",
    ),
    Fault(
        "a NaN is passed over",
        "metrics/cloud.py",
        "return jnp.where(jnp.isnan(x).any(axis=-1), jnp.nan, x.max(axis=-1))",
        "return jnp.nanmax(x, axis=-1)",
        ("tests/metrics/test_outliers.py",),
    ),
    Fault(
        "a fused multiply-add comes between two subtractions of the mean",
        "metrics/cloud.py",
        "jax.lax.reduce_precision(mean_1D, exponent_bits=8, mantissa_bits=16)",
        "mean_1D",
        ("tests/metrics/test_spectrum.py",),
    ),
    Fault(
        "neighbours are ordered by the low bits of their distances",
        "metrics/neighbours.py",
        "order(taken(bits_PC, by_low_PC) >> (32 - own) << own)",
        "order(taken(bits_PC, by_low_PC) << own)",
    ),
    Fault(
        "three distinct points have a dimension in the tables",
        "metrics/dimension.py",
        "return usable_P.sum() >= min(LEAST, usable_P.size / 2)",
        "return usable_P.sum() >= 3",
        ("tests/panel/test_dimension.py",),
    ),
    Fault(
        "the share between members and the rest weighs one side alone",
        "metrics/leading.py",
        "between = share_2[0] * share_2[1] *",
        "between = share_2[1] *",
    ),
    Fault(
        "without the longest means without the others",
        "metrics/leading.py",
        "norm_P = jnp.linalg.norm(jnp.asarray(cloud_PD, jnp.float32), axis=1)\n    window_P, points",
        "norm_P = -jnp.linalg.norm(jnp.asarray(cloud_PD, jnp.float32), axis=1)\n    window_P, points",
    ),
    Fault(
        "the first direction of what is left has the mean of all",
        "metrics/leading.py",
        "x_PD = jnp.where(left_P[:, None], x_PD - mean_D[None], 0.0)",
        "x_PD = jnp.where(left_P[:, None], x_PD, 0.0)",
    ),
    Fault(
        "a bias is added twice",
        "metrics/attention.py",
        "e_BTT = e_BTT + jnp.where(visible_TT, jnp.asarray(bias_TT, jnp.float32), 0.0)[None]",
        "e_BTT = e_BTT + 2 * jnp.where(visible_TT, jnp.asarray(bias_TT, jnp.float32), 0.0)[None]",
        ("tests/sources/test_arrays.py",),
    ),
]
