"""Family logit_lens: the prediction of each layer, through the final norm and unembedding.

Here X are points or tokens.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from anisoscope.metrics.cloud import (
    AnyArray,
    Points,
    Scalar,
    Weights,
    centered,
    product,
    scale_to_unit,
)
from anisoscope.metrics.eigen import eigh
from anisoscope.metrics.quantity import (
    AT_LEAST_1,
    AT_MOST_1,
    Family,
    Quantity,
    Values,
    magnitude,
    share,
)
from anisoscope.metrics.resampling import Labels, fold_means

NORM_KINDS = {"layer": (1.0, 1.0), "rms": (0.0, 1.0), "none": (0.0, 0.0)}  # norm: centers, divides
LOGITS_AT_ONCE = 2**24  # logits that exist at once, at least the logits of a point
PRINCIPAL_DIRECTIONS = 10  # dimensions of the principal subspaces of a layer and of the unembedding


class Unembedding(NamedTuple):
    """How logits are computed from a vector: a norm, then a matrix.

    All fields are arrays, so that models of one shape are one program. logits = W'(scale z + shift)
    + bias, z = y / sqrt(mean(y^2) + epsilon) where it divides, y = x - mean(x) where it centers;
    with a cap c they are c tanh(logits / c).
    """

    unembedding_DV: Float[Array, "D V"]
    scale_D: Float[Array, " D"]
    shift_D: Float[Array, " D"]
    centers: Scalar
    divides: Scalar
    epsilon: Scalar
    bias_V: Float[Array, " V"] | None = None
    cap: Scalar | None = None


class Lens(NamedTuple):
    """Values of the logit lens for every layer and point."""

    entropy_NP: Float[Array, "N P"]
    divergence_NP: Float[Array, "N P"]
    log_probability_NP: Float[Array, "N P"]
    rank_NP: Float[Array, "N P"]
    settled_NP: Float[Array, "N P"]


def build_unembedding(
    unembedding_DV: Float[AnyArray, "D V"],
    kind: str = "none",
    scale: Float[AnyArray, " D"] | float = 1.0,
    shift: Float[AnyArray, " D"] | float = 0.0,
    epsilon: float = 1e-5,
    bias: Float[AnyArray, " V"] | None = None,
    cap: float | None = None,
) -> Unembedding:
    """Build an unembedding with a norm: "layer" (LayerNorm), "rms" (RMSNorm) or "none"."""
    width = len(unembedding_DV)
    scale_D, shift_D = (
        jnp.broadcast_to(jnp.asarray(value, jnp.float32), (width,)) for value in (scale, shift)
    )
    numbers = (jnp.float32(number) for number in (*NORM_KINDS[kind], epsilon))
    bias_V, cap = (
        None if value is None else jnp.asarray(value, jnp.float32) for value in (bias, cap)
    )
    return Unembedding(
        jnp.asarray(unembedding_DV, jnp.float32), scale_D, shift_D, *numbers, bias_V, cap
    )


def logits(x_PD: Points, unembedding: Unembedding) -> Float[Array, "P V"]:
    """Compute the logits of vectors: (P, D) -> (P, V)."""
    x_PD = jnp.asarray(x_PD, jnp.float32)
    x_PD = x_PD - unembedding.centers * x_PD.mean(axis=1, keepdims=True)
    size_P1 = jnp.sqrt(jnp.square(x_PD).mean(axis=1, keepdims=True) + unembedding.epsilon)
    x_PD = x_PD / (unembedding.divides * size_P1 + 1.0 - unembedding.divides)
    x_PD = x_PD * unembedding.scale_D[None] + unembedding.shift_D[None]
    logits_PV = product(x_PD, unembedding.unembedding_DV)
    logits_PV = logits_PV if unembedding.bias_V is None else logits_PV + unembedding.bias_V[None]
    if unembedding.cap is None:
        return logits_PV
    return unembedding.cap * jnp.tanh(logits_PV / unembedding.cap)


def lens(
    clouds_NPD: Float[AnyArray, "N P D"], unembedding: Unembedding, target_P: Int[AnyArray, " P"]
) -> Lens:
    """Logit lens: p_l = softmax of the logits of layer l; the output is p of the last layer.

    The target is the token that a point is to predict, below 0 for none. entropy: -sum_v p_l ln
    p_l, nat. divergence: sum_v p ln(p / p_l), nat. log_probability: ln p_l of the target. rank: 1
    plus the number of tokens with larger logits; both NaN without a target. settled: 1 where layer
    l and all later ones predict the same token as the output, else 0. NaN if not finite.
    """
    layers, vocabulary = len(clouds_NPD), unembedding.unembedding_DV.shape[1]
    clouds_PND = jnp.moveaxis(jnp.asarray(clouds_NPD, jnp.float32), 0, 1)

    def read_point(point: tuple[Array, Array]) -> tuple[Array, ...]:
        x_ND, target = point
        logits_NV = logits(x_ND, unembedding)
        log_p_NV = jax.nn.log_softmax(logits_NV, axis=1)
        output_V, p_NV = log_p_NV[-1], jnp.exp(log_p_NV)
        divergence_N = (p_NV[-1][None] * (output_V[None] - log_p_NV)).sum(axis=1)
        target_logit_N = logits_NV[:, jnp.maximum(target, 0)]
        answer_N = logits_NV.argmax(axis=1)
        settled_N = jax.lax.cummin((answer_N == answer_N[-1]).astype(jnp.float32), reverse=True)
        finite_N = log_p_NV.sum(axis=1) * 0.0  # keeps NaN, which comparisons would hide
        known_N = finite_N + jnp.where(target >= 0, 0.0, jnp.nan)
        return (
            -(p_NV * log_p_NV).sum(axis=1),
            jnp.maximum(divergence_N, 0.0),
            log_p_NV[:, jnp.maximum(target, 0)] + known_N,
            1.0 + (logits_NV > target_logit_N[:, None]).sum(axis=1) + known_N,
            settled_N + finite_N,
        )

    at_once = max(1, min(len(clouds_PND), LOGITS_AT_ONCE // (layers * vocabulary)))
    values_PN = jax.lax.map(read_point, (clouds_PND, jnp.asarray(target_P)), batch_size=at_once)
    return Lens(*(value_PN.T for value_PN in values_PN))


def token_directions(unembedding: Unembedding) -> Float[Array, "D C"]:
    """Leading principal directions of the unembedding times the norm's scale.

    Their number is the least of 10, D, V - 1. The tokens' mean, which softmax ignores, is removed.
    """
    scaled_DV = unembedding.unembedding_DV * unembedding.scale_D[:, None]
    count = min(PRINCIPAL_DIRECTIONS, max(scaled_DV.shape[1] - 1, 1))
    return _leading(scaled_DV - scaled_DV.mean(axis=1, keepdims=True), count)


def alignment(cloud_PD: Points, token_DC: Float[AnyArray, "D C"], keep_P: Weights = None) -> Scalar:
    """Share of a cloud's k leading principal directions in those of the unembedding: |U'W|_F^2 / k.

    U are the leading eigenvectors of the cloud's covariance, W the `token_directions`; weights 1 or
    0 of the points. Range: [0, 1]; k/D for unrelated directions. NaN if not finite.
    """
    cloud_PD = jnp.asarray(cloud_PD, jnp.float32)
    keep_P = jnp.ones(len(cloud_PD)) if keep_P is None else keep_P
    about_PD = cloud_PD - (product(keep_P, cloud_PD) / keep_P.sum())[None]
    cloud_DC = _leading(about_PD.T * keep_P[None], token_DC.shape[1])
    shared_CC = product(cloud_DC.T, token_DC)
    return jnp.square(shared_CC).sum() / cloud_DC.shape[1]


def collapse(
    cloud_PD: Points,
    target_P: Int[AnyArray, " P"],
    vocabulary: int,
    keep_P: Float[AnyArray, " P"],
    valid_P: Bool[AnyArray, " P"] | None = None,
) -> Scalar:
    """Collapse of the points of one target to their mean: 1 - (S_W / (n - K)) / (S_T / (n - 1)).

    S_W and S_T are the sums of squared distances from the means of the K targets and of all n
    points that have a target; weights 1 or 0. Range: up to 1, where all points of a target are
    equal; 0 on average for unrelated targets. NaN with as many targets as points, or if not finite.
    """
    x_PD = scale_to_unit(centered(cloud_PD, valid_P))
    weight_P = keep_P * (target_P >= 0)
    class_P = jnp.maximum(jnp.asarray(target_P), 0)
    # no more classes than points: sums of all tokens could be larger than the model
    if vocabulary > len(class_P):
        class_P = jnp.unique(class_P, return_inverse=True, size=len(class_P))[1]
        vocabulary = len(class_P)
    count_V = jnp.zeros(vocabulary).at[class_P].add(weight_P)
    sum_VD = jnp.zeros((vocabulary, x_PD.shape[1])).at[class_P].add(weight_P[:, None] * x_PD)
    count, sum_D = count_V.sum(), sum_VD.sum(axis=0)
    square = product(weight_P, jnp.square(x_PD).sum(axis=1))
    within = square - (jnp.square(sum_VD).sum(axis=1) / jnp.maximum(count_V, 1.0)).sum()
    total, free = square - jnp.square(sum_D).sum() / count, count - (count_V > 0).sum()
    return 1.0 - within / jnp.where(free > 0, free, jnp.nan) / (total / (count - 1))


def _leading(x_DX: Float[Array, "D X"], count: int) -> Float[Array, "D C"]:
    """Compute at most `count` leading left singular vectors."""
    x_DX = x_DX / jnp.abs(x_DX).max()  # squares stay in float32
    return eigh(product(x_DX, x_DX.T))[1][:, -count:]


LENS_SOURCE = "nostalgebraist 2020, interpreting GPT: the logit lens"
TRUE = (
    "y the token that the point is to predict: the next, or for masked characters its own; points "
    "without one are left out"
)
LENS_QUANTITIES = {
    "logit_lens_entropy": magnitude(
        "entropy of the logit lens",
        "mean over points of -sum p_l ln p_l, p_l = softmax(W' norm(x_l)): final norm and "
        "unembedding at layer l",
        LENS_SOURCE,
        units="nat",
    ),
    "logit_lens_divergence": magnitude(
        "divergence of the logit lens from the output",
        "mean over points of sum p ln(p / p_l), p that of the last layer",
        f"{LENS_SOURCE}; Belrose et al. 2023, Eliciting Latent Predictions with the Tuned Lens",
        units="nat",
    ),
    "logit_lens_loss": magnitude(
        "loss of the logit lens",
        f"mean over points of -log2 p_l(y), {TRUE}",
        LENS_SOURCE,
        units="bit",
    ),
    "logit_lens_probability": share(
        "probability of the true token", f"mean over points of p_l(y), {TRUE}", LENS_SOURCE
    ),
    "logit_lens_rank": Quantity(
        "rank of the true token",
        f"mean over points of 1 + the number of tokens with larger logits than y, {TRUE}",
        LENS_SOURCE,
        range=AT_LEAST_1,
    ),
    "logit_lens_settled": share(
        "share of answers that are settled",
        "share of points whose largest logit, at this layer and all later ones, is where the "
        "output has it; 1 less its mean over blocks is the mean share of the blocks before the "
        "answer settles",
    ),
    "unembedding_alignment": share(
        "alignment with the unembedding",
        f"|U'W|_F^2 / k, U the k = {PRINCIPAL_DIRECTIONS} leading principal directions of the "
        "layer, W those of the tokens' unembeddings about their mean, times the norm's scale, k at "
        "most the tokens less one; k/D by chance",
        "reconstruction: squared cosines of principal subspaces, this project",
    ),
    "target_token_collapse": Quantity(
        "collapse of the points of one true token",
        "1 - (S_W / (n - K)) / (S_T / (n - 1)), S_W and S_T the squared distances from the means "
        f"of the K true tokens and of all n points, {TRUE}; 0 where tokens say nothing about the "
        "points",
        "reconstruction: NC1 of Papyan, Han and Donoho 2020 with tokens as classes, by traces",
        range=AT_MOST_1,
    ),
}


def measure_logit_lens(
    clouds_NPD: AnyArray, unembedding: Unembedding, target_P: AnyArray | None, labels: Labels
) -> Values:
    """Measure every layer, (layer, R); without targets, quantities of the true token are NaN."""
    points, keep_RP = clouds_NPD.shape[1], labels.keep_RP
    target_P = jnp.full(points, -1) if target_P is None else target_P
    found = lens(clouds_NPD, unembedding, target_P)
    tokens_DC = token_directions(unembedding)

    def measure_cloud(cloud_PD: Array) -> Values:
        def read(keep_P: Array) -> Values:
            return {
                "unembedding_alignment": alignment(cloud_PD, tokens_DC, keep_P),
                "target_token_collapse": collapse(
                    cloud_PD, target_P, unembedding.unembedding_DV.shape[1], keep_P, labels.valid_P
                ),
            }

        return jax.lax.map(read, jnp.asarray(keep_RP))

    known_P = target_P >= 0
    values = {
        "logit_lens_entropy": fold_means(found.entropy_NP, keep_RP),
        "logit_lens_divergence": fold_means(found.divergence_NP, keep_RP),
        "logit_lens_loss": fold_means(-found.log_probability_NP / math.log(2), keep_RP, known_P),
        "logit_lens_probability": fold_means(jnp.exp(found.log_probability_NP), keep_RP, known_P),
        "logit_lens_rank": fold_means(found.rank_NP, keep_RP, known_P),
        "logit_lens_settled": fold_means(found.settled_NP, keep_RP),
    }
    return values | jax.lax.map(measure_cloud, clouds_NPD)


LOGIT_LENS = Family("logit_lens", measure_logit_lens, LENS_QUANTITIES, ("untrained",))
