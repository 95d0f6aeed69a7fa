"""What is measured of untrained blocks, and what is read off it: names, units, formulas, sources."""

from typing import Any

from anisoscope.measurement.quantity import COSINE, HERE, INHERENT, NOT_NEGATIVE, RECONSTRUCTED, SHARE, Quantity


def _quantity(
    long_name: str, units: str, formula: str, source: str, dims: tuple[str, ...] = ("block",), **further: Any
) -> Quantity:
    about = {"long_name": long_name, "units": units, "formula": formula, "source": source, "range": NOT_NEGATIVE}
    return Quantity(**about | further, dims=dims)


# x: rows of the table; b: the common bias; T: all blocks so far; s_ij = <q_i, k_j>/sqrt(K); p = softmax_j s
MEASURED = {
    "cosine_in": _quantity("mean cosine in", "1", "mean cosine of pairs of x + b", INHERENT, dims=(), range=COSINE),
    "cosine_out": _quantity(
        "mean cosine out", "1", "mean cosine of pairs of T(x + b), T all blocks so far", INHERENT, range=COSINE
    ),
    "norm_in": _quantity("mean norm in", "activation", "E |x + b|", INHERENT, dims=(), symbol="E |x + b|"),
    "norm_out": _quantity(
        "mean norm out", "activation", "E |T(x + b)|, T all blocks so far", INHERENT, symbol="E |T(x + b)|"
    ),
    "score_std": _quantity(
        "deviation of all scores", "1", "standard deviation of <q_i, k_j>/sqrt(K), all heads together", INHERENT
    ),
    "score_std_head": _quantity("deviation of scores within heads", "1", "sqrt(mean over heads of var s_ij)", HERE),
    "score_std_within": _quantity(
        "deviation of scores within rows", "1", "sqrt(mean over heads and rows of var_j s_ij)", HERE
    ),
    "attention_entropy": _quantity(
        "attention entropy", "nat", "mean of -sum_j p_ij ln p_ij, p = softmax_j s", INHERENT
    ),
    "attention_max": _quantity(
        "largest attention", "1", "mean over heads and rows of max_j p_ij", INHERENT, range=SHARE
    ),
    "attention_min": _quantity(
        "smallest attention", "1", "mean over heads and rows of min_j p_ij", INHERENT, range=SHARE
    ),
}

FIXED = "E |x + b| where E |T(x + b)| crosses it, interpolated in log N, T all blocks so far; NaN: they do not cross"
FIXED_POINTS = {  # of the curve over the norms N of the bias
    "fixed_point": _quantity("fixed point of the norm", "activation", FIXED, RECONSTRUCTED),
    "fixed_point_bias": _quantity(
        "norm of the bias at the fixed point", "activation", "N at fixed_point", RECONSTRUCTED
    ),
}

QUANTITIES = MEASURED | FIXED_POINTS
