"""Define every quantity of the stage `tangents`: what it is, its source and its dimensions."""

import math
from functools import partial

import numpy as np

from anisoscope.data.unigrams import BINS
from anisoscope.measurement.quantity import HERE, NOT_NEGATIVE, SHARE, Quantity

PAPER = "reconstruction after Bernas et al. 2026, Revisiting Anisotropy in Language Transformers"
SINKS = "after gradient sinks, arXiv 2603.17771 (second-hand)"
GRADIENT = "gradient_"  # prefix of panel quantities that are measured on gradients
KINDS = ("semi-NMF", "PCA")
FITS = ("early", "here", "previous", "untrained", "other seed")  # what a proxy is fitted to
ROWS = ("raw", "unit")  # raw gradients, and gradients divided by their norm
MATRICES = ("embedding", "attention", "mlp", "attention_out", "mlp_out")
# the weight gradient; the update since the last checkpoint; the update of a single step
WEIGHT_CHANGES = ("gradient", "between", "step")
COORDINATES = {
    "fit": list(FITS),
    "kind": list(KINDS),
    "rows": list(ROWS),
    "bin": list(BINS),
    "matrix": list(MATRICES),
    "of": list(WEIGHT_CHANGES),
}

FRAME = ("rank", "layer", "fit", "kind")
SIGNED = (-1.0, 1.0)
_frame = partial(Quantity, source=PAPER, range=SHARE, dims=(*FRAME, "rows"))
_control = partial(_frame, dims=(*FRAME, "rows", "control"))
_matrix = partial(_frame, dims=(*FRAME, "of", "matrix"))
_resampled = partial(Quantity, source=HERE, range=SHARE, resampling="jackknife")
_local = partial(_resampled, dims=("rank", "layer", "rows"))
_bin = partial(_resampled, dims=(*FRAME, "bin"))
_layer = partial(_resampled, dims=("layer",))

MEASURED = {
    "energy": _frame(
        "gradient energy in the subspace, e",
        "|G Q|^2 / |G|^2, G uncentered",
        resampling="jackknife",
    ),
    "variance": _resampled(
        "variance of the activations in the subspace, v",
        "tr(Q^T C Q) / tr C, C of the same points",
        dims=FRAME,
    ),
    "control_energy": _control(
        "gradient energy in random subspaces of the complement",
        "e of qr((I - Q Q^T) Z), Z normal",
        source=f"{PAPER}; second-hand for the number of subspaces",
    ),
    "control_ratio": _frame(
        "gradient energy over its controls, R", "e(Q) / mean e(Q_N)", range=NOT_NEGATIVE
    ),
    "control_p": _frame("p beside random subspaces", "(1 + #{e(Q_N) >= e(Q)}) / (1 + #)"),
    "isoscore_gain": _frame(
        "gain of IsoScore* without the subspace",
        "IsoScore* of G in the D - k dimensions of the complement, less that of G; centered once, no shrinkage",
        range=SIGNED,
        resampling="jackknife",
    ),
    "isoscore_gain_normal": _control(
        "gain of IsoScore* without a random subspace", "as without the subspace", range=SIGNED
    ),
    "isoscore_gain_equal_energy": _control(
        "gain of IsoScore* without a random subspace of equal energy",
        "as without the subspace; those of the same rank and e (metrics.tangent.equal_energy_frames)",
        source=HERE,
        range=SIGNED,
    ),
    "local_energy": _local(
        "gradient energy in the local tangent", "sum |Q_i^T g_i|^2 / sum |g_i|^2", source=PAPER
    ),
    "local_variance": _local(
        "variance of the activations in the local tangents",
        "mean of tr(Q_i^T C Q_i) / tr C, weights |g_i|^2 (raw) or 1 (unit)",
    ),
    "energy_in_bin": _bin(
        "gradient energy in the subspace, by frequency of the character",
        "e of the rows in the bin",
        source=PAPER,
    ),
    "variance_in_bin": _bin(
        "variance in the subspace, by frequency of the character", "v of the points in the bin"
    ),
    "norm_in_bin": _resampled(
        "gradient norm, by frequency of the character",
        "mean |g|",
        units="nats / activation",
        range=NOT_NEGATIVE,
        dims=("layer", "bin"),
    ),
    "loss_in_bin": _resampled(
        "loss, by frequency of the character",
        "mean cross-entropy",
        units="nats",
        range=NOT_NEGATIVE,
        dims=("bin",),
    ),
    "first_position_share": _layer(
        "share of the squared gradient at the first token",
        "mean |g|^2 at the first token over the sum of those of all places of the window, scored or not",
        source=SINKS,
    ),
    "first_position_norm": _layer(
        "gradient norm at the first token over that of the median place",
        "mean |g| at the first token / median over places of mean |g|",
        source=SINKS,
        range=NOT_NEGATIVE,
    ),
    "ones_share": _layer(
        "gradient energy along the vector of ones",
        "sum (g . 1)^2 / D over sum |g|^2; 0 where a norm reads it",
    ),
    "radial_share": _layer(
        "gradient energy along the state itself",
        "sum (g . u)^2 / sum |g|^2, u the state less its mean coordinate (whole, of a pretrained model whose vector of "
        "ones is kept), over its norm; 0 before a final norm",
    ),
    "matrix_energy": _matrix(
        "energy of a matrix's gradient or update in the subspace",
        "|Q^T M|^2 / |M|^2 on the input side (attention_out, mlp_out: output side), without the vector of ones where "
        "norms remove it",
        source=f"{PAPER}; the output side: this project",
    ),
    "matrix_p": _matrix("p of it beside random subspaces", "(1 + #{e(Q_N) >= e(Q)}) / (1 + #)"),
}
_between = partial(_resampled, dims=("rank", "layer", "kind", "rows"), range=(-2.0, 2.0))
DERIVED = {  # computed from other quantities, resample by resample (tangent_tables.py)
    "excess": _resampled("e − v", "energy less variance", range=SIGNED, dims=(*FRAME, "rows")),
    "excess_over_untrained": _between(
        "e − v of the early subspace, less that of the untrained network's",
        "excess(early) - excess(untrained)",
    ),
    "excess_over_other_seed": _between(
        "e − v of the early subspace, less that of another seed's",
        "excess(early) - excess(other seed)",
    ),
    "local_excess": _local(
        "e − v in the local tangents", "local_energy less local_variance", range=SIGNED
    ),
    "enrichment_in_bin": _bin(
        "tangent enrichment e / v, by frequency of the character",
        "energy_in_bin / variance_in_bin",
        range=(0.0, math.inf),
    ),
}


def variable(quantity: Quantity, values: np.ndarray, first: tuple[str, ...] = ()) -> tuple:
    """Return dimensions, values and attributes of a variable, after the dimensions `first`."""
    replicates = [quantity.resampling] if quantity.resampling else []
    return (*first, *quantity.dims, *replicates), np.asarray(values), quantity.attributes
