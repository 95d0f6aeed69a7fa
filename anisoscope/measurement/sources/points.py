"""A table of single points, where it is asked for: what each is, where it stands, and how it lies in its cloud.

points/<step>.nc in the folder of a run holds the points of the first batch, all positions: those of the first cloud.

Letters: G probe batches, M all positions of the windows, S sets of positions, Z inputs of a batch.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax import Array

from anisoscope.config.experiment import Config
from anisoscope.data import frequency
from anisoscope.data.corpus import Corpus
from anisoscope.measurement.families.trajectory import STRAIGHTEN
from anisoscope.measurement.quantity import HERE, INHERENT, SHAPE_OF_LEARNING
from anisoscope.measurement.sources.activations import next_tokens
from anisoscope.measurement.sources.probe import Probe
from anisoscope.measurement.sources.program import probe_of
from anisoscope.measurement.tables.measurements import POINTS_VERSION
from anisoscope.metrics.neighbours import nearest_neighbours
from anisoscope.metrics.points import of_points
from anisoscope.metrics.scale import local_dimensions
from anisoscope.metrics.trajectory import turns
from anisoscope.models import transformer

NEIGHBOURS = (20, 64, 128)  # of a local dimension: more of them see a larger scale, and have less noise
VARIABLES = {  # what is read of each point: name, units, formula, source
    "local_dimension": (
        "local dimension",
        "1",
        "(k - 2) / sum_{j < k} ln(r_k / r_j), r_j the distance to the j-th nearest distinct point, k = neighbours; "
        "its standard deviation is d / sqrt(k - 3) where the density is even",
        "Levina and Bickel 2004, with the k - 2 they name",
    ),
    "norm": ("norm", "activation", "|x|", INHERENT),
    "cosine_to_mean": ("cosine to the mean", "1", "<x, m> / (|x| |m|), m = E x over the cloud", INHERENT),
    "first_score": (
        "score on the first principal direction",
        "activation",
        "<x - m, v>, v the first principal direction, turned so that the third moment of the scores is positive",
        f"{SHAPE_OF_LEARNING}; the sign: {HERE}",
    ),
    "turning_angle": (
        "turning angle at the token",
        "rad",
        "arccos <v, w> / (|v| |w|), v = x_t - x_(t-1), w = x_(t+1) - x_t; NaN at both ends of a window",
        STRAIGHTEN,
    ),
    "loss": ("loss of the model", "bit", "-log2 p(y), y the token that the point is to predict; NaN: none", HERE),
    "entropy": ("entropy of the model's output", "bit", "-sum p log2 p; NaN: it predicts no tokens", HERE),
}
DIMS = {"local_dimension": ("layer", "neighbours", "point"), "loss": ("point",), "entropy": ("point",)}


def table(values: dict[str, np.ndarray], places: dict[str, Any], attributes: dict[str, Any]) -> xr.Dataset:
    """Arrays (layer, point), of local dimensions (layer, neighbours, point), of loss and entropy (point,)."""
    variables = {}
    for name, (long_name, units, formula, source) in VARIABLES.items():
        dims = DIMS.get(name, ("layer", "point"))
        words = {"long_name": long_name, "units": units, "formula": formula, "source": source}
        variables[name] = dims, values[name], words
    layers, points = values["norm"].shape
    labels = {"layer": np.arange(layers), "neighbours": list(NEIGHBOURS), "point": np.arange(points)}
    return xr.Dataset(variables, labels | places, attributes | {"version": POINTS_VERSION})


def places_of(probe: Probe, corpus: Corpus) -> dict[str, Any]:
    """Where every point stands, and what stands there."""
    tokens_WT, picks_P = probe.tokens_GWT[0], probe.picks_SGP[0, 0]
    window_P, time_P = np.divmod(picks_P, tokens_WT.shape[1])
    token_P = tokens_WT.ravel()[picks_P]
    frequencies = []
    for length in frequency.LENGTHS:
        log_frequency_C = frequency.log_frequency(corpus.train, length, corpus.vocab_size)
        type_P = frequency.types(tokens_WT, length, corpus.vocab_size).ravel()[picks_P]
        frequencies.append(np.where(type_P == frequency.NONE, np.nan, np.exp(log_frequency_C[type_P])))
    words = {"long_name": "share of the training split", "formula": "of the last n characters; NaN: fewer before it"}
    return {
        "ngram": list(frequency.LENGTHS),
        "window": ("point", window_P.astype(np.int32)),
        "position": ("point", time_P.astype(np.int32)),
        "token_id": ("point", token_P),
        "token": ("point", corpus.characters(token_P)),
        "frequency": (("ngram", "point"), np.array(frequencies), words),
    }


def program(config: Config, corpus: Corpus) -> Callable[[dict, dict], xr.Dataset]:
    """table(params, attributes) of a checkpoint, read in float32 whatever it was trained in; compiled once."""
    network, probe = transformer.build(config.model, corpus.vocab_size, "float32"), probe_of(config, corpus)
    tokens_WT, picks_P = jnp.asarray(probe.tokens_GWT[0]), probe.picks_SGP[0, 0]
    places = places_of(probe, corpus)
    target_WT = next_tokens(tokens_WT) if probe.target_GZWT is None else jnp.asarray(probe.target_GZWT[0, 0])

    @jax.jit
    @jax.default_matmul_precision("highest")
    def read(params: dict) -> dict[str, Array]:
        logits_WTV, activations = network.apply(params, tokens_WT)
        logits_PV, target_P = logits_WTV.reshape(-1, logits_WTV.shape[-1])[picks_P], target_WT.ravel()[picks_P]
        return of_windows(activations.resid_LBTD, picks_P) | of_logits(logits_PV, target_P)

    return lambda params, attributes: table(jax.device_get(read(params)), places, attributes)


def of_windows(resid_NWTD: Array, picks_P: Array) -> dict[str, Array]:
    """What VARIABLES name of vectors, at these places of the windows."""
    layers, windows, context, width = resid_NWTD.shape
    stream_NMD = resid_NWTD.reshape(layers, -1, width)
    window_M, time_M = jnp.divmod(jnp.arange(windows * context), context)

    def angles(stream_MD: Array) -> Array:
        turning = turns(stream_MD, window_M, time_M)
        return jnp.where(turning.there_P, turning.angle_P, jnp.nan)[picks_P]

    return of_clouds(stream_NMD[:, picks_P]) | {"turning_angle": jax.lax.map(angles, stream_NMD)}


def of_logits(logits_PV: Array, target_P: Array) -> dict[str, Array]:
    """In bits; no loss where the target is below 0."""
    log_p_PV = jax.nn.log_softmax(logits_PV, axis=1) / math.log(2)
    loss_P = -jnp.take_along_axis(log_p_PV, jnp.maximum(target_P, 0)[:, None], axis=1)[:, 0]
    return {
        "loss": jnp.where(target_P >= 0, loss_P, jnp.nan),
        "entropy": -(jnp.exp2(log_p_PV) * log_p_PV).sum(axis=1),
    }


def of_clouds(clouds_NPD: Array) -> dict[str, Array]:
    """Of every point of every cloud what VARIABLES name, (N, P), and of local dimensions (N, neighbours, P)."""
    most = min(max(NEIGHBOURS), clouds_NPD.shape[1] - 1)

    def of_layer(cloud_PD: Array) -> dict[str, Array]:
        points, neighbours = of_points(cloud_PD), nearest_neighbours(cloud_PD, max(most, 2))
        none_P = jnp.full(len(cloud_PD), jnp.nan)  # a cloud of so few points has no such neighbour

        def local(count: int) -> Array:
            if count > most:
                return none_P
            return jnp.where(neighbours.measurable(count), local_dimensions(neighbours, count), jnp.nan)

        of_each = {
            "norm": points.norm_P,
            "cosine_to_mean": points.cosine_to_mean_P,
            "first_score": points.first_score_P,
        }
        return of_each | {"local_dimension": jnp.stack([local(count) for count in NEIGHBOURS])}

    return jax.lax.map(of_layer, clouds_NPD)
