"""Every number of the stage `tangents`: what it is, where it comes from, which dimensions it
has.
"""

import functools
import math

from anisoscope.measurement.quantity import HERE, NOT_NEGATIVE, SHARE, Quantity

PAPER = "reconstruction after Bernas et al. 2026, Revisiting Anisotropy in Language Transformers"
FRAME = ("rank", "layer", "fit", "kind")
MATRIX = (*FRAME, "of", "matrix")
SIGNED = (-1.0, 1.0)
GRADIENT = "gradient_"  # before the name of a quantity of the panel, of gradients as clouds


def _of(
    dims: tuple[str, ...], long_name: str, formula: str, source: str = HERE, **further
) -> Quantity:
    return Quantity(long_name=long_name, formula=formula, source=source, dims=dims, **further)


_resampled = functools.partial(_of, resampling="jackknife")


MEASURED = {
    "energy": _resampled(
        (*FRAME, "rows"),
        "gradient energy in the subspace, e",
        "|G Q|^2 / |G|^2, G uncentred",
        PAPER,
        range=SHARE,
    ),
    "variance": _resampled(
        FRAME,
        "variance of the activations in the subspace, v",
        "tr(Q^T C Q) / tr C, C of the same points",
        range=SHARE,
    ),
    "control_energy": _of(
        (*FRAME, "rows", "control"),
        "gradient energy in random subspaces of the complement",
        "e of qr((I - Q Q^T) Z), Z normal",
        f"{PAPER}; second-hand for the number of subspaces",
        range=SHARE,
    ),
    "control_ratio": _of(
        (*FRAME, "rows"),
        "gradient energy over its controls, R",
        "e(Q) / mean e(Q_N)",
        PAPER,
        range=NOT_NEGATIVE,
    ),
    "control_p": _of(
        (*FRAME, "rows"),
        "p beside random subspaces",
        "(1 + #{e(Q_N) >= e(Q)}) / (1 + #)",
        PAPER,
        range=SHARE,
    ),
    "isoscore_gain": _resampled(
        (*FRAME, "rows"),
        "gain of IsoScore* without the subspace",
        "IsoScore* of G in the D - k dimensions of the complement, less that of G; centred once, no shrinkage",
        PAPER,
        range=SIGNED,
    ),
    "isoscore_gain_normal": _of(
        (*FRAME, "rows", "control"),
        "gain of IsoScore* without a random subspace",
        "as without the subspace",
        PAPER,
        range=SIGNED,
    ),
    "isoscore_gain_equal_energy": _of(
        (*FRAME, "rows", "control"),
        "gain of IsoScore* without a random subspace of equal energy",
        "as without the subspace; those of the same rank and e (metrics.tangent.equal_energy_frames)",
        range=SIGNED,
    ),
    "local_energy": _resampled(
        ("rank", "layer", "rows"),
        "gradient energy in the local tangent",
        "sum |Q_i^T g_i|^2 / sum |g_i|^2",
        PAPER,
        range=SHARE,
    ),
    "local_variance": _resampled(
        ("rank", "layer", "rows"),
        "variance of the activations in the local tangents",
        "mean of tr(Q_i^T C Q_i) / tr C, weights |g_i|^2 (raw) or 1 (unit)",
        range=SHARE,
    ),
    "energy_in_bin": _resampled(
        (*FRAME, "bin"),
        "gradient energy in the subspace, by frequency of the character",
        "e of the rows in the bin",
        PAPER,
        range=SHARE,
    ),
    "variance_in_bin": _resampled(
        (*FRAME, "bin"),
        "variance in the subspace, by frequency of the character",
        "v of the points in the bin",
        range=SHARE,
    ),
    "norm_in_bin": _resampled(
        ("layer", "bin"),
        "gradient norm, by frequency of the character",
        "mean |g|",
        units="nats / activation",
        range=NOT_NEGATIVE,
    ),
    "loss_in_bin": _resampled(
        ("bin",),
        "loss, by frequency of the character",
        "mean cross-entropy",
        units="nats",
        range=NOT_NEGATIVE,
    ),
    "first_position_share": _resampled(
        ("layer",),
        "share of the squared gradient at token 0",
        "mean |g|^2 at token 0 over the sum of those of all places of the window, scored or not",
        "after gradient sinks, arXiv 2603.17771 (second-hand)",
        range=SHARE,
    ),
    "first_position_norm": _resampled(
        ("layer",),
        "gradient norm at token 0 over that of the median place",
        "mean |g| at token 0 / median over places of mean |g|",
        "after gradient sinks, arXiv 2603.17771 (second-hand)",
        range=NOT_NEGATIVE,
    ),
    "ones_share": _resampled(
        ("layer",),
        "gradient energy along the vector of ones",
        "sum (g . 1)^2 / D over sum |g|^2; 0 where a norm reads it",
        range=SHARE,
    ),
    "radial_share": _resampled(
        ("layer",),
        "gradient energy along the state itself",
        "sum (g . u)^2 / sum |g|^2, u the state less its mean coordinate (whole, of a pretrained model whose vector of "
        "ones is kept), over its norm; 0 before a final norm",
        range=SHARE,
    ),
    "matrix_energy": _of(
        MATRIX,
        "energy of a matrix's gradient or update in the subspace",
        "|Q^T M|^2 / |M|^2 on the input side (attention_out, mlp_out: output side), without the vector of ones where "
        "norms remove it",
        f"{PAPER}; the output side: this project",
        range=SHARE,
    ),
    "matrix_p": _of(
        MATRIX,
        "p of it beside random subspaces",
        "(1 + #{e(Q_N) >= e(Q)}) / (1 + #)",
        PAPER,
        range=SHARE,
    ),
}
DERIVED = {  # of other quantities, resample by resample
    "excess": (
        _resampled((*FRAME, "rows"), "e − v", "energy less variance", range=SIGNED),
        lambda of: of("energy") - of("variance"),
    ),
    "excess_over_untrained": (
        _resampled(
            ("rank", "layer", "kind", "rows"),
            "e − v of the early subspace, less that of the untrained network's",
            "excess(early) - excess(untrained)",
            range=(-2.0, 2.0),
        ),
        lambda of: _between(of, "untrained"),
    ),
    "excess_over_other_seed": (
        _resampled(
            ("rank", "layer", "kind", "rows"),
            "e − v of the early subspace, less that of another seed's",
            "excess(early) - excess(other seed)",
            range=(-2.0, 2.0),
        ),
        lambda of: _between(of, "other seed"),
    ),
    "local_excess": (
        _resampled(
            ("rank", "layer", "rows"),
            "e − v in the local tangents",
            "local_energy less local_variance",
            range=SIGNED,
        ),
        lambda of: of("local_energy") - of("local_variance"),
    ),
    "enrichment_in_bin": (
        _resampled(
            (*FRAME, "bin"),
            "tangent enrichment e / v, by frequency of the character",
            "energy_in_bin / variance_in_bin",
            range=(0.0, math.inf),
        ),
        lambda of: of("energy_in_bin") / of("variance_in_bin"),
    ),
}


def _between(of, fit: str):
    excess = of("energy") - of("variance")
    return excess.sel(fit="early", drop=True) - excess.sel(fit=fit, drop=True)


def about(quantity: Quantity) -> dict[str, str]:
    """The attributes of a variable."""
    return {
        "long_name": quantity.long_name,
        "units": quantity.units,
        "formula": quantity.formula,
        "source": quantity.source,
        "range": "{:g} to {:g}".format(*quantity.range),
        "resampling": quantity.resampling or "none",
    }
