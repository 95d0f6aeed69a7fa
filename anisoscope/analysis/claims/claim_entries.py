"""The claims of the three papers, and of later ones, that can be tested here: an entry each, with
its rule.

An entry was written down before the code that evaluates it; but most tables of docs/results had
been read before, so that verdicts on those are a reading by a fixed rule, and only those on later
runs a test.
"""

import math
from functools import partial
from typing import NamedTuple

from anisoscope.analysis.shapes import DEFINITIONS

LITERAL, SECOND_HAND, RECONSTRUCTED = "literal", "second-hand", "reconstructed"
SHAPE, INHERENT, GEOMETRY = (
    "The Shape of Learning",
    "Anisotropy Is Inherent",
    "Geometry of Learning Dynamics",
)
STRAIGHTEN, LAYERS = (
    "Straightening (Hosseini and Fedorenko 2023)",
    "Layer by Layer (Skean et al. 2025)",
)
LINEAR = "Your Transformer is Secretly Linear (Razzhigaev et al. 2024)"
# entered when the three papers had verdicts: a correction of their own
LATER = (STRAIGHTEN, LINEAR, LAYERS)
PAIRED = ("matched_pair_small", "mask_ablations", "optimizer_ablations", "position_ablations")
TRAINED = (*PAIRED, "interventions_small")
DECODER, ENCODER = ("next", "causal"), ("masked", "bidirectional")  # objective and mask
MODELS = {DECODER: "decoder", ENCODER: "encoder"}  # all others: "other"
PLAIN = {  # what an intervention changes: a model that has another value is none of the papers'
    **{
        "model.attention": "softmax",
        "model.qk_norm": False,
        "model.centre_queries": False,
        "model.sink": False,
    },
    "train.penalty": 0.0,
}
# a peak that stands out by less counts as none: what anisotropy of one layer scatters over seeds
BELL = 0.05
TRUSTED = 3.32  # doublings: no estimator of dimension is to be trusted above 10
LARGEST = "last_dimension + compression"  # log2 of the largest over checkpoints
UNTRUSTED = (
    LARGEST,
    -math.inf,
    TRUSTED,
    "its dimension exceeds 10, above which no estimator is to be trusted",
)
LEARNED = 1.0  # bits of context gain, below which a model has not learned


class Claim(NamedTuple):
    """`quantity` lies `above` (or below) `threshold`: that is the claim, for each model of
    `models`.
    """

    paper: str
    mark: str
    wording: str
    # which reader of evidence.py: runs, pairs, over_models, layers, matched, tangents, untrained,
    # curved
    table: str
    quantity: str
    statistic: str
    threshold: float = 0.0
    above: bool = True
    models: tuple[str, ...] = ("decoder",)
    seeds: int = 3  # or models, or pairs: fewer decide nothing
    learned: bool = True  # of models that have not learned it says nothing
    # columns of runs.csv, added; least, most, words for outside
    regime: tuple[str, float, float, str] | None = None
    experiments: tuple[str, ...] = TRAINED


