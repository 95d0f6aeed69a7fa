"""Measure a user's own functions of a cloud, with the intervals and null model of the others.

Letters: M points of a fold.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import xarray as xr

from anisoscope.config.measure_config import GAUSSIAN, MeasureConfig
from anisoscope.engine.sizes import Folds
from anisoscope.measurement.families.registry import quantities
from anisoscope.measurement.null_models import DRAWS, factor_covariance, gaussian
from anisoscope.measurement.quantity import Quantity
from anisoscope.metrics.convert import as_vectors
from anisoscope.results.derived import NULL
from anisoscope.results.summary import summarize
from anisoscope.sources.array_chunks import cloud_keys
from anisoscope.sources.folds import Chunk

# labels that tables have besides the dimensions of quantities
TABLE_COORDINATES = ("batch", "depth", "jackknife", NULL, "positions", "statistic", "step")
Metric = Callable[[np.ndarray], Any]


def check_metrics(metrics: Mapping[str, Metric]) -> None:
    """Raise ValueError, one line, where a name cannot be that of a new variable."""
    labels = {
        *TABLE_COORDINATES,
        *(dim for quantity in quantities().values() for dim in quantity.dims),
    }
    for name in metrics:
        if name in labels:
            raise ValueError(f"metrics: {name!r} names an axis of the table; choose another name")
        if not str(name).isidentifier() or str(name).endswith("_excess"):
            raise ValueError(f"metrics: {name!r} is not a valid name; write it as my_metric")
        if name in quantities():
            raise ValueError(f"metrics: {name!r} is measured already; choose another name")


def add_metrics(
    table: xr.Dataset,
    metrics: Mapping[str, Metric],
    layers: list[Any],
    chunks: list[Chunk],
    settings: MeasureConfig,
) -> xr.Dataset:
    """Add a user's functions of a cloud to a table: mean, std, 95 % interval, and excess."""
    null_models, seed = table[NULL].values.tolist() if NULL in table.dims else [], settings.seed
    if GAUSSIAN in settings.nulls and GAUSSIAN not in null_models:
        null_models.append(GAUSSIAN)
        table = table.reindex({NULL: null_models}) if NULL in table.dims else table
    schema = {}
    for name, metric in metrics.items():
        text = (getattr(metric, "__doc__", None) or name).strip().splitlines()[0]
        schema[name] = Quantity(name, text, "user-defined function", resampling="jackknife")
    folds, dims = chunks[0].folds.count, ("batch", "layer", "jackknife")
    shape = len(chunks), len(layers), 1 + folds * (folds > 1)
    values, null = (
        xr.Dataset({name: (dims, np.empty(shape), x.attributes) for name, x in schema.items()})
        for _ in range(2)
    )
    for (b, chunk), (n, layer) in itertools.product(enumerate(chunks), enumerate(layers)):
        cloud_PD = as_vectors(layer[chunk.rows_P], f"vectors of layer {n}")
        draws = _draw_null(cloud_PD, seed) if GAUSSIAN in null_models else []
        for name, metric in metrics.items():
            values[name][b, n] = _replicates(name, metric, cloud_PD, chunk.folds)
            if draws:
                replicates = [_replicates(name, metric, draw, chunk.folds) for draw in draws]
                null[name][b, n] = np.mean(replicates, axis=0)
    models = {name: null if name == GAUSSIAN else {} for name in null_models}
    added = summarize(schema, values, models)
    return table.assign({name: value.variable for name, value in added.data_vars.items()})


def _replicates(name: str, metric: Metric, cloud_PD: np.ndarray, folds: Folds) -> np.ndarray:
    """Return the value of all points, then of the resampled points without each fold."""
    count = folds.count
    kept = [np.flatnonzero(folds.fold_P != fold) for fold in range(count)]
    # a copy, since a metric may work in place
    clouds = [cloud_PD.copy()] + [cloud_PD[index_P] for index_P in kept if count > 1]
    try:
        found = [np.asarray(metric(cloud)) for cloud in clouds]
    except Exception as error:
        why = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
        what = f"metrics: {name!r} raised {why}; it gets clouds of shape {cloud_PD.shape}"
        raise ValueError(f"{what}, or fewer points") from error
    if shapes := {value.shape for value in found} - {()}:
        raise ValueError(f"metrics: {name!r} returned shape {shapes.pop()}; return one number")
    if others := [value for value in found if value.dtype.kind not in "biuf"]:
        kind = type(others[0].item()).__name__
        raise ValueError(f"metrics: {name!r} returned a {kind}; return one real number")
    return folds.weight(np.array(found, np.float64), "jackknife")


@jax.enable_x64(False)
def _draw_null(cloud_PD: np.ndarray, seed: int) -> list[np.ndarray]:
    """Draw Gaussian clouds of the same spectrum."""
    key, *keys = jax.random.split(cloud_keys(cloud_PD[None], seed)[0], 1 + DRAWS)
    factor = jax.jit(factor_covariance)(cloud_PD, key)
    return [np.asarray(jax.jit(gaussian)(factor, draw)) for draw in keys]
