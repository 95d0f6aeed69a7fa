"""The claims of the three papers, and of later ones, that can be tested here: an entry each.

A claim says that an effect is positive. `smallest` is the smallest effect of interest, and `reason`
says where it comes from. `SEEDS` is the rule for most numbers of trained models: twice their
standard deviation between seeds, pooled over conditions, rounded to the nearest of 1, 2 and 5 times
a power of ten on a logarithmic scale. A comment has the number before rounding, which `python -m
dev.verdict_tables --spread` prints. `ROUND` is an earlier convention, of bells and of phases of the
dimension, where the rule gives less or the same.
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
DECODER, ENCODER = ("next", "causal"), ("masked", "bidirectional")  # objective and mask
MODELS = {DECODER: "decoder", ENCODER: "encoder"}  # all others: "other"
PLAIN = {  # a model with another value is none of the papers'
    "model.attention": "softmax",
    "model.qk_norm": False,
    "model.center_queries": False,
    "model.sink": False,
    "train.penalty": 0.0,
}
LEARNED = 1.0  # bits of gain over unigram, below which a model has not learned
LAST, OVER = "last checkpoint", "over checkpoints"
PEARSON = "Pearson's r over conditions, each the mean of its seeds"
SEEDS = "twice the seeds' standard deviation"
ROUND = "the bound of earlier findings, above twice the seeds' deviation"
QUARTER = "a correlation that explains a quarter of the variance"
VARIANCE = "any subspace with more variance than the average one passes"
LARGE_DIMENSION = "its dimension exceeds 10, above which no estimator is to be trusted"
BELOW_LINE = "its dimension starts below 1, which no cloud has"
NOT_EXPANDED = f"it has not expanded by {PHASE:g} log2 units before"
CENSORED = "its dimension is largest at the last checkpoint: a compression may still come"
BOTH = ("decoder", "encoder")


class Claim(NamedTuple):
    """A claim: `quantity` times `sign` is positive, for each model of `models`."""

    paper: str
    wording: str  # short, for figures and tables
    quantity: str
    smallest: float  # effect of interest
    reason: str = SEEDS
    mark: str = LITERAL
    statistic: str = LAST
    table: str = "runs"  # the reader of evidence.py
    sign: int = 1  # -1: the claim is of a decrease
    absence: bool = False  # the claim is that there is no effect of interest
    bounded: bool = False  # one-sided, selected or a rank: a sign test in place of Student's
    low_bar: str = ""  # why nearly every trained model passes
    models: tuple[str, ...] = ("decoder",)
    seeds: int = 3  # or models, or pairs: fewer decide nothing
    learned: bool = True  # whether it is about models that have learned
    regime: tuple[tuple[str, str], ...] = ()  # what must be true of each run; the reason if not
    # of a loss-matched contrast: the setting, its two values, and what is held (None: anything)
    contrast: tuple[str, str, str, str | None] | None = None


_shape = partial(Claim, SHAPE)
_dimension = partial(_shape, smallest=PHASE, reason=ROUND, statistic=OVER, bounded=True, seeds=5)
_inherent = partial(Claim, INHERENT, mark=SECOND_HAND)
_block = partial(_inherent, table="untrained", learned=False, models=("block",))
_tangent = partial(Claim, GEOMETRY, table="tangents", models=BOTH)
_manifold = partial(
    Claim, GEOMETRY, mark=SECOND_HAND, table="curved", learned=False, models=("manifold",),
    low_bar="the manifolds were built to have it",
)  # fmt: skip
_matched = partial(Claim, mark=RECONSTRUCTED, table="matched", quantity="growth", sign=-1)
_started = ("last_dimension + compression - expansion >= 0", BELOW_LINE)
_trusted = ("last_dimension + compression <= 3.32", LARGE_DIMENSION)
_readable = (_trusted, _started)

CLAIMS = {
    "decoder_bell": _shape(
        wording="Decoders have a bell over depth",
        quantity="bell_blocks",
        smallest=0.05,  # 0.027
        reason=ROUND,
    ),
    "decoder_bell_with_embedding": _shape(
        wording="Decoders have a bell, embedding as an end",
        quantity="bell_with_embedding",
        smallest=0.05,  # 0.035
        reason=ROUND,
    ),
    "flat_encoder": _shape(
        wording="Encoders are flat over depth",
        quantity="std_over_layers",
        smallest=0.02,  # 0.027; a bell of 0.05 in one of four blocks has 0.022
        absence=True,
        bounded=True,
        models=("encoder",),
        seeds=5,
    ),
    "encoder_flatter_than_decoder": _shape(
        wording="Encoders are flatter than matched decoders",
        quantity="std_over_layers",
        smallest=0.05,  # 0.040
        statistic="decoder minus encoder of the same seed, last checkpoint",
        table="pairs",
    ),
    "growth": _shape(
        wording="Anisotropy of decoders grows",
        quantity="growth",
        smallest=0.05,  # 0.049
    ),
    "stabilization": _shape(
        wording="Having grown, it does not fall again",
        quantity="drop_from_peak",
        smallest=0.05,  # 0.070
        statistic=OVER,
        absence=True,
        bounded=True,
        seeds=5,
        regime=(("growth + drop_from_peak >= 0.05", "its anisotropy has never grown by 0.05"),),
    ),
    "expansion_own_rule": _dimension(
        wording="Dimension expands (paper's estimator)",
        quantity="expansion_microscope",  # 0.073
        regime=_readable,
    ),
    "compression_own_rule": _dimension(
        wording="Then it is compressed (paper's estimator)",
        quantity="compression_microscope",  # 0.042
        regime=(
            *_readable,
            (f"expansion_microscope >= {PHASE}", NOT_EXPANDED),
            ("compression_microscope > 0", CENSORED),
        ),
    ),
    "expansion_twonn": _dimension(
        wording="Dimension expands (TwoNN, usual fit)",
        quantity="expansion",  # 0.079
        mark=RECONSTRUCTED,
        regime=_readable,
    ),
    "compression_twonn": _dimension(
        wording="Then it is compressed (TwoNN, usual fit)",
        quantity="compression",  # 0.10
        mark=RECONSTRUCTED,
        regime=(
            *_readable,
            (f"expansion >= {PHASE}", NOT_EXPANDED),
            ("compression > 0", CENSORED),
        ),
    ),
    "decoder_more_anisotropic": _shape(
        wording="Decoders are more anisotropic than encoders",
        quantity="last_anisotropy",
        smallest=0.1,  # 0.079
        statistic="decoder minus encoder of the same seed, mean over blocks, last checkpoint",
        table="pairs",
    ),
    "mask_makes_growth": _matched(
        paper=SHAPE,
        wording="The causal mask makes anisotropy grow",
        smallest=0.05,  # 0.049, of growth
        statistic="causal to bidirectional mask, masked characters, loss-matched",
        contrast=("model.mask", "causal", "bidirectional", "masked"),
    ),
    "objective_makes_growth": _matched(
        paper=SHAPE,
        wording="Predicting the next token makes it grow",
        smallest=0.05,  # 0.049, of growth
        statistic="next to masked characters, causal mask, loss-matched",
        contrast=("objective", "next", "masked", "causal"),
    ),
    "characters_are_anisotropic": _inherent(
        wording="Models of characters are anisotropic",
        quantity="mean_cosine",
        smallest=0.05,  # 0.045
        low_bar="an untrained network has about as much as the bound",
        models=BOTH,
    ),
    "cosine_follows_drift_over_layers": _inherent(
        wording="Mean cosine follows drift over layers",
        quantity="mean_cosine,drift",
        smallest=0.5,
        reason=QUARTER,
        statistic="Spearman's rho over layers, last checkpoint",
        table="layers",
        bounded=True,
        models=BOTH,
        seeds=5,
    ),
    "cosine_follows_drift_over_models": _inherent(
        wording="Mean cosine follows drift over models",
        quantity="mean_cosine,drift",
        smallest=0.5,
        reason=QUARTER,
        statistic=PEARSON,
        table="over_models",
        seeds=4,
    ),
    "cosine_grows": _inherent(
        wording="Mean cosine grows",
        quantity="cosine_growth",
        smallest=0.05,  # 0.051
        low_bar="an untrained network has next to none",
        models=BOTH,
    ),
    "drift_grows": _inherent(
        wording="Drift grows (norm of the mean)",
        quantity="drift_growth",
        smallest=0.5,  # 0.37
        low_bar="all vectors grow longer",
        models=BOTH,
    ),
    "relative_drift_grows": _inherent(
        wording="Drift grows relative to the norms",
        quantity=f"log(mean_cosine / (mean_cosine - cosine_growth)) / {2 * math.log(2):.10f}",
        smallest=0.2,  # 0.28
        mark=RECONSTRUCTED,
        low_bar="it is the growth of the mean cosine on another scale",
        models=BOTH,
    ),
    "untrained_blocks_pass_on": _block(
        wording="An untrained block adds anisotropy",
        quantity="cosine_out-cosine_in",
        smallest=0.05,  # 0.045, of the mean cosine in trained models
        mark=LITERAL,
        statistic="mean cosine out minus in, mean over biases whose cosine in is at most 0.9",
    ),
    "untrained_block_without_bias": _block(
        wording="It does so without any drift",
        quantity="without_bias",
        smallest=0.05,  # the same
        statistic="mean cosine out minus in, without a bias",
    ),
    "bias_raises_score_variance": _block(
        wording="A bias raises the variance of scores",
        quantity="score_std",
        smallest=1.0,
        reason="a doubling",
        statistic="log2 units from no bias to the largest",
        low_bar="scores are products of two biased vectors",
    ),
    "bias_sharpens_untrained_attention": _block(
        wording="A bias sharpens untrained attention",
        quantity="attention_entropy",
        smallest=0.2,  # 0.25 nat, of sharpening in trained models
        mark=RECONSTRUCTED,
        statistic="entropy without a bias minus that with the largest",
    ),
    "queries_and_keys_drift_in_parallel": _inherent(
        wording="Queries and keys drift in parallel",
        quantity="alignment_growth",
        smallest=0.1,  # 0.12
        mark=LITERAL,
        models=BOTH,
    ),
    "attention_sharpens": _inherent(
        wording="Attention sharpens",
        quantity="entropy_decrease",
        smallest=0.2,  # 0.25 nat
        low_bar="untrained attention is uniform",
        models=BOTH,
    ),
    "sharpening_follows_drift": _inherent(
        wording="Sharpening follows drift over models",
        quantity="entropy_decrease,drift_growth",
        smallest=0.5,
        reason=QUARTER,
        mark=RECONSTRUCTED,
        statistic=PEARSON,
        table="over_models",
        seeds=4,
    ),
    "common_query_makes_anisotropy": _matched(
        paper=INHERENT,
        wording="Drift of queries makes anisotropy",
        smallest=0.05,  # 0.049, of growth
        statistic="plain to centered queries, decoder, loss-matched",
        contrast=("model.center_queries", "no center_queries", "center_queries", None),
    ),
    "gradient_in_activation_subspace": _tangent(
        wording="Gradients lie in the activations' subspace",
        quantity="energy-control",
        smallest=0.05,  # 0.034
        statistic="energy minus that of random subspaces of the complement, last checkpoint",
        low_bar=VARIANCE,
    ),
    "gradient_beyond_random_subspaces": _tangent(
        wording="The same, against any random subspace",
        quantity="energy-random",
        smallest=0.02,  # 0.025
        mark=RECONSTRUCTED,
        statistic="energy minus k / D, last checkpoint",
        low_bar=VARIANCE,
    ),
    "gradient_beyond_variance": _tangent(
        wording="Gradients exceed the share of variance",
        quantity="excess",
        smallest=0.02,  # 0.025
        mark=RECONSTRUCTED,
        statistic="e − v, last checkpoint",
    ),
    "gradient_energy_emerges_early": _tangent(
        wording="Gradient energy there emerges early",
        quantity="early-first",
        smallest=0.02,  # 0.017
        mark=SECOND_HAND,
        statistic="energy, mean over the first 30 % of training, minus that at step 0",
    ),
    "gradient_energy_persists": _tangent(
        wording="Gradient energy there persists",
        quantity="late-first",
        smallest=0.05,  # 0.033
        mark=SECOND_HAND,
        statistic="energy at the last checkpoint minus that at step 0",
    ),
    "early_gradients_more_concentrated": _tangent(
        wording="Early gradients are more concentrated",
        quantity="early-late",
        smallest=0.02,  # 0.030
        mark=SECOND_HAND,
        statistic="energy, mean over the first 30 % of training, minus the last checkpoint's",
    ),
    "training_amplifies_tangents": _tangent(
        wording="Training amplifies these directions",
        quantity="amplification",
        smallest=0.2,  # 0.21
        mark=SECOND_HAND,
        statistic="log2 of energy over that of random subspaces, last checkpoint minus step 0",
    ),
    "subspace_carries_anisotropy": _tangent(
        wording="They carry the gradient's anisotropy",
        quantity="isoscore_gain-normal",
        smallest=0.02,  # 0.026
        statistic="gain of IsoScore* minus that of random subspaces, last checkpoint",
    ),
    "frequent_tokens_strongest": _tangent(
        wording="Frequent tokens are most enriched",
        quantity="enrichment",
        smallest=0.05,  # 0.056
        mark=SECOND_HAND,
        statistic="e / v of the most minus that of the least frequent quarter, last checkpoint",
    ),
    "normal_gradient_is_second_order": _manifold(
        wording="The normal gradient is of second order",
        quantity="slope",
        smallest=0.5,
        reason="half of the difference that the theory predicts",
        statistic="exponent across minus exponent along, mean over manifolds and curvatures",
    ),
    "frequency_hides_curvature": _manifold(
        wording="Frequency hides curvature",
        quantity="biased",
        smallest=1.0,
        reason="a halving of the normal share",
        statistic="log2 units of the normal share, no bias minus the largest, mean over manifolds",
    ),
    "trajectories_straighten": Claim(
        paper=STRAIGHTEN,
        wording="Trajectories straighten from block 1 on",
        quantity="straightening_blocks",
        smallest=0.02,  # 0.021 rad
    ),
    "trajectories_straighten_from_embedding": Claim(
        paper=STRAIGHTEN,
        wording="Trajectories straighten from the embedding",
        quantity="straightening_from_embedding",
        smallest=0.01,  # 0.011 rad
        mark=RECONSTRUCTED,
    ),
    "layers_are_nearly_linear": Claim(
        paper=LINEAR,
        wording="Layers are nearly linear",
        quantity="1 - last_linearity",
        smallest=0.05,
        reason="five times the paper's distance from 1",
        mark=RECONSTRUCTED,
        absence=True,
    ),
    "residual_makes_linear": Claim(
        paper=LINEAR,
        wording="The residual makes layers linear",
        quantity="last_linearity - last_linearity_update",
        smallest=0.02,  # 0.015
        low_bar="the residual is the identity, which is linear",
    ),
    "entropy_has_a_valley": Claim(
        paper=LAYERS,
        wording="Entropy is lowest in the middle layers",
        quantity="entropy_valley",
        smallest=0.1,  # 0.14 nat
        mark=SECOND_HAND,
        sign=-1,
    ),
}
