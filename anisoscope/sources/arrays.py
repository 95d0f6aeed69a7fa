"""Measure arrays: vectors, queries and keys, a JAX function, and a user's own metrics.

Check and align the inputs, cut them into chunks, run the panel on each chunk, and make the table.
Arrays carry the letters of `models`, and J folds of M points.
"""

import numbers
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import xarray as xr
from jax import Array

import anisoscope
from anisoscope.config.measure_config import MeasureConfig
from anisoscope.measurement.families.registry import quantities
from anisoscope.measurement.intervals import weight_replicates
from anisoscope.measurement.null_models import DRAWS, gaussian, spread
from anisoscope.measurement.quantity import Quantity, Values
from anisoscope.measurement.resampling import Places
from anisoscope.metrics.convert import as_vectors
from anisoscope.results import join, replicates_table
from anisoscope.results.derived import NULL
from anisoscope.results.summary import summarize, summarize_with_null
from anisoscope.sources import array_checks, array_chunks
from anisoscope.sources.folds import Chunk, Folds, cut_chunks, cut_windows
from anisoscope.utils.progress import bar, compile_notice

GAUSSIAN = "gaussian"
Metric = Callable[[np.ndarray], Any]


@jax.enable_x64(False)
def measure_vectors(
    x: Any,
    families: str | Sequence[str],
    nulls: str | Sequence[str],
    *,
    clusters: Any = None,
    token_positions: Any = None,
    unembedding: Any = None,
    targets: Any = None,
    names: Sequence[str] | None = None,
    folds: int = 8,
    num_chunks: int = 1,
    seed: int = 0,
    metrics: Mapping[str, Metric] | None = None,
) -> xr.Dataset:
    """Measure vectors as `anisoscope.measure` documents."""
    if isinstance(x, str | os.PathLike):
        from anisoscope.sources import vector_files  # needs optional libraries

        file = vector_files.load(pathlib.Path(x))
        x = file.vectors
        clusters = file.cluster_P if clusters is None else clusters
        token_positions = file.position_P if token_positions is None else token_positions
    vectors = array_checks.read_vectors(x, clusters, token_positions)
    array_checks.check_names(names, len(vectors.layers))
    targets = array_checks.align(targets, x, "targets")
    lens = array_checks.read_lens(unembedding, targets, vectors.shape[0])
    chosen = array_checks.choose_vector_families(families, unembedding, vectors.single)
    settings = array_checks.make_settings(chosen, nulls, folds, seed)
    check_metrics(metrics or {})
    chunks = cut_chunks(vectors, num_chunks, folds, seed)
    values, attributes = array_chunks.measure_chunks(
        vectors, chunks, settings, lambda groups: bar(groups, "measure", "layer"), lens
    )
    table = make_table(values, settings, attributes, names)
    if metrics:
        table = add_metrics(table, metrics, vectors.layers, chunks, seed)
    return table.isel(layer=0).drop_vars(["layer", "depth"]) if vectors.single else table


