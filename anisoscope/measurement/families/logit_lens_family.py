"""Family logit_lens: the prediction of each layer, read through the final norm and unembedding."""

import math

import jax
import jax.numpy as jnp
from jax import Array

from anisoscope.measurement.quantity import (
    AT_LEAST_1,
    AT_MOST_1,
    Family,
    Quantity,
    Values,
    magnitude,
    share,
)
from anisoscope.measurement.resampling import Labels, fold_means
from anisoscope.metrics import logit_lens
from anisoscope.metrics.logit_lens import Unembedding

LENS_SOURCE = "nostalgebraist 2020, interpreting GPT: the logit lens"
TRUE = (
    "y the token that the point is to predict: the next, or for masked characters its own; points "
    "without one are left out"
)
LOGIT_LENS = {
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
        f"|U'W|_F^2 / k, U the k = {logit_lens.PRINCIPAL_DIRECTIONS} leading principal directions of the "
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
    clouds_NPD: Array, unembedding: Unembedding, target_P: Array | None, labels: Labels
) -> Values:
    """Measure every layer, (layer, R); without targets, quantities of the true token are NaN."""
    points, keep_RP = clouds_NPD.shape[1], labels.keep_RP
    target_P = jnp.full(points, -1) if target_P is None else target_P
    lens, tokens_DC = (
        logit_lens.lens(clouds_NPD, unembedding, target_P),
        logit_lens.token_directions(unembedding),
    )

    def measure_cloud(cloud_PD: Array) -> Values:
        def read(keep_P: Array) -> Values:
            collapse = logit_lens.collapse(
                cloud_PD, target_P, unembedding.unembedding_DV.shape[1], keep_P, labels.valid_P
            )
            return {
                "unembedding_alignment": logit_lens.alignment(cloud_PD, tokens_DC, keep_P),
                "target_token_collapse": collapse,
            }

        return jax.lax.map(read, jnp.asarray(keep_RP))

    known_P = target_P >= 0
    values = {
        "logit_lens_entropy": fold_means(lens.entropy_NP, keep_RP),
        "logit_lens_divergence": fold_means(lens.divergence_NP, keep_RP),
        "logit_lens_loss": fold_means(-lens.log_probability_NP / math.log(2), keep_RP, known_P),
        "logit_lens_probability": fold_means(jnp.exp(lens.log_probability_NP), keep_RP, known_P),
        "logit_lens_rank": fold_means(lens.rank_NP, keep_RP, known_P),
        "logit_lens_settled": fold_means(lens.settled_NP, keep_RP),
    }
    return values | jax.lax.map(measure_cloud, clouds_NPD)


FAMILIES = {"logit_lens": Family(measure_logit_lens, LOGIT_LENS, ("untrained",))}
