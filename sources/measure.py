"""The one place where metrics are composed: a model's activations on the probe -> every quantity asked for.

Arrays carry the letters of `models`, and W windows of a probe batch, G probe batches, S position sets, R replicates
(see panel/intervals.py).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from metrics.attention import attention_statistics, attention_sums, share_of_means
from metrics.similarity import cosine, cross_cosine, drift, fluctuation, mean_cosine, mean_vector
from panel.clouds import Searched, Values, gaussian, leave_out, measure_cloud, search
from panel.compare import compare, nearest
from panel.config import MeasureConfig
from panel.projection import VECTORS, head_vectors
from sources.probe import Probe

OF_POINTS = ("spectrum", "outliers", "dimension", "scale", "similarity")
OF_GAUSSIAN = ("dimension", "scale")  # it has the spectrum of the text, and neither its mean nor its coordinates


def make_measure(
    apply: Callable[[Any, Array], tuple[Array, Any]],
    visible_TT: Array,
    settings: MeasureConfig,
    over_batches: Callable[[Callable], Callable] = lambda work: work,
) -> Callable[[Any, dict[str, Any], Probe], Values]:
    """measure(params, references, probe) -> {quantity: array of the quantity's raw_dims}, pure and un-jitted.

    The family projection adds vectors of the first batch, which are no quantity (see panel/projection.py).
    `apply(params, tokens_BT) -> (logits, Activations)` must compute in float32; `visible_TT` says which key (column)
    each query sees. `references` are the parameters to compare with, {"previous": …, "last": …}, or {} without the
    family comparison. Names end in _shuffled and _gaussian where they belong to a null model.

    Batches, position sets, layers and heads go one after another: the memory is the forward passes of one batch and
    the clouds of its layers; `over_batches(work)` may share the batches of work(params, references, batches) out to
    devices. Without position 0 the clouds leave out the first vector of each window, and attention
    leaves it out as query and as key: the softmax over the other keys tells what sharpness there is apart from a sink
    on the first character.
    """
    families, groups = settings.families, settings.groups
    of_points = tuple(family for family in families if family in OF_POINTS)
    of_gaussian = tuple(family for family in of_points if family in OF_GAUSSIAN)
    inputs = ("", "_shuffled") if "shuffled" in settings.nulls else ("",)
    clouds = (*inputs, "_gaussian") if "gaussian" in settings.nulls and of_gaussian else inputs
    visible_STT = jnp.stack([visible_TT, visible_TT.at[0].set(False).at[:, 0].set(False)])

    def of_positions(activations_Z: Any, others: dict[str, Array], picks_P: Array, visible_TT: Array, key: Array):
        """Z inputs, text first; what a Gaussian cloud has too is measured in one loop with it."""
        clouds_ZNPD = jax.vmap(_clouds, (0, None))(activations_Z.resid_NBTD, picks_P)
        rest = tuple(family for family in of_points if family not in of_gaussian)
        values = _named(inputs, _over(lambda cloud_PD: measure_cloud(cloud_PD, None, rest, groups), clouds_ZNPD))
        if "_gaussian" in clouds:
            null_NPD = jax.lax.map(lambda cloud_PD: gaussian(cloud_PD, key), clouds_ZNPD[0])
            clouds_ZNPD = jnp.concatenate([clouds_ZNPD, null_NPD[None]])

        def of_cloud(cloud_PD: Array) -> tuple[Values, Searched | None]:
            searched = search(cloud_PD, families, groups)
            values = measure_cloud(cloud_PD, searched, of_gaussian, groups)
            return values, nearest(searched) if "comparison" in families else None

        found, nearest_ZN = _over(of_cloud, clouds_ZNPD if of_gaussian else clouds_ZNPD[:1])
        values |= _named(clouds, found)
        if "attention" in families:
            heads = jax.lax.map(
                lambda activations: measure_attention(activations, picks_P, visible_TT, groups), activations_Z
            )
            values |= _named(inputs, heads)
        if "comparison" in families:
            others_NPD = {name: _clouds(resid_NBTD, picks_P) for name, resid_NBTD in others.items()}
            values |= compare(clouds_ZNPD[0], jax.tree.map(lambda x: x[0], nearest_ZN), others_NPD, groups)
        return values

    # Accelerators round the factors of float32 products to TF32 or bfloat16 unless told not to.
    @jax.default_matmul_precision("highest")
    def of_batches(params: Any, references: dict[str, Any], batches: tuple[Array, ...]) -> Values:
        def of_batch(batch: tuple[Array, Array, Array, Array]) -> Values:
            tokens_WT, shuffled_WT, picks_SP, key = batch
            tokens_ZWT = jnp.stack([tokens_WT, shuffled_WT][: len(inputs)])
            activations_Z = jax.lax.map(lambda tokens_WT: apply(params, tokens_WT)[1], tokens_ZWT)
            others = {name: apply(other, tokens_WT)[1].resid_NBTD for name, other in references.items()}
            values = jax.lax.map(
                lambda chosen: of_positions(activations_Z, others, *chosen, key), (picks_SP, visible_STT)
            )
            if "projection" in families:
                q_NBTHK, k_NBTHK = activations_Z.q_NBTHK[0], activations_Z.k_NBTHK[0]
                values |= head_vectors(q_NBTHK, k_NBTHK, picks_SP[0], settings.projected_head)
            return values

        return jax.lax.map(of_batch, batches)

    def measure(params: Any, references: dict[str, Any], probe: Probe) -> Values:
        keys_G = jax.random.split(jax.random.key(settings.seed), settings.batches)
        picks_GSP = jnp.swapaxes(probe.picks_SGP, 0, 1)
        batches = (probe.tokens_GWT, probe.shuffled_GWT, picks_GSP, keys_G)
        values = over_batches(of_batches)(params, references, batches)
        return {name: value[0] if name in VECTORS else value for name, value in values.items()}

    return measure


def _over(of_cloud: Callable[[Array], Any], clouds_ZNPD: Array) -> Any:
    """One cloud after another, in one loop over inputs and layers."""
    inputs, layers = clouds_ZNPD.shape[:2]
    found = jax.lax.map(of_cloud, clouds_ZNPD.reshape(inputs * layers, *clouds_ZNPD.shape[2:]))
    return jax.tree.map(lambda value: value.reshape(inputs, layers, *value.shape[1:]), found)


def _named(suffixes: tuple[str, ...], values_Z: Values) -> Values:
    """The values of each input or null model under names of their own."""
    return {name + suffix: value[z] for name, value in values_Z.items() for z, suffix in enumerate(suffixes)}


def _clouds(resid_NBTD: Array, picks_P: Array) -> Array:
    return resid_NBTD.reshape(resid_NBTD.shape[0], -1, resid_NBTD.shape[-1])[:, picks_P]


def measure_attention(activations: Any, picks_P: Array, visible_TT: Array, groups: int) -> Values:
    """The attention family: clouds of queries and keys at the picked positions, scores at all."""
    keep_RP = leave_out(groups, picks_P.size)
    keep_RB = leave_out(groups, activations.q_NBTHK.shape[1])

    def of_head(qk_BTK: tuple[Array, Array]) -> Values:
        q_PK, k_PK = (x_BTK.reshape(-1, x_BTK.shape[-1])[picks_P] for x_BTK in qk_BTK)
        sums = attention_sums(*qk_BTK, visible_TT)

        def read(keep: tuple[Array, Array]) -> Values:
            keep_P, keep_B = keep
            statistics = attention_statistics(sums, keep_B)
            mean_q_K, mean_k_K = mean_vector(q_PK, keep_P), mean_vector(k_PK, keep_P)
            score_of_means = (mean_q_K * mean_k_K).sum() * mean_q_K.size**-0.5
            return {
                "query_drift": drift(q_PK, keep_P),
                "key_drift": drift(k_PK, keep_P),
                "query_fluctuation": fluctuation(q_PK, keep_P),
                "key_fluctuation": fluctuation(k_PK, keep_P),
                "query_key_alignment": cosine(mean_q_K, mean_k_K),
                "query_cosine": mean_cosine(q_PK, keep_P),
                "key_cosine": mean_cosine(k_PK, keep_P),
                "query_key_cosine": cross_cosine(q_PK, k_PK, keep_P, keep_P),
                "score_mean": statistics.score_mean,
                "score_std": statistics.score_std,
                "score_std_within": statistics.score_std_within,
                "score_of_means": score_of_means,
                "score_share_of_means": share_of_means(score_of_means, statistics),
                "attention_entropy": statistics.entropy,
                "attention_max": statistics.maximum,
                "attention_min": statistics.minimum,
                "attention_first": statistics.first,
                "attention_most": statistics.most,
            }

        return jax.vmap(read)((keep_RP, keep_RB))

    def of_block(qk_BTHK: tuple[Array, Array]) -> Values:
        return jax.lax.map(of_head, tuple(jnp.moveaxis(x_BTHK, 2, 0) for x_BTHK in qk_BTHK))

    return jax.lax.map(of_block, (activations.q_NBTHK, activations.k_NBTHK))
