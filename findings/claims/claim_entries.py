"""The claims of three papers, and of later ones, that can be tested here.

A claim says that an effect is positive: `number`, a function of `columns` of the table that `table`
reads. `smallest` is the smallest effect of interest, and `reason` says where it comes from. `SEEDS`
is the rule for most numbers of trained models: twice their standard deviation between seeds, pooled
over conditions, rounded to the nearest of 1, 2 and 5 times a power of ten on a logarithmic scale.
`python -m findings.claims.verdict_tables --spread` prints the number before rounding. Bells and
phases of the dimension have an earlier bound, where the rule gives less or the same.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from anisoscope.analysis.shapes import PHASE

DECODER, ENCODER = ("next", "causal"), ("masked", "bidirectional")  # objective and mask
MODELS = {DECODER: "decoder", ENCODER: "encoder"}  # all others: "other"
BOTH = ("decoder", "encoder")
PLAIN = {  # a model with other values is not one of the papers'
    "model.attention": "softmax",
    "model.qk_norm": False,
    "model.center_queries": False,
    "model.sink": False,
    "train.penalty": 0.0,
}
LEARNED = 1.0  # bits of gain over unigram, below which a model has not learned

SHAPE, INHERENT = "The Shape of Learning", "Anisotropy Is Inherent"
REVISITING = "Revisiting Anisotropy"  # whose formulas are reconstructed, all of them
THREE = (SHAPE, INHERENT, REVISITING)
STRAIGHTENING = "Straightening (Hosseini and Fedorenko 2023)"
LINEAR = "Your Transformer is Secretly Linear (Razzhigaev et al. 2024)"
LAYERS = "Layer by Layer (Skean et al. 2025)"
NEIGHBORHOODS = "Isotropy in the Contextual Embedding Space (Cai et al. 2021)"
OWN = "own comparison"  # which no paper claims

SEEDS = "twice the seeds' standard deviation"
EARLIER = "the bound of earlier findings, above twice the seeds' deviation"
QUARTER = "a correlation that explains a quarter of the variance"
GROWTH = "the bound of anisotropy's growth"
LITERAL, SECOND_HAND, RECONSTRUCTED = "literal", "second-hand", "reconstructed"
PROJECT = "this project"
LAST, OVER_TIME = "last checkpoint", "over checkpoints"
OVER_MODELS = "Pearson's r over conditions, each the mean of its seeds"
ANY_SUBSPACE = "any subspace with more variance than the average one passes"
BUILT = "the manifolds were built to have it"


def itself(value: float) -> float:
    return value


def negative(value: float) -> float:
    return -value


def difference(value: float, other: float) -> float:
    return value - other


def relative_drift_growth(cosine: float, cosine_growth: float) -> float:
    """Return the growth of the mean's length over the norms, in log2 units, by the mean cosine."""
    before = cosine - cosine_growth
    return float(np.log2(cosine / before) / 2) if min(cosine, before) > 0 else np.nan


class Regime(NamedTuple):
    """What must be true of a run, or the claim says nothing of it."""

    columns: tuple[str, ...]
    holds: Callable[..., bool]
    reason: str  # said where it does not hold


class Contrast(NamedTuple):
    """A loss-matched contrast: a setting, its two values, and what is held ("": anything)."""

    setting: str
    before: str
    after: str
    held: str = ""


class Claim(NamedTuple):
    """A claim: `number(*columns)` is positive, for each model of `models`."""

    paper: str
    wording: str  # short, for figures and tables
    smallest: float  # effect of interest
    columns: tuple[str, ...]
    number: Callable[..., float] = itself
    reason: str = SEEDS
    mark: str = LITERAL
    statistic: str = LAST
    table: str = "runs"  # the reader of evidence.py
    absence: bool = False  # the claim is that there is no effect of interest
    bounded: bool = False  # selected or a rank: a sign test in place of Student's
    directed: bool = False  # there is no opposite: an interval below `smallest` excludes the claim
    low_bar: str = ""  # why nearly every trained model passes
    reading_of: str = ""  # the claim that this one reads by another definition
    models: tuple[str, ...] = ("decoder",)
    seeds: int = 3  # seeds, models or pairs: fewer decide nothing
    learned: bool = True  # whether it is about models that have learned
    regime: tuple[Regime, ...] = ()
    contrast: Contrast | None = None


