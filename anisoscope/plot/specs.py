"""Figures of runs as data: what each shows, by the name of its file. `render.render` draws them.

A drawn value is a quantity of a run at a place: a step, a set of positions, a layer, a head. A
`Spec` names the dimension that makes the rows, that of the columns, and that of the hue: a
dimension of the tables, or one of RUN_ROLE, KIND_ROLE, QUANTITY_ROLE, NULL_ROLE, LINE and HOOK_POINT.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anisoscope.config.run_config import WATCHED_BLOCKS, WATCHED_LAYERS
from anisoscope.metrics.leading import LONGEST_LEFT_OUT
from anisoscope.plot.style import OKABE_ITO

RUN_ROLE, KIND_ROLE, QUANTITY_ROLE, NULL_ROLE = "run", "kind", "quantity", "null"
LINE, HOOK_POINT = "line", "hook_point"
GAIN_AXIS = "validation_gain_over_unigram"
OVER_TRAINING = ("step", GAIN_AXIS)  # x axes of curves over training
Place = Mapping[str, Any]


@dataclass(frozen=True)
class Line:
    """A line of a panel: with hue=LINE there are only these, else also the panel's quantity."""

    label: str
    quantity: str = "{}"  # a variable; {} stands for the panel's quantity
    at: Place = field(default_factory=dict)
    panels: tuple[str, ...] = ()  # quantities whose panels have it; (): all
    model: str = ""  # a null model: its own value is drawn, not the excess over it
    look: Place = field(default_factory=dict)
    band: bool = True


@dataclass(frozen=True)
class Spec:
    """What a figure shows."""

    title: str
    shown: str  # text of the caption
    quantities: tuple[str, ...]
    x: str = (
        "depth"  # depth (relative), layer, block, step, GAIN_AXIS, or a dimension of the quantities
    )
    hue: str = RUN_ROLE
    rows: str = ""
    columns: str = ""
    at: Place = field(default_factory=dict)
    average: str = ""  # blocks or heads: the average over these is drawn
    lines: tuple[Line, ...] = ()
    scale: str = "figure"  # panels that share limits: of the figure, a row, a column; or panel
    zero: bool = False
    log: bool = False
    names: Mapping[str, str] = field(default_factory=dict)  # names of rows and columns by label
    label: str = ""  # label of the vertical axis
    note: str = ""  # additional text on the figure


# Styles of additional lines, which are thin and have no band.
THIN = {"linewidth": 0.9, "marker": ""}
DOTTED: dict[str, Any] = {"look": THIN | {"linestyle": ":"}, "band": False}
GAUSSIAN_CURVE: dict[str, Any] = {
    "model": "gaussian",
    "look": THIN | {"linestyle": "--"},
    "band": False,
}
BOUND = DOTTED | {"look": DOTTED["look"] | {"color": "0.35"}}
GRAY_DASHED: dict[str, Any] = {"look": GAUSSIAN_CURVE["look"] | {"color": "0.35"}, "band": False}
LARGEST_LABEL = "anisotropy\n(largest eigenvalue's share)"
SHARE_TITLE = "Share of the largest eigenvalue in the variance of each layer's vectors"
SHORT_NAMES = {  # names of narrow panels
    "effective_rank": "effective rank",
    "mean_cosine": "mean cosine",
    "drift": "drift |E x|",
    "twonn": "dimension (TwoNN)",
}
SINGLE_CHARACTER = 1  # characters of a type
# Several quantities of each run over layers, each with a scale of its own.
IN_LAYERS: dict[str, Any] = {
    "x": "layer",
    "rows": RUN_ROLE,
    "columns": QUANTITY_ROLE,
    "scale": "panel",
}
IN_LAYERS |= {"zero": True, "names": SHORT_NAMES}


def training_figure(title: str, *quantities: str, scale: str = "panel") -> Spec:
    """Make a figure over training: a line for each run, a panel for each quantity.

    Values are averages over blocks without the embedding, which with rotary positions is a few
    hundred points without a dimension.
    """
    shown = f"{title}: means over the outputs of all blocks."
    kind = {"x": "step", "columns": QUANTITY_ROLE, "average": "blocks", "label": "mean over blocks"}
    return Spec(title, shown, quantities, **kind, scale=scale)


