"""The claims of the three papers, and of later ones, that can be tested here: an entry each.

An entry was written down before the code that evaluates it. Most tables of docs/results had been
read before: verdicts on those are a reading by a fixed rule, and only those on later runs a test.
"""

import math
from functools import partial
from typing import NamedTuple

from anisoscope.analysis.shapes import PHASE

LITERAL, SECOND_HAND, RECONSTRUCTED = "literal", "second-hand", "reconstructed"
SHAPE, INHERENT = "The Shape of Learning", "Anisotropy Is Inherent"
GEOMETRY = "Geometry of Learning Dynamics"
STRAIGHTEN = "Straightening (Hosseini and Fedorenko 2023)"
LINEAR = "Your Transformer is Secretly Linear (Razzhigaev et al. 2024)"
LAYERS = "Layer by Layer (Skean et al. 2025)"
LATER = (STRAIGHTEN, LINEAR, LAYERS)  # added later, so they have a correction of their own
PAIRED = ("matched_pair_small", "mask_ablations", "optimizer_ablations", "position_ablations")
DECODER, ENCODER = ("next", "causal"), ("masked", "bidirectional")  # objective and mask
MODELS = {DECODER: "decoder", ENCODER: "encoder"}  # all others: "other"
PLAIN = {  # a model with another value is none of the papers'
    "model.attention": "softmax",
    "model.qk_norm": False,
    "model.centre_queries": False,
    "model.sink": False,
    "train.penalty": 0.0,
}
BELL = 0.05  # a smaller peak counts as none: anisotropy of one layer scatters so much over seeds
LEARNED = 1.0  # bits of context gain, below which a model has not learned
LAST, OVER = "mean over seeds, last checkpoint", "mean over seeds, over checkpoints"
PEARSON = "Pearson's r over conditions, each the mean of its seeds"
UNTRUSTED = (
    "last_dimension + compression",  # log2 of the largest dimension over checkpoints
    -math.inf,
    3.32,
    "its dimension exceeds 10, above which no estimator is to be trusted",
)
NOT_EXPANDED = f"it has not expanded by {PHASE:g} doublings before"


class Claim(NamedTuple):
    """A claim: `quantity` lies above (or below) `threshold`, for each model of `models`."""

    paper: str
    wording: str
    quantity: str
    mark: str = LITERAL
    statistic: str = LAST
    table: str = "runs"  # the reader of evidence.py
    threshold: float = 0.0
    above: bool = True
    models: tuple[str, ...] = ("decoder",)
    seeds: int = 3  # or models, or pairs: fewer decide nothing
    learned: bool = True  # whether it is about models that have learned
    # columns of runs.csv to add up; least, most, and the reason where the sum is not between
    regime: tuple[str, float, float, str] | None = None
    # of a loss-matched contrast: the setting, its two values, and what is held (None: anything)
    contrast: tuple[str, str, str, str | None] | None = None
    experiments: tuple[str, ...] = (*PAIRED, "interventions_small")


BOTH = ("decoder", "encoder")
_shape = partial(Claim, SHAPE)
_inherent = partial(Claim, INHERENT, mark=SECOND_HAND)
_block = partial(
    _inherent,
    table="untrained",
    learned=False,
    models=("block",),
    experiments=("untrained_bias",),
)
_tangent = partial(Claim, GEOMETRY, table="tangents", models=BOTH)
_manifold = partial(
    Claim,
    GEOMETRY,
    mark=SECOND_HAND,
    table="curved",
    learned=False,
    models=("manifold",),
    experiments=("curved_manifolds",),
)
_matched = partial(
    Claim, mark=RECONSTRUCTED, table="matched", quantity="growth", above=False,
    experiments=("mask_ablations",),
)  # fmt: skip

