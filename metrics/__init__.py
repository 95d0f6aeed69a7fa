"""Formulas of clouds, the quantities that are measured with them, and metrics as users call them.

>>> import anisoscope, numpy as np
>>> x = np.random.default_rng(0).standard_normal((1000, 4)) * [3, 1, 1, 1]
>>> print(f"{anisoscope.metrics.anisotropy(x):.2f} {anisoscope.metrics.levina_bickel(x, k=10):.1f}")
0.74 4.0
>>> print(f"{anisoscope.metrics.cka(x, 3 * x[:, ::-1] + 1):.2f}")
1.00

Every metric takes a matrix of NumPy, JAX, PyTorch, pandas or xarray, or two of the same points in
the same order. It computes in float32 (also with `jax_enable_x64`), and returns a JAX scalar. Under
`jax.jit`, `jax.vmap` and `jax.grad` it behaves as JAX functions do. Derivatives are NaN for
`linearity`, `rsa` and `procrustes` where singular values are equal, for `curvature` where the path
stands still or goes straight on, and for `ph_dimension`. `anisoscope.measure` adds intervals and
null models.

All raise a one-line ValueError for what `anisoscope.measure` refuses (masked or missing numbers,
types that are not real numbers, differences that float32 would lose) and for fewer than two points.
Frames are paired by their labels. A traced array cannot raise: its value is NaN.

The module of a family holds formulas of one cloud or a small struct, un-jitted; the metrics,
jitted; the entries of the quantities; and the function that measures them. What families share has
modules of its own. No model, no step, no file.
"""

from anisoscope.metrics.alignment import procrustes, rsa
from anisoscope.metrics.comparison import cka, cka_unbiased, neighbor_overlap
from anisoscope.metrics.dimension import twonn, twonn_microscope, twonn_mle
from anisoscope.metrics.estimators import correlation_dimension, ph_dimension
from anisoscope.metrics.imbalance import information_imbalance
from anisoscope.metrics.linear_maps import linearity
from anisoscope.metrics.scale import gride, levina_bickel
from anisoscope.metrics.similarity import drift, mean_cosine, mean_norm, relative_drift
from anisoscope.metrics.spectrum import (
    alpha_req,
    anisotropy,
    anisotropy_uncentered,
    effective_rank,
    isoscore,
    isoscore_star,
    participation_ratio,
    participation_ratio_corrected,
    rankme,
    rankme_centered,
    stable_rank,
)
from anisoscope.metrics.windows import curvature

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
