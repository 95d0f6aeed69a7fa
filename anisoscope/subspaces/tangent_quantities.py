"""Define every quantity of the stage `tangents`: what it is, its source and its dimensions."""

from anisoscope.metrics.frequency import BINS
from anisoscope.metrics.quantity import Quantity, correlation, magnitude, share

PAPER = "reconstruction after Bernas et al. 2026, Revisiting Anisotropy in Language Transformers"
SINK_SOURCE = "after gradient sinks, arXiv 2603.17771 (second-hand)"
GRADIENT_PREFIX = "gradient_"  # prefix of panel quantities that are measured on gradients
SUBSPACE_KINDS = ("semi-NMF", "PCA")
FITS = ("early", "here", "previous", "untrained", "other seed")  # what a proxy is fitted to
GRADIENT_ROWS = ("raw", "unit")  # raw gradients, and gradients divided by their norm
MATRICES = ("embedding", "attention", "mlp", "attention_out", "mlp_out")
# the weight gradient; the update since the last checkpoint; the update of a single step
WEIGHT_CHANGES = ("gradient", "between", "step")
TANGENT_COORDINATES = {
    "fit": list(FITS),
    "kind": list(SUBSPACE_KINDS),
    "rows": list(GRADIENT_ROWS),
    "bin": list(BINS),
    "matrix": list(MATRICES),
    "of": list(WEIGHT_CHANGES),
}

FRAME = ("rank", "layer", "fit", "kind")
FRAME_ROWS, LOCAL_FRAME, BIN = (*FRAME, "rows"), ("rank", "layer", "rows"), (*FRAME, "bin")
MATRIX, OVER_FITS = (*FRAME, "of", "matrix"), ("rank", "layer", "kind", "rows")
TANGENT_MEASURED = {
    "energy": share(
        "gradient energy in the subspace, e",
        "|G Q|^2 / |G|^2, G uncentered",
        PAPER,
        dims=FRAME_ROWS,
    ),
    "variance": share(
        "variance of the activations in the subspace, v",
        "tr(Q^T C Q) / tr C, C of the same points",
        dims=FRAME,
    ),
    "control_energy": share(
        "gradient energy in random subspaces of the complement",
        "e of qr((I - Q Q^T) Z), Z normal",
        f"{PAPER}; second-hand for the number of subspaces",
        resampling="",
        dims=(*FRAME_ROWS, "control"),
    ),
    "control_ratio": magnitude(
        "gradient energy over its controls, R",
        "e(Q) / mean e(Q_N)",
        PAPER,
        resampling="",
        dims=FRAME_ROWS,
    ),
    "control_p": share(
        "p against random subspaces",
        "(1 + #{e(Q_N) >= e(Q)}) / (1 + #)",
        PAPER,
        resampling="",
        dims=FRAME_ROWS,
    ),
    "isoscore_gain": correlation(
        "gain of IsoScore* without the subspace",
        "IsoScore* of G in the D - k dimensions of the complement, less that of G; centered once, "
        "no shrinkage",
        PAPER,
        dims=FRAME_ROWS,
    ),
    "isoscore_gain_normal": correlation(
        "gain of IsoScore* without a random subspace",
        "as without the subspace",
        PAPER,
        resampling="",
        dims=(*FRAME_ROWS, "control"),
    ),
    "isoscore_gain_equal_energy": correlation(
        "gain of IsoScore* without a random subspace of equal energy",
        "as without the subspace; those of the same rank and e "
        "(metrics.tangent.equal_energy_frames)",
        resampling="",
        dims=(*FRAME_ROWS, "control"),
    ),
    "local_energy": share(
        "gradient energy in the local tangent",
        "sum |Q_i^T g_i|^2 / sum |g_i|^2, of the points whose neighbors vary in k directions",
        PAPER,
        dims=LOCAL_FRAME,
    ),
    "local_variance": share(
        "variance of the activations in the local tangents",
        "mean of tr(Q_i^T C Q_i) / tr C over the same points, weights |g_i|^2 (raw) or 1 (unit)",
        dims=LOCAL_FRAME,
    ),
    "energy_in_bin": share(
        "gradient energy in the subspace, by frequency of the character",
        "e of the rows in the bin",
        PAPER,
        dims=BIN,
    ),
    "variance_in_bin": share(
        "variance in the subspace, by frequency of the character",
        "v of the points in the bin",
        dims=BIN,
    ),
    "norm_in_bin": magnitude(
        "gradient norm, by frequency of the character",
        "mean |g|",
        units="nats / activation",
        dims=("layer", "bin"),
    ),
    "loss_in_bin": magnitude(
        "loss, by frequency of the character",
        "mean cross-entropy",
        units="nats",
        dims=("bin",),
    ),
    "first_position_share": share(
        "share of the squared gradient at the first token",
        "mean |g|^2 at the first token over the sum of those of all places of the window, scored "
        "or not",
        SINK_SOURCE,
    ),
    "first_position_norm": magnitude(
        "gradient norm at the first token over that of the median place",
        "mean |g| at the first token / median over places of mean |g|",
        SINK_SOURCE,
    ),
    "ones_share": share(
        "gradient energy along the vector of ones",
        "sum (g . 1)^2 / D over sum |g|^2; 0 where a norm reads it",
    ),
    "radial_share": share(
        "gradient energy along the state itself",
        "sum (g . u)^2 / sum |g|^2, u the state less its mean coordinate (whole, of a pretrained "
        "model whose vector of ones is kept), over its norm; 0 before a final norm",
    ),
    "matrix_energy": share(
        "energy of a matrix's gradient or update in the subspace",
        "|Q^T M|^2 / |M|^2 on the input side (attention_out, mlp_out: output side), without the "
        "vector of ones where norms remove it",
        f"{PAPER}; the output side: this project",
        resampling="",
        dims=MATRIX,
    ),
    "matrix_p": share(
        "its p against random subspaces",
        "(1 + #{e(Q_N) >= e(Q)}) / (1 + #)",
        PAPER,
        resampling="",
        dims=MATRIX,
    ),
}
# computed from other quantities, resample by resample (tangent_tables.py)
DERIVED = {
    "excess": correlation("e − v", "energy less variance", dims=FRAME_ROWS),
    "excess_over_untrained": Quantity(
        "e − v of the early subspace, less that of the untrained network's",
        "excess(early) - excess(untrained)",
        range=(-2.0, 2.0),
        dims=OVER_FITS,
    ),
    "excess_over_other_seed": Quantity(
        "e − v of the early subspace, less that of another seed's",
        "excess(early) - excess(other seed)",
        range=(-2.0, 2.0),
        dims=OVER_FITS,
    ),
    "local_excess": correlation(
        "e − v in the local tangents", "local_energy less local_variance", dims=LOCAL_FRAME
    ),
    "enrichment_in_bin": magnitude(
        "tangent enrichment e / v, by frequency of the character",
        "energy_in_bin / variance_in_bin",
        dims=BIN,
    ),
}