CLAIMS = {
    "decoder_bell": _shape(
        "Decoders' anisotropy over depth is a bell with its peak in the middle layers.",
        "bell_blocks",
        threshold=BELL,
    ),
    "decoder_bell_with_embedding": _shape(
        "The same, with the embedding as the first end.", "bell_whole", threshold=BELL
    ),
    "flat_encoder": _shape(
        "Encoders' anisotropy is flat over depth.",
        "unevenness",
        threshold=BELL,
        above=False,
        models=("encoder",),
    ),
    "growth": _shape("Anisotropy of decoders grows with training.", "growth"),
    "stabilisation": _shape(
        "Having grown, anisotropy stabilises: it does not fall again.",
        "fall",
        statistic=OVER,
        threshold=BELL,
        above=False,
    ),
    "expansion_own_rule": _shape(
        "Dimension expands at first, by the paper's own rule.",
        "expansion_microscope",
        statistic=OVER,
        threshold=PHASE,
        regime=UNTRUSTED,
    ),
    "compression_own_rule": _shape(
        "Then it is compressed, by the paper's own rule.",
        "compression_microscope",
        statistic=OVER,
        threshold=PHASE,
        regime=("expansion_microscope", PHASE, math.inf, NOT_EXPANDED),
    ),
    "expansion_twonn": _shape(
        "Dimension expands at first, by TwoNN as usually fitted.",
        "expansion",
        RECONSTRUCTED,
        OVER,
        threshold=PHASE,
        regime=UNTRUSTED,
    ),
    "compression_twonn": _shape(
        "Then it is compressed, by TwoNN as usually fitted.",
        "compression",
        RECONSTRUCTED,
        OVER,
        threshold=PHASE,
        regime=("expansion", PHASE, math.inf, NOT_EXPANDED),
    ),
    "decoder_more_anisotropic": _shape(
        "Decoders are more anisotropic than encoders.",
        "last_anisotropy",
        statistic="decoder less encoder of one seed, mean over blocks, last checkpoint",
        table="pairs",
        experiments=PAIRED,
    ),
    "mask_makes_growth": _matched(
        SHAPE,
        "The causal mask makes anisotropy grow: it grows less where the mask is open.",
        statistic="causal to bidirectional mask, masked characters, loss-matched",
        contrast=("model.mask", "causal", "bidirectional", "masked"),
    ),
    "objective_makes_growth": _matched(
        SHAPE,
        "Predicting the next token makes it grow: it grows less with masked characters.",
        statistic="next to masked characters, causal mask, loss-matched",
        contrast=("objective", "next", "masked", "causal"),
    ),
    "cosine_follows_drift_over_layers": _inherent(
        "Mean cosine follows drift over the layers of a model.",
        "mean_cosine,drift",
        statistic="Spearman's rho over layers, mean over seeds",
        table="layers",
        models=BOTH,
    ),
    "cosine_follows_drift_over_models": _inherent(
        "Mean cosine follows drift over models.",
        "mean_cosine,drift",
        statistic=PEARSON,
        table="over_models",
        seeds=4,
    ),
    "cosine_grows": _inherent("Mean cosine grows with training.", "cosine_growth", models=BOTH),
    "drift_grows": _inherent(
        "Hidden states drift away from the origin with training.",
        "drift_growth",
        threshold=0.5,
        models=BOTH,
    ),
    "untrained_blocks_pass_on": _block(
        "An untrained block makes its output more anisotropic than its input.",
        "cosine_out-cosine_in",
        mark=LITERAL,
        statistic="mean cosine out less in, mean over norms of the bias, mean over seeds",
    ),
    "bias_raises_score_variance": _block(
        "A common bias raises the variance of all scores.",
        "score_std",
        statistic="doublings from no bias to the largest, mean over seeds",
        threshold=1.0,
    ),
    "bias_sharpens_untrained_attention": _block(
        "A common bias sharpens the attention of an untrained block by 0.1 nat or more.",
        "attention_entropy",
        mark=RECONSTRUCTED,
        statistic="entropy without a bias less that with the largest, mean over seeds",
        threshold=0.1,
    ),
    "queries_and_keys_drift_in_parallel": _inherent(
        "Along training, query and key distributions drift in parallel directions.",
        "alignment_growth",
        mark=LITERAL,
        models=BOTH,
    ),
    "attention_sharpens": _inherent("Attention sharpens with training.", "sharpening", models=BOTH),
    "sharpening_follows_drift": _inherent(
        "The more hidden states drift, the sharper attention becomes, over models.",
        "sharpening,drift_growth",
        mark=RECONSTRUCTED,
        statistic=PEARSON,
        table="over_models",
        seeds=4,
    ),
    "common_query_makes_anisotropy": _matched(
        INHERENT,
        "The drift of queries makes anisotropy: it grows less where queries are centred.",
        statistic="plain to centred queries, decoder, loss-matched",
        contrast=("model.centre_queries", "no centre_queries", "centre_queries", None),
        experiments=("interventions_small",),
    ),
    "gradient_in_activation_subspace": _tangent(
        "Directions fitted to activations hold more gradient energy than random subspaces.",
        "energy-control",
        statistic="energy less that of random subspaces, mean over layers, last checkpoint",
    ),
    "gradient_beyond_variance": _tangent(
        "They hold more of the gradient's energy than of the activations' variance.",
        "excess",
        mark=RECONSTRUCTED,
        statistic="e − v, mean over layers, last checkpoint",
    ),
    "early_gradients_more_concentrated": _tangent(
        "Early gradients are the more concentrated there.",
        "energy-late",
        mark=SECOND_HAND,
        statistic="energy, largest over checkpoints less last, mean over layers",
        threshold=BELL,
    ),
    "subspace_carries_anisotropy": _tangent(
        "They carry a larger share of the gradient's anisotropy than random subspaces.",
        "isoscore_gain-normal",
        statistic="gain of IsoScore* less that of random subspaces, mean over layers",
    ),
    "frequent_tokens_strongest": _tangent(
        "Frequent tokens show the strongest enrichment.",
        "enrichment",
        mark=SECOND_HAND,
        statistic="e / v of the most less that of the least frequent quarter, mean over layers",
    ),
    "normal_gradient_is_second_order": _manifold(
        "The gradient along the manifold is of first order in the spread, across of second.",
        "slope",
        statistic="exponent across less exponent along, mean over manifolds and curvatures",
        threshold=0.9,
    ),
    "frequency_hides_curvature": _manifold(
        "Sampling by frequency makes curvature fade from the gradient.",
        "biased",
        statistic="doublings of the normal share, no bias less the largest, mean over manifolds",
        threshold=1.0,
    ),
    "trajectories_straighten": Claim(
        STRAIGHTEN,
        "In trained decoders trajectories straighten from the early to the deeper layers.",
        "straightening_blocks",
    ),
    "trajectories_straighten_from_embedding": Claim(
        STRAIGHTEN,
        "The same, with the embedding as the first of the layers.",
        "straightening_whole",
        RECONSTRUCTED,
    ),
    "layers_are_nearly_linear": Claim(
        LINEAR,
        "In decoders each layer is nearly linear in the one before (0.99; here 0.95).",
        "last_linearity",
        RECONSTRUCTED,
        threshold=0.95,
    ),
    "residual_makes_linear": Claim(
        LINEAR,
        "Linearity decreases where the residual is taken out.",
        "last_linearity - last_linearity_update",
    ),
    "entropy_has_a_valley": Claim(
        LAYERS,
        "In decoders the entropy of a window is lowest in the middle layers.",
        "entropy_valley",
        SECOND_HAND,
        above=False,
    ),
}