def measure_heads(
    queries: Any,
    keys: Any,
    mask: Any,
    bias: Any,
    names: Sequence[str] | None,
    folds: int,
    num_chunks: int,
    seed: int,
) -> xr.Dataset:
    """Measure queries and keys as `anisoscope.measure_attention` documents."""
    chosen = array_checks.choose_families("attention", array_checks.HEAD_INPUTS)
    settings = array_checks.make_settings(chosen, (), folds, seed)
    heads = array_checks.read_heads(queries, keys, mask, bias)
    windows, context = heads.q_NBTHK.shape[1:3]
    if not isinstance(num_chunks, numbers.Integral) or not 1 <= num_chunks <= windows:
        raise ValueError(
            f"num_chunks is {num_chunks}; {windows} windows allow a whole number from 1 to {windows}"
        )
    cut = cut_windows(windows // num_chunks, context, folds)
    values = array_chunks.measure_head_chunks(heads, cut, num_chunks, settings)
    attributes = {
        "seed": seed,
        "batches": num_chunks,
        "windows": windows // num_chunks * num_chunks,
        "resampled_windows": num_chunks * cut.index_JM.size // context,
    }
    return make_table(values, settings, attributes, names)


def make_measure(
    function: Callable[[Any, Array], Array],
    tokens: Any,
    families: str | Sequence[str],
    nulls: str | Sequence[str],
    names: Sequence[str] | None,
    folds: int,
    seed: int,
) -> Callable[[Any], xr.Dataset]:
    """Make the function of parameters that `anisoscope.make_measure` returns."""
    chosen = array_checks.choose_families(families, array_checks.VECTOR_INPUTS)
    settings = array_checks.make_settings(chosen, nulls, folds, seed)
    compute, windows = jax.jit(function), len(tokens)

    def measure(params: Any) -> xr.Dataset:
        with compile_notice():
            vectors = compute(params, tokens)
            if vectors.ndim != 4 or vectors.shape[1] != windows or 0 in vectors.shape:
                raise ValueError(
                    f"the function returns shape {vectors.shape}; "
                    f"return (layers, {windows} windows, T, width)"
                )
            layers, _, context, width = vectors.shape
            places = Places(*np.divmod(np.arange(windows * context, dtype=np.int32), context))
            clouds = array_checks.Vectors([*vectors.reshape(layers, -1, width)], *places)
            chunk = Chunk(slice(None), len(places[0]), places, cut_windows(windows, context, folds))
            values, attributes = array_chunks.measure_chunks(
                clouds, [chunk], settings, key=jax.random.key(seed)
            )
        return make_table(values, settings, attributes | {"windows": windows}, names)

    return measure


def make_table(
    values: dict[str, Values],
    settings: MeasureConfig,
    attributes: dict[str, Any],
    names: Sequence[str] | None,
) -> xr.Dataset:
    """Make the table of means, intervals and excess, without step and positions."""
    results, _ = join.joined({0: raw_table(values, attributes)}, settings.families, settings.nulls)
    results = results.isel(step=0, positions=0).drop_vars(["step", "positions"])
    vectors = "queries and keys"
    if "points" in attributes:
        vectors = f"{attributes['points']:,} vectors of width {attributes['width']}"
    results.attrs = {"title": f"Anisoscope {anisoscope.__version__}: {vectors}"} | results.attrs
    layer = "layer" if "layer" in results.dims else "block"
    array_checks.check_names(names, results.sizes[layer])
    dims = (layer, "other_layer") if names is not None else ()
    return results.assign_coords({dim: list(names) for dim in dims if dim in results.dims})


def raw_table(values: dict[str, Values], attributes: dict[str, Any]) -> xr.Dataset:
    """Make the table of replicates, with chunks as batches and one set of positions."""
    arrays = jax.tree.map(lambda value: np.asarray(value)[:, None], values)
    attributes = attributes | {"layer_0": "vectors, as the others"}
    return replicates_table.table(arrays, 0, ("all",), attributes)


def check_metrics(metrics: Mapping[str, Metric]) -> None:
    """Raise ValueError, one line, where a name cannot be that of a new variable."""
    if not isinstance(metrics, Mapping):
        raise ValueError(
            f"metrics is a {type(metrics).__name__}; pass your functions by name, as {{'mine': f}}"
        )
    for name, metric in metrics.items():
        if not str(name).isidentifier() or str(name).endswith("_excess"):
            raise ValueError(f"metrics: {name!r} is no name of a variable; write it as my_metric")
        if name in quantities():
            raise ValueError(f"metrics: {name!r} is measured already; take another name")
        if not callable(metric):
            raise ValueError(f"metrics: {name!r} is a {type(metric).__name__}, not a function")


def add_metrics(
    table: xr.Dataset,
    metrics: Mapping[str, Metric],
    layers: list[Any],
    chunks: list[Chunk],
    seed: int,
) -> xr.Dataset:
    """Add a user's functions of a cloud to a table: mean, std, 95 % interval, and excess."""
    null_models = table[NULL].values.tolist() if NULL in table.dims else []
    schema = {}
    for name, metric in metrics.items():
        text = (getattr(metric, "__doc__", None) or name).strip().splitlines()[0]
        schema[name] = Quantity(name, text, "a function of the user's", resampling="jackknife")
    folds = len(chunks[0].folds.index_JM)
    dims, shape = (
        ("batch", "layer", "jackknife"),
        (len(chunks), len(layers), 1 + folds * (folds > 1)),
    )
    values, null = (
        xr.Dataset({name: (dims, np.empty(shape), x.attributes) for name, x in schema.items()})
        for _ in range(2)
    )
    for (b, chunk), (n, layer) in (
        (chunk, layer) for chunk in enumerate(chunks) for layer in enumerate(layers)
    ):
        cloud_PD = as_vectors(layer[chunk.rows_P], f"vectors of layer {n}")
        draws = _draw_null(cloud_PD, seed) if GAUSSIAN in null_models else []
        for name, metric in metrics.items():
            values[name][b, n] = _replicates(name, metric, cloud_PD, chunk.folds)
            if draws:
                replicates = [_replicates(name, metric, draw, chunk.folds) for draw in draws]
                null[name][b, n] = np.mean(replicates, axis=0)
    if GAUSSIAN not in null_models:
        added = summarize(schema, values)
    else:
        added = summarize_with_null(schema, values, null, GAUSSIAN).reindex({NULL: null_models})
    return table.assign({name: value.variable for name, value in added.data_vars.items()})


def _replicates(name: str, metric: Metric, cloud_PD: np.ndarray, folds: Folds) -> np.ndarray:
    """Return the value of all points, then of the resampled points without each fold."""
    count = len(folds.index_JM)
    kept = [np.delete(folds.index_JM, fold, axis=0).ravel() for fold in range(count)]
    clouds = [cloud_PD] + [cloud_PD[index_P] for index_P in kept if count > 1]
    found = [np.asarray(metric(cloud)) for cloud in clouds]
    if shapes := {value.shape for value in found} - {()}:
        raise ValueError(f"metrics: {name!r} returned shape {shapes.pop()}; return one number")
    value_R = np.array(found, np.float64)
    return weight_replicates(value_R, "jackknife", *folds[1:]) if folds.unequal else value_R


@jax.enable_x64(False)
def _draw_null(cloud_PD: np.ndarray, seed: int) -> list[np.ndarray]:
    """Draw Gaussian clouds of the same spectrum."""
    key, *keys = jax.random.split(array_chunks.cloud_keys(cloud_PD[None], seed)[0], 1 + DRAWS)
    factor = jax.jit(spread)(cloud_PD, key)
    return [np.asarray(jax.jit(gaussian)(factor, draw)) for draw in keys]
