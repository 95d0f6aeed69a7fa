"""What is measured of untrained blocks, and what is read off it: names, units, formulas, sources."""

import functools

from anisoscope.measurement.quantity import COSINE, HERE, INHERENT, NOT_NEGATIVE, RECONSTRUCTED, SHARE, Quantity

_quantity = functools.partial(Quantity, range=NOT_NEGATIVE, dims=("block",))

# x: rows of the table; b: the common bias; T: all blocks so far; s_ij = <q_i, k_j>/sqrt(K); p = softmax_j s
MEASURED = {
    "cosine_in": _quantity("mean cosine in", "mean cosine of pairs of x + b", INHERENT, dims=(), range=COSINE),
    "cosine_out": _quantity(
        "mean cosine out", "mean cosine of pairs of T(x + b), T all blocks so far", INHERENT, range=COSINE
    ),
    "norm_in": _quantity("mean norm in", "E |x + b|", INHERENT, units="activation", dims=(), symbol="E |x + b|"),
    "norm_out": _quantity(
        "mean norm out", "E |T(x + b)|, T all blocks so far", INHERENT, units="activation", symbol="E |T(x + b)|"
    ),
    "score_std": _quantity(
        "deviation of all scores", "standard deviation of <q_i, k_j>/sqrt(K), all heads together", INHERENT
    ),
    "score_std_head": _quantity("deviation of scores within heads", "sqrt(mean over heads of var s_ij)", HERE),
    "score_std_within": _quantity(
        "deviation of scores within rows", "sqrt(mean over heads and rows of var_j s_ij)", HERE
    ),
    "attention_entropy": _quantity(
        "attention entropy", "mean of -sum_j p_ij ln p_ij, p = softmax_j s", INHERENT, units="nat"
    ),
    "attention_max": _quantity("largest attention", "mean over heads and rows of max_j p_ij", INHERENT, range=SHARE),
    "attention_min": _quantity("smallest attention", "mean over heads and rows of min_j p_ij", INHERENT, range=SHARE),
}

FIXED = "E |x + b| where E |T(x + b)| crosses it, interpolated in log N, T all blocks so far; NaN: they do not cross"
FIXED_POINTS = {  # of the curve over the norms N of the bias
    "fixed_point": _quantity("fixed point of the norm", FIXED, RECONSTRUCTED, units="activation"),
    "fixed_point_bias": _quantity(
        "norm of the bias at the fixed point", "N at fixed_point", RECONSTRUCTED, units="activation"
    ),
}

QUANTITIES = MEASURED | FIXED_POINTS
