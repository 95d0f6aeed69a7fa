"""Pure functions of arrays: formulas, and metrics that return one number of one matrix.

A metric is called as `anisoscope.metrics.anisotropy(x)`. The modules hold the formulas, un-jitted:
one cloud in, a number or a small struct out. No model, no step, no file.
"""

from anisoscope.metrics.scalars import (
    alpha_req,
    anisotropy,
    anisotropy_uncentered,
    cka,
    cka_unbiased,
    drift,
    effective_rank,
    isoscore,
    levina_bickel,
    mean_cosine,
    mean_norm,
    neighbor_overlap,
    participation_ratio,
    participation_ratio_corrected,
    rankme,
    rankme_centered,
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
    "drift",
    "effective_rank",
    "isoscore",
    "levina_bickel",
    "mean_cosine",
    "mean_norm",
    "neighbor_overlap",
    "participation_ratio",
    "participation_ratio_corrected",
    "rankme",
    "rankme_centered",
    "twonn",
    "twonn_microscope",
    "twonn_mle",
]
