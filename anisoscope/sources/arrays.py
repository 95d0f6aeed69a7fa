"""Measure arrays: vectors, queries and keys, or a user's function.

Check and align the inputs, cut them into chunks, run the panel on each chunk, and make the table.
Arrays carry the letters of `models`, and J folds of M points.
"""

import numbers
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax import Array

import anisoscope
from anisoscope.config.measure_config import MeasureConfig
from anisoscope.measurement.panel import Sample
from anisoscope.measurement.quantity import Values
from anisoscope.measurement.resampling import Places
from anisoscope.metrics import lapack
from anisoscope.metrics.convert import check_size, keeps_spread
from anisoscope.results import join, replicates_table
from anisoscope.sources import array_checks, array_chunks, user_metrics
from anisoscope.sources.folds import cut_windows
from anisoscope.utils.progress import bar, compile_notice


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
    metrics: Mapping[str, Callable[[np.ndarray], Any]] | None = None,
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
    user_metrics.check_metrics(metrics or {})
    chunks = array_chunks.cut_chunks(vectors, num_chunks, folds, seed)

    values, attributes = array_chunks.measure_chunks(
        vectors, chunks, settings, lambda groups: bar(groups, "measure", "layer"), lens
    )
    table = make_table(values, settings, attributes, names)
    if metrics:
        table = user_metrics.add_metrics(table, metrics, vectors.layers, chunks, seed)
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
    index_JM = cut_windows(windows // num_chunks, context, folds)
    values = array_chunks.measure_head_chunks(heads, index_JM, num_chunks, settings)
    attributes = {
        "seed": seed,
        "batches": num_chunks,
        "windows": windows // num_chunks * num_chunks,
        "resampled_windows": num_chunks * index_JM.size // context,
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

    @jax.jit
    def compute(params: Any, tokens: Array) -> tuple[dict[str, Values], Array, Array, Array]:
        vectors = function(params, tokens)
        if vectors.ndim != 4 or vectors.shape[1] != len(tokens) or 0 in vectors.shape:
            raise ValueError(
                f"the function returns shape {vectors.shape}; "
                f"return (layers, {len(tokens)} windows, T, width)"
            )
        if jnp.issubdtype(vectors.dtype, jnp.complexfloating):
            raise ValueError(f"the function returns {vectors.dtype}; return the real part")
        vectors_NPD = vectors.reshape(len(vectors), -1, vectors.shape[-1])
        clouds_NPD = vectors_NPD.astype(jnp.float32)
        held_N = jax.vmap(keeps_spread)(vectors_NPD, clouds_NPD)
        with jax.enable_x64(False):  # the function itself may use float64
            index_JM = cut_windows(*vectors.shape[1:3], folds)
            places = Places(*jnp.divmod(jnp.arange(clouds_NPD.shape[1]), vectors.shape[2]))
            sample, key = Sample(clouds_NPD, places=places), jax.random.key(seed)
            values = array_chunks.run_panel_with_folds(sample, index_JM, key, settings)
        return values, jnp.isfinite(clouds_NPD).all(), held_N, jnp.abs(clouds_NPD).max(axis=(1, 2))

    def measure(params: Any) -> xr.Dataset:
        with lapack.threads_for(), compile_notice():
            values, finite, held_N, largest_N = jax.device_get(compute(params, tokens))
        if not finite:
            raise ValueError(
                "the function returns vectors that are not finite in float32; check its outputs"
            )
        for layer, largest in enumerate(largest_N):
            check_size(float(largest), f"vectors of layer {layer}")
            if not held_N[layer]:
                raise ValueError(
                    f"vectors of layer {layer}: float32 would lose their spread; subtract the mean"
                )
        values = jax.tree.map(lambda value: np.asarray(value)[None], values)
        return make_table(values, settings, {"seed": seed, "windows": len(tokens)}, names)

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
    if names is None:
        return results
    return results.assign_coords(
        {dim: list(names) for dim in (layer, "other_layer") if dim in results.dims}
    )


def raw_table(values: dict[str, Values], attributes: dict[str, Any]) -> xr.Dataset:
    """Make the table of replicates, with chunks as batches and one set of positions."""
    arrays = jax.tree.map(lambda value: np.asarray(value)[:, None], values)
    attributes = attributes | {"layer_0": "vectors, as the others"}
    return replicates_table.table(arrays, 0, ("all",), attributes)
