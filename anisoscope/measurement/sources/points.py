"""A table of single points, where it is asked for: what each is, where it stands, and how it lies in its cloud.

points/<step>.nc in the folder of a run holds the points of the first batch, all positions: those of the first cloud.

Letters: G probe batches, S sets of positions.
"""

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
from anisoscope.measurement.quantity import HERE, INHERENT, SHAPE_OF_LEARNING
from anisoscope.measurement.sources.probe import Probe
from anisoscope.measurement.sources.program import probe_of
from anisoscope.metrics.neighbours import nearest_neighbours
from anisoscope.metrics.points import of_points
from anisoscope.metrics.scale import local_dimensions
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
}


def table(values: dict[str, np.ndarray], places: dict[str, Any], attributes: dict[str, Any]) -> xr.Dataset:
    """Arrays (layer, point), and of local dimensions (layer, neighbours, point)."""
    variables = {}
    for name, (long_name, units, formula, source) in VARIABLES.items():
        dims = ("layer", "neighbours", "point") if name == "local_dimension" else ("layer", "point")
        words = {"long_name": long_name, "units": units, "formula": formula, "source": source}
        variables[name] = dims, values[name], words
    layers, points = values["norm"].shape
    labels = {"layer": np.arange(layers), "neighbours": list(NEIGHBOURS), "point": np.arange(points)}
    return xr.Dataset(variables, labels | places, attributes)


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

    @jax.jit
    @jax.default_matmul_precision("highest")
    def read(params: dict) -> dict[str, Array]:
        resid_NWTD = network.apply(params, tokens_WT)[1].resid_LBTD
        return of_clouds(resid_NWTD.reshape(len(resid_NWTD), -1, resid_NWTD.shape[-1])[:, picks_P])

    return lambda params, attributes: table(jax.device_get(read(params)), places, attributes)


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
