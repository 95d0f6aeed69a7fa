"""Pure functions of arrays: formulas, and metrics that return one number for one or two matrices.

A metric is called as `anisoscope.metrics.anisotropy(x)`. The modules hold the formulas, un-jitted:
one cloud in, a number or a small struct out. No model, no step, no file.
"""

from anisoscope.metrics.pair_scalars import (
    cka,
    cka_unbiased,
    information_imbalance,
    linearity,
    neighbor_overlap,
    procrustes,
    rsa,
)
from anisoscope.metrics.scalars import (
    alpha_req,
    anisotropy,
    anisotropy_uncentered,
    correlation_dimension,
    curvature,
    drift,
    effective_rank,
    gride,
    isoscore,
    isoscore_star,
    levina_bickel,
    mean_cosine,
    mean_norm,
    participation_ratio,
    participation_ratio_corrected,
    ph_dimension,
    rankme,
    rankme_centered,
    relative_drift,
    stable_rank,
    twonn,
    twonn_microscope,
    twonn_mle,
)

__all__ = [
    "alpha_req",
    "anisotropy",
    "anisotropy_uncentered",
    "cka",
    "cka_unbiased",
    "correlation_dimension",
    "curvature",
    "drift",
    "effective_rank",
    "gride",
    "information_imbalance",
    "isoscore",
    "isoscore_star",
    "levina_bickel",
    "linearity",
    "mean_cosine",
    "mean_norm",
    "neighbor_overlap",
    "participation_ratio",
    "participation_ratio_corrected",
    "ph_dimension",
    "procrustes",
    "rankme",
    "rankme_centered",
    "relative_drift",
    "rsa",
    "stable_rank",
    "twonn",
    "twonn_microscope",
    "twonn_mle",
]


def __dir__() -> list[str]:
    return __all__