def by_depth(title: str, depth: str, *quantities: str) -> Spec:
    """Make a figure over training: a row for each run, a line for each layer or block.

    A block's line is the mean over its heads.
    """
    heads = ", mean over heads" if depth == "block" else ""
    shown = f"{title}: a line for each {depth}{heads}."
    kind = {
        "x": "step",
        "rows": RUN_ROLE,
        "columns": QUANTITY_ROLE,
        "hue": depth,
        "scale": "column",
    }
    average = "heads" if depth == "block" else ""
    return Spec(f"{title}{heads}", shown, quantities, **kind, average=average)


def log_figure(title: str, *quantities: str) -> Spec:
    """Make a figure of a run's log: a row for each run, from a new training batch at each step."""
    shown = (
        f"{title} while training. Lines: layers or blocks, of a batch of the training text, another "
        "at each look."
    )
    kind = {
        "x": "step",
        "rows": RUN_ROLE,
        "columns": QUANTITY_ROLE,
        "hue": "layer",
        "scale": "column",
    }
    return Spec(f"{title} of training batches", shown, quantities, **kind)


SPECS: dict[str, Spec] = {
    "anisotropy_profile": Spec(
        "Anisotropy over depth",
        f"{SHARE_TITLE}, at the last checkpoint.",
        ("anisotropy",),
        columns="positions",
        zero=True,
        label=LARGEST_LABEL,
    ),
    "dimension_profile": Spec(
        "Dimension of models and of Gaussian clouds over depth",
        "Intrinsic dimension (TwoNN) of each layer's vectors at the last checkpoint. Dashed: a "
        "Gaussian cloud of the same spectrum.",
        ("twonn",),
        columns="positions",
        zero=True,
        lines=(Line("Gaussian cloud,\nsame spectrum", **GAUSSIAN_CURVE),),
    ),
    "anisotropy_by_checkpoint": Spec(
        "Anisotropy over layers while training",
        f"{SHARE_TITLE}: a curve for each checkpoint.",
        ("anisotropy",),
        x="layer",
        hue="step",
        rows=RUN_ROLE,
        columns="positions",
        zero=True,
        label=LARGEST_LABEL,
    ),
    "outlier_coordinates": Spec(
        "Coordinates of largest variance",
        "Above, how much of the variance lies in the coordinates that have most of it; below, the "
        "anisotropy without them (dotted: with them).",
        ("top_coordinate_variance_share", "anisotropy_without_top_coordinates"),
        rows=QUANTITY_ROLE,
        columns="top",
        scale="row",
        zero=True,
        lines=(
            Line(
                "with them", "anisotropy", panels=("anisotropy_without_top_coordinates",), **DOTTED
            ),
        ),
        names={
            "top_coordinate_variance_share": "share of the variance in them",
            "anisotropy_without_top_coordinates": "anisotropy without them",
        },
    ),
    "anisotropy_decomposition": Spec(
        "Effect of removing the longest vectors",
        "Values for all vectors, without the first token of each window, without the longest vector of each "
        "window, and without the longest 1 %. What is removed is long, so that this lowers the "
        "anisotropy of a Gaussian cloud too (dashed). Dotted: the share of the variance between "
        "the first token of each window and the rest, a lower bound of the anisotropy of all vectors.",
        ("anisotropy", "mean_cosine", "drift", "twonn"),
        hue=LINE,
        note="The band is that of all vectors.",
        **IN_LAYERS,
        lines=(
            Line("all vectors"),
            Line("without the first token", at={"positions": "without_first_token"}, band=False),
            *(
                Line(f"without the {which}", "{}_without_longest", {"without": which}, band=False)
                for which in LONGEST_LEFT_OUT
            ),
            Line(
                "the first token alone\n(lower bound)",
                "first_token_variance_share",
                panels=("anisotropy",),
                **BOUND,
            ),
            Line(
                f"Gaussian cloud,\nwithout the {LONGEST_LEFT_OUT[-1]}",
                "{}_without_longest",
                {"without": LONGEST_LEFT_OUT[-1]},
                **GAUSSIAN_CURVE | GRAY_DASHED,
            ),
        ),
    ),
    "excess_over_nulls": Spec(
        "Excess over null models",
        "Each value minus that of a null model; every panel has a scale of its own. A Gaussian cloud of "
        "the same spectrum differs in its dimension alone.",
        ("anisotropy", "effective_rank", "twonn", "mean_cosine"),
        rows=QUANTITY_ROLE,
        columns=NULL_ROLE,
        scale="panel",
        zero=True,
        label="excess over the null model",
    ),
    "distance_by_frequency": Spec(
        "Log frequency against distance to the centroid",
        "Distance of each point to the mean of the other points of its character, correlated with the "
        "log frequency of the character, over points. Dashed: a Gaussian cloud of the same "
        "spectrum, below 0 since centroids of few points lie farther off.",
        ("frequency_correlation",),
        x="layer",
        at={"ngram": SINGLE_CHARACTER},
        zero=True,
        lines=(Line("Gaussian cloud", **GAUSSIAN_CURVE),),
    ),
    "distance_by_quarter": Spec(
        "Distance to the centroid of the own character",
        "Mean distance in each quarter of the text, from the least frequent characters to the most "
        "frequent: a line for each layer.",
        ("centroid_distance_by_frequency",),
        x="frequency",
        hue="layer",
        columns=RUN_ROLE,
    ),
    "dimension_by_scale": Spec(
        "Dimension by scale",
        "Dimension by GRIDE from the neighbors k and 2k of each point: a line for each layer.",
        ("gride",),
        x="neighbors",
        hue="layer",
        columns=RUN_ROLE,
        log=True,
        label="intrinsic dimension",
        lines=(Line("Gaussian cloud, same spectrum", **GAUSSIAN_CURVE),),
    ),
    "hook_points": Spec(
        "Residual stream, and what is added to it",
        "The residual stream after every block; what attention and the feed-forward layer add to it, "
        "before it is added; and the values of all heads side by side. Each is a cloud of the same "
        "positions. Layer 0 is the embedding.",
        ("anisotropy", "effective_rank", "mean_cosine", "twonn"),
        hue=HOOK_POINT,
        **IN_LAYERS,
    ),
    "dimension_over_training": training_figure(
        "Dimension while training", "twonn", "twonn_microscope", scale="figure"
    ),
    "geometry_over_training": training_figure(
        "Geometry while training",
        *("anisotropy", "mean_cosine", "effective_rank"),
        *("participation_ratio", "alpha_req", "twonn"),
    ),
    "change_over_training": by_depth(
        "Change of layers while training",
        "layer",
        "cka_last",
        "neighbor_overlap_last",
        "cka_previous",
    ),
    "query_key_drift": by_depth(
        "Drift of queries and keys",
        "block",
        *("query_drift", "key_drift", "query_key_alignment", "query_key_cosine"),
    ),
    "query_key_fluctuation": by_depth(
        "Fluctuation of queries and keys",
        "block",
        *("query_fluctuation", "key_fluctuation", "score_share_of_means"),
    ),
    "attention_sharpness": by_depth(
        "Sharpness of attention",
        "block",
        *("score_std_within", "attention_entropy", "attention_max", "attention_first_token"),
    ),
}
WATCHED_NAMES = WATCHED_LAYERS | WATCHED_BLOCKS
WATCHED = {
    "watched_geometry": log_figure(
        "Geometry", "anisotropy", "participation_ratio", "mean_cosine", "drift"
    ),
    "watched_attention": log_figure(
        "Norms and attention", "mean_norm", "attention_first_token", "gradient_norm"
    ),
}
# For lists of models: do decoders have a bell where encoders are flat?
PROFILE_BY_KIND = Spec(
    "Anisotropy over depth",
    f"{SHARE_TITLE}: a line for each model.",
    ("anisotropy",),
    rows="positions",
    columns=KIND_ROLE,
    zero=True,
    label=LARGEST_LABEL,
    names={"encoder": "encoders", "decoder": "decoders"},
)
BLUE, ORANGE = ({"color": color, "marker": ""} for color in OKABE_ITO[:2])
TANGENT_ENERGY = Spec(
    "Gradient energy and variance in activation subspaces",
    "Share of |G|² (e) and of the activations' variance (v) in subspaces fitted to activations. "
    "Subspaces, energies and controls are reconstructions after Bernas et al. 2026.",
    ("energy",),
    x="step",
    hue=LINE,
    rows=RUN_ROLE,
    columns="layer",
    zero=True,
    label="share of the squared length",
    lines=(
        Line(
            "random subspaces",
            "control_energy",
            look={"color": "0.6", "linewidth": 0.8, "marker": ""},
        ),
        Line("activations' variance v", "variance", look=ORANGE | {"linestyle": "--"}),
        Line("gradient energy e", "energy", look=BLUE),
    ),
    note="Gray: all random subspaces.",
)