READABLE = (
    Regime(
        ("last_dimension", "compression"),
        lambda last, compression: last + compression <= 3.32,
        "its dimension exceeds 10, above which no estimator is to be trusted",
    ),
    Regime(
        ("last_dimension", "compression", "expansion"),
        lambda last, compression, expansion: last + compression >= expansion,
        "its dimension starts below 1, which no cloud has",
    ),
)
GROWN = (
    Regime(
        ("growth", "drop_from_peak"),
        lambda growth, drop: growth + drop >= 0.05,
        "its anisotropy has never grown by 0.05",
    ),
)


def compressible(suffix: str) -> tuple[Regime, ...]:
    """Return the regime of a compression, which must follow an expansion."""
    return (
        *READABLE,
        Regime(
            (f"expansion{suffix}",),
            lambda expansion: expansion >= PHASE,
            f"it has not expanded by {PHASE:g} log2 units before",
        ),
        Regime(
            (f"compression{suffix}",),
            lambda compression: compression > 0,
            "its dimension is largest at the last checkpoint: a compression may still come",
        ),
    )


PHASES = {"statistic": OVER_TIME, "bounded": True, "seeds": 5, "reason": EARLIER}
BELL = {"directed": True, "reason": EARLIER}
PAIR = "decoder minus encoder of the same seed"
MATCHED = {"number": negative, "table": "matched", "mark": RECONSTRUCTED}
BLOCK = {"table": "untrained", "models": ("block",), "learned": False}
GRADIENT = {"table": "tangents", "models": BOTH, "mark": RECONSTRUCTED}
MANIFOLD = {"table": "curved", "models": ("manifold",), "learned": False}
MANIFOLD |= {"mark": RECONSTRUCTED, "low_bar": BUILT}