BOTH = {"models": ("decoder", "encoder")}
_shape, _inherent, _geometry = (
    partial(Claim, SHAPE),
    partial(Claim, INHERENT),
    partial(Claim, GEOMETRY, **BOTH),
)
BLOCK = {"learned": False, "models": ("block",), "experiments": ("untrained_bias",)}
MANIFOLD = {"learned": False, "models": ("manifold",), "experiments": ("curved_manifolds",)}
LAST, OVER = "mean over seeds, last checkpoint", "mean over seeds, over checkpoints"
NOT_EXPANDED = "it has not expanded by {:g} doublings before"
MORE, LESS = DEFINITIONS["expansion"].above, DEFINITIONS["contraction"].above
CLAIMS = {
    "decoder_bell": _shape(
        *(LITERAL, "Decoders' anisotropy over depth is a bell with its peak in the middle layers."),
        *("runs", "bell_blocks", LAST, BELL),
    ),
    "decoder_bell_with_embedding": _shape(
        *(
            LITERAL,
            "The same, with the embedding as the first end.",
            "runs",
            "bell_whole",
            LAST,
            BELL,
        )
    ),
    "flat_encoder": _shape(
        *(LITERAL, "Encoders' anisotropy is flat over depth.", "runs", "unevenness", LAST, BELL),
        **{"above": False, "models": ("encoder",)},
    ),
    "growth": _shape(
        LITERAL, "Anisotropy of decoders grows with training.", "runs", "growth", LAST
    ),
    "stabilisation": _shape(
        *(
            LITERAL,
            "Having grown, anisotropy stabilises: it does not fall again.",
            "runs",
            "fall",
            OVER,
            BELL,
        ),
        above=False,
    ),
    "expansion_own_rule": _shape(
        *(
            LITERAL,
            "Dimension expands at first, by the paper's own rule.",
            "runs",
            "expansion_microscope",
            OVER,
            MORE,
        ),
        regime=UNTRUSTED,
    ),
    "compression_own_rule": _shape(
        *(
            LITERAL,
            "Then it is compressed, by the paper's own rule.",
            "runs",
            "compression_microscope",
            OVER,
            LESS,
        ),
        regime=("expansion_microscope", MORE, math.inf, NOT_EXPANDED.format(MORE)),
    ),
    "expansion_twonn": _shape(
        *(
            RECONSTRUCTED,
            "Dimension expands at first, by TwoNN as usually fitted.",
            "runs",
            "expansion",
            OVER,
            MORE,
        ),
        regime=UNTRUSTED,
    ),
    "compression_twonn": _shape(
        *(
            RECONSTRUCTED,
            "Then it is compressed, by TwoNN as usually fitted.",
            "runs",
            "compression",
            OVER,
            LESS,
        ),
        regime=("expansion", MORE, math.inf, NOT_EXPANDED.format(MORE)),
    ),
    "decoder_more_anisotropic": _shape(
        *(LITERAL, "Decoders are more anisotropic than encoders."),
        *(
            "pairs",
            "last_anisotropy",
            "decoder less encoder of one seed, mean over blocks, last checkpoint",
        ),
        experiments=PAIRED,
    ),
    "mask_makes_growth": _shape(
        *(
            RECONSTRUCTED,
            "The causal mask makes anisotropy grow: it grows less where the mask is open.",
        ),
        *("matched", "growth", "causal to bidirectional mask, masked characters, loss-matched"),
        **{"above": False, "experiments": ("mask_ablations",)},
    ),
    "objective_makes_growth": _shape(
        *(
            RECONSTRUCTED,
            "Predicting the next token makes it grow: it grows less with masked characters.",
        ),
        *("matched", "growth", "next to masked characters, causal mask, loss-matched"),
        **{"above": False, "experiments": ("mask_ablations",)},
    ),
    "cosine_follows_drift_over_layers": _inherent(
        *(SECOND_HAND, "Mean cosine follows drift over the layers of a model."),
        *("layers", "mean_cosine,drift", "Spearman's rho over layers, mean over seeds"),
        **BOTH,
    ),
    "cosine_follows_drift_over_models": _inherent(
        *(SECOND_HAND, "Mean cosine follows drift over models."),
        *(
            "over_models",
            "mean_cosine,drift",
            "Pearson's r over conditions, each the mean of its seeds",
        ),
        seeds=4,
    ),
    "cosine_grows": _inherent(
        *(SECOND_HAND, "Mean cosine grows with training."), *("runs", "cosine_growth", LAST), **BOTH
    ),
    "drift_grows": _inherent(
        *(SECOND_HAND, "Hidden states drift away from the origin with training."),
        *("runs", "drift_growth", LAST),
        **{"threshold": 0.5} | BOTH,
    ),
    "untrained_blocks_pass_on": _inherent(
        *(LITERAL, "An untrained block makes its output more anisotropic than its input."),
        *(
            "untrained",
            "cosine_out-cosine_in",
            "mean cosine out less in, mean over norms of the bias, mean over seeds",
        ),
        **BLOCK,
    ),
    "bias_raises_score_variance": _inherent(
        *(SECOND_HAND, "A common bias raises the variance of all scores."),
        *("untrained", "score_std", "doublings from no bias to the largest, mean over seeds"),
        **{"threshold": 1.0} | BLOCK,
    ),
    "bias_sharpens_untrained_attention": _inherent(
        *(
            RECONSTRUCTED,
            "A common bias sharpens the attention of an untrained block by 0.1 nat or more.",
        ),
        *(
            "untrained",
            "attention_entropy",
            "entropy without a bias less that with the largest, mean over seeds",
        ),
        **{"threshold": 0.1} | BLOCK,
    ),
    "queries_and_keys_drift_in_parallel": _inherent(
        *(LITERAL, "Along training, query and key distributions drift in parallel directions."),
        *("runs", "alignment_growth", LAST),
        **BOTH,
    ),
    "attention_sharpens": _inherent(
        *(SECOND_HAND, "Attention sharpens with training."), *("runs", "sharpening", LAST), **BOTH
    ),
    "sharpening_follows_drift": _inherent(
        *(
            RECONSTRUCTED,
            "The more hidden states drift, the sharper attention becomes, over models.",
        ),
        *(
            "over_models",
            "sharpening,drift_growth",
            "Pearson's r over conditions, each the mean of its seeds",
        ),
        seeds=4,
    ),
    "common_query_makes_anisotropy": _inherent(
        *(
            RECONSTRUCTED,
            "The drift of queries makes anisotropy: it grows less where queries are centred.",
        ),
        *("matched", "growth", "plain to centred queries, decoder, loss-matched"),
        **{"above": False, "experiments": ("interventions_small",)},
    ),
    "gradient_in_activation_subspace": _geometry(
        *(
            LITERAL,
            "Directions fitted to activations hold more gradient energy than random subspaces.",
        ),
        *(
            "tangents",
            "energy-control",
            "energy less that of random subspaces, mean over layers, last checkpoint",
        ),
    ),
    "gradient_beyond_variance": _geometry(
        *(
            RECONSTRUCTED,
            "They hold more of the gradient's energy than of the activations' variance.",
        ),
        *("tangents", "excess", "e − v, mean over layers, last checkpoint"),
    ),
    "early_gradients_more_concentrated": _geometry(
        *(SECOND_HAND, "Early gradients are the more concentrated there."),
        *(
            "tangents",
            "energy-late",
            "energy, largest over checkpoints less last, mean over layers",
        ),
        threshold=BELL,
    ),
    "subspace_carries_anisotropy": _geometry(
        *(LITERAL, "They carry a larger share of the gradient's anisotropy than random subspaces."),
        *(
            "tangents",
            "isoscore_gain-normal",
            "gain of IsoScore* less that of random subspaces, mean over layers",
        ),
    ),
    "frequent_tokens_strongest": _geometry(
        *(SECOND_HAND, "Frequent tokens show the strongest enrichment."),
        *(
            "tangents",
            "enrichment",
            "e / v of the most less that of the least frequent quarter, mean over layers",
        ),
    ),
    "normal_gradient_is_second_order": _geometry(
        *(
            SECOND_HAND,
            "The gradient along the manifold is of first order in the spread, across of second.",
        ),
        *(
            "curved",
            "slope",
            "exponent across less exponent along, mean over manifolds and curvatures",
        ),
        **{"threshold": 0.9} | MANIFOLD,
    ),
    "frequency_hides_curvature": _geometry(
        *(SECOND_HAND, "Sampling by frequency makes curvature fade from the gradient."),
        *(
            "curved",
            "biased",
            "doublings of the normal share, no bias less the largest, mean over manifolds",
        ),
        **{"threshold": 1.0} | MANIFOLD,
    ),
    "trajectories_straighten": Claim(
        *(
            STRAIGHTEN,
            LITERAL,
            "In trained decoders trajectories straighten from the early to the deeper layers.",
        ),
        *("runs", "straightening_blocks", LAST),
    ),
    "trajectories_straighten_from_embedding": Claim(
        *(STRAIGHTEN, RECONSTRUCTED, "The same, with the embedding as the first of the layers."),
        *("runs", "straightening_whole", LAST),
    ),
    "layers_are_nearly_linear": Claim(
        *(
            LINEAR,
            RECONSTRUCTED,
            "In decoders each layer is nearly linear in the one before (0.99; here 0.95).",
        ),
        *("runs", "last_linearity", LAST),
        threshold=0.95,
    ),
    "residual_makes_linear": Claim(
        *(LINEAR, LITERAL, "Linearity decreases where the residual is taken out."),
        *("runs", "last_linearity - last_linearity_update", LAST),
    ),
    "entropy_has_a_valley": Claim(
        *(
            LAYERS,
            SECOND_HAND,
            "In decoders the entropy of a window is lowest in the middle layers.",
        ),
        *("runs", "entropy_valley", LAST),
        above=False,
    ),
}