# fmt: off
CLAIMS = {
    "decoder_bell": Claim(SHAPE, "Decoders have a bell over depth", 0.05, ("bell_blocks",), **BELL),
    "decoder_bell_with_embedding": Claim(
        SHAPE, "Decoders have a bell, embedding as an end", 0.05, ("bell_with_embedding",),
        reading_of="decoder_bell", **BELL),
    "flat_encoder": Claim(
        SHAPE, "Encoders are flat over depth", 0.02, ("std_over_layers",), absence=True, bounded=True,
        models=("encoder",), seeds=5, reason="a bell of 0.05 in one of four blocks has 0.022"),
    "encoder_flatter_than_decoder": Claim(
        SHAPE, "Encoders are flatter than matched decoders", 0.05, ("std_over_layers",),
        table="pairs", statistic=f"{PAIR}, last checkpoint"),
    "growth": Claim(SHAPE, "Anisotropy of decoders grows", 0.05, ("growth",)),
    "stabilization": Claim(
        SHAPE, "Having grown, it does not fall again", 0.05, ("drop_from_peak",), absence=True,
        bounded=True, seeds=5, statistic=OVER_TIME, regime=GROWN),
    "expansion_own_rule": Claim(
        SHAPE, "Dimension expands (paper's estimator)", 0.2, ("expansion_microscope",),
        regime=READABLE, **PHASES),
    "compression_own_rule": Claim(
        SHAPE, "Then it is compressed (paper's estimator)", 0.2, ("compression_microscope",),
        regime=compressible("_microscope"), **PHASES),
    "expansion_twonn": Claim(
        SHAPE, "Dimension expands (TwoNN, usual fit)", 0.2, ("expansion",), mark=RECONSTRUCTED,
        reading_of="expansion_own_rule", regime=READABLE, **PHASES),
    "compression_twonn": Claim(
        SHAPE, "Then it is compressed (TwoNN, usual fit)", 0.2, ("compression",), mark=RECONSTRUCTED,
        reading_of="compression_own_rule", regime=compressible(""), **PHASES),
    "decoder_more_anisotropic": Claim(
        SHAPE, "Decoders are more anisotropic than encoders", 0.1, ("last_anisotropy",),
        table="pairs", statistic=f"{PAIR}, mean over blocks, last checkpoint"),
    "mask_makes_growth": Claim(
        SHAPE, "The causal mask makes anisotropy grow", 0.05, ("growth",),
        statistic="causal to bidirectional mask, masked characters, loss-matched",
        contrast=Contrast("model.mask", "causal", "bidirectional", "masked"), **MATCHED),
    "objective_makes_growth": Claim(
        SHAPE, "Predicting the next token makes it grow", 0.05, ("growth",),
        statistic="next to masked characters, causal mask, loss-matched",
        contrast=Contrast("objective", "next", "masked", "causal"), **MATCHED),
    "characters_are_anisotropic": Claim(
        INHERENT, "Models of characters are anisotropic", 0.05, ("mean_cosine",), mark=SECOND_HAND,
        models=BOTH, low_bar="an untrained network has about as much as the bound"),
    "cosine_follows_drift_over_layers": Claim(
        INHERENT, "Mean cosine follows drift over layers", 0.5, ("mean_cosine", "drift"),
        table="layers", reason=QUARTER, mark=SECOND_HAND, bounded=True, models=BOTH, seeds=5,
        statistic="Spearman's rho over layers, last checkpoint"),
    "cosine_follows_drift_over_models": Claim(
        INHERENT, "Mean cosine follows drift over models", 0.5, ("mean_cosine", "drift"),
        table="over_models", reason=QUARTER, mark=SECOND_HAND, seeds=4, statistic=OVER_MODELS),
    "cosine_grows": Claim(
        INHERENT, "Mean cosine grows", 0.05, ("cosine_growth",), mark=SECOND_HAND, models=BOTH,
        low_bar="an untrained network has next to none"),
    "drift_grows": Claim(
        INHERENT, "Drift grows (norm of the mean)", 0.5, ("drift_growth",), mark=SECOND_HAND,
        models=BOTH, low_bar="all vectors grow longer"),
    "relative_drift_grows": Claim(
        INHERENT, "Drift grows relative to the norms", 0.2, ("mean_cosine", "cosine_growth"),
        relative_drift_growth, mark=RECONSTRUCTED, models=BOTH, reading_of="cosine_grows",
        low_bar="it is the growth of the mean cosine on another scale"),
    "untrained_blocks_pass_on": Claim(
        INHERENT, "An untrained block adds anisotropy", 0.05, ("added",),
        statistic="mean cosine out minus in, mean over biases whose cosine in is at most 0.9", **BLOCK),
    "untrained_block_without_bias": Claim(
        INHERENT, "It does so without any drift", 0.05, ("added_without_bias",), mark=SECOND_HAND,
        statistic="mean cosine out minus in, without a bias", **BLOCK),
    "bias_raises_score_variance": Claim(
        INHERENT, "A bias raises the variance of scores", 1, ("score_std_growth",),
        reason="a doubling", mark=SECOND_HAND, statistic="log2 units from no bias to the largest",
        low_bar="scores are products of two biased vectors", **BLOCK),
    "bias_sharpens_untrained_attention": Claim(
        INHERENT, "A bias sharpens untrained attention", 0.2, ("entropy_decrease",),
        mark=RECONSTRUCTED, statistic="entropy without a bias minus that with the largest", **BLOCK),
    "queries_and_keys_drift_in_parallel": Claim(
        INHERENT, "Queries and keys drift in parallel", 0.1, ("alignment_growth",), models=BOTH),
    "attention_sharpens": Claim(
        INHERENT, "Attention sharpens", 0.2, ("entropy_decrease",), mark=SECOND_HAND, models=BOTH,
        low_bar="untrained attention is uniform"),
    "sharpening_follows_drift": Claim(
        INHERENT, "Sharpening follows drift over models", 0.5, ("entropy_decrease", "drift_growth"),
        table="over_models", reason=QUARTER, mark=RECONSTRUCTED, seeds=4, statistic=OVER_MODELS),
    "common_query_makes_anisotropy": Claim(
        INHERENT, "Drift of queries makes anisotropy", 0.05, ("growth",),
        statistic="plain to centered queries, decoder, loss-matched",
        contrast=Contrast("model.center_queries", "no center_queries", "center_queries"), **MATCHED),
    "gradient_in_activation_subspace": Claim(
        REVISITING, "Gradients lie in the activations' subspace", 0.05, ("energy", "control"),
        difference, low_bar=ANY_SUBSPACE,
        statistic="energy minus that of random subspaces of the complement, last checkpoint", **GRADIENT),
    "gradient_beyond_random_subspaces": Claim(
        REVISITING, "The same, against any random subspace", 0.02, ("energy", "random"), difference,
        low_bar=ANY_SUBSPACE, reading_of="gradient_in_activation_subspace",
        statistic="energy minus k / D, last checkpoint", **GRADIENT),
    "gradient_beyond_variance": Claim(
        REVISITING, "Gradients exceed the share of variance", 0.02, ("excess",),
        statistic="e − v, last checkpoint", **GRADIENT),
    "gradient_energy_emerges_early": Claim(
        REVISITING, "Gradient energy there emerges early", 0.02, ("early_energy", "first_energy"),
        difference, **GRADIENT,
        statistic="energy, mean over the first 30 % of training, minus that at step 0"),
    "gradient_energy_persists": Claim(
        REVISITING, "Gradient energy there persists", 0.05, ("energy", "first_energy"), difference,
        statistic="energy at the last checkpoint minus that at step 0", **GRADIENT),
    "early_gradients_more_concentrated": Claim(
        REVISITING, "Early gradients are more concentrated", 0.02, ("early_energy", "energy"),
        difference, **GRADIENT,
        statistic="energy, mean over the first 30 % of training, minus the last checkpoint's"),
    "training_amplifies_tangents": Claim(
        REVISITING, "Training amplifies these directions", 0.2, ("log_ratio", "first_log_ratio"),
        difference, **GRADIENT,
        statistic="log2 of energy over that of random subspaces, last checkpoint minus step 0"),
    "subspace_carries_anisotropy": Claim(
        REVISITING, "They carry the gradient's anisotropy", 0.02,
        ("isoscore_gain", "isoscore_gain_normal"), difference, **GRADIENT,
        statistic="gain of IsoScore* minus that of random subspaces, last checkpoint"),
    "frequent_tokens_strongest": Claim(
        REVISITING, "Frequent tokens are most enriched", 0.05, ("most_frequent", "least_frequent"),
        difference, **GRADIENT,
        statistic="e / v of the most minus that of the least frequent quarter, last checkpoint"),
    "normal_gradient_is_second_order": Claim(
        REVISITING, "The normal gradient is of second order", 0.5, ("slope_difference",),
        reason="half of the difference that the theory predicts", **MANIFOLD,
        statistic="exponent across minus exponent along, mean over manifolds and curvatures"),
    "frequency_hides_curvature": Claim(
        REVISITING, "Frequency hides curvature", 1, ("share_decrease",), **MANIFOLD,
        reason="a halving of the normal share",
        statistic="log2 units of the normal share, no bias minus the largest, mean over manifolds"),
    "trajectories_straighten": Claim(
        STRAIGHTENING, "Trajectories straighten from block 1 on", 0.02, ("straightening_blocks",)),
    "trajectories_straighten_from_embedding": Claim(
        STRAIGHTENING, "Trajectories straighten from the embedding", 0.01,
        ("straightening_from_embedding",), mark=RECONSTRUCTED, reading_of="trajectories_straighten"),
    "layers_are_nearly_linear": Claim(
        LINEAR, "Layers are nearly linear", 0.05, ("last_linearity",), lambda score: 1 - score,
        absence=True, mark=RECONSTRUCTED, reason="five times the paper's distance from 1"),
    "residual_makes_linear": Claim(
        LINEAR, "The residual makes layers linear", 0.02, ("last_linearity", "last_linearity_update"),
        difference, low_bar="the residual is the identity, which is linear"),
    "entropy_has_a_valley": Claim(
        LAYERS, "Entropy is lowest in the middle layers", 0.1, ("entropy_valley",), negative,
        mark=SECOND_HAND),
    "neighborhoods_more_isotropic": Claim(
        NEIGHBORHOODS, "Neighborhoods are more isotropic than the cloud", 0.05,
        ("last_anisotropy", "last_local_anisotropy"), difference, reason=GROWTH, models=BOTH,
        mark=RECONSTRUCTED,
        statistic="anisotropy of the cloud minus the mean over neighborhoods of 20, last checkpoint"),
    "neighborhoods_beyond_gaussian": Claim(
        OWN, "Neighborhoods are more isotropic than Gaussian ones", 0.05,
        ("last_local_anisotropy_excess",), negative, reason=GROWTH, models=BOTH, mark=PROJECT,
        statistic="anisotropy of Gaussian neighborhoods of equal covariance minus theirs, last checkpoint"),
}
# fmt: on
