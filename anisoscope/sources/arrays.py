"""Arrays as a source: vectors, queries and keys, or a function of one's own. Arrays carry the
letters of `models`.

Letters: M points of a fold.
"""

import numbers
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax import Array

import anisoscope
from anisoscope.config.measure_config import MeasureConfig
from anisoscope.measurement.intervals import degrees_of_freedom
from anisoscope.measurement.panel import Sample
from anisoscope.measurement.quantity import Values
from anisoscope.measurement.resampling import Places, section_count
from anisoscope.metrics import lapack
from anisoscope.metrics.convert import as_arrays, check_size, held
from anisoscope.results import join, replicates_table
from anisoscope.sources import array_readout
from anisoscope.sources.array_checks import (
    OF_HEADS,
    OF_VECTORS,
    aligned,
    check_names,
    chosen,
    heads_of,
    layers_of,
    settings_of,
)
from anisoscope.sources.array_chunks import Piece, of_heads, of_layers, pieces_of, replicated
from anisoscope.sources.folds import cut_windows
from anisoscope.utils.errors import UserError
from anisoscope.utils.progress import bar


class Beside(NamedTuple):
    """What is known of the points beside their vectors, as it is given; None: nothing."""

    clusters: Any = None
    positions: Any = None
    readout: Any = None
    targets: Any = None


class Options(NamedTuple):
    """What `api.measure` takes beside vectors and what is known of each."""

    families: str | Sequence[str]
    nulls: str | Sequence[str]
    names: Sequence[str] | None
    folds: int
    pieces: int
    seed: int


@jax.enable_x64(False)
def of_vectors(x: Any, beside: Beside, options: Options) -> xr.Dataset:
    """`api.measure`."""
    if isinstance(x, str | os.PathLike):
        x, beside = of_file(x, beside, options.pieces)
    clusters, positions, targets = (
        aligned(getattr(beside, name), x, name) for name in ("clusters", "positions", "targets")
    )
    x = as_arrays(x)
    single = getattr(x, "ndim", None) == 2
    families, seed = options.families, options.seed
    settings = settings_of(
        array_readout.with_readout(families, beside.readout, single),
        options.nulls,
        options.folds,
        seed,
    )
    layers = layers_of(x)
    read = array_readout.read_of(beside.readout, targets, *np.shape(layers[0]))
    check_names(options.names, len(layers))
    pieces = pieces_of(
        np.shape(layers[0])[0], clusters, positions, options.pieces, options.folds, seed
    )
    about = {"seed": seed} | described(layers, clusters, pieces)
    # which takes a while: with a bar
    whole = f"measure {', '.join(settings.families)}" if families == "all" else ""
    values, doubtful = of_layers(
        layers, pieces, settings, lambda work: bar(work, whole, "layer"), read
    )
    return labelled(values, settings, about | doubtful, options.names, single)


def of_file(path: Any, beside: Beside, pieces: int) -> tuple[Any, Beside]:
    """Vectors of a file, with its own clusters and positions where no others are given."""
    # which reads files by libraries that the core has not
    from anisoscope.sources import vector_files

    try:
        arrays = vector_files.load(pathlib.Path(path), (), "", "", pieces)
    except UserError as error:
        said = (
            str(error).replace("vectors.path ", "", 1).replace("--config.vectors.path=", "the path")
        )
        raise ValueError(said) from error
    own = {"clusters": arrays.cluster_P, "positions": arrays.position_P}
    return arrays.vectors, beside._replace(
        **{name: x for name, x in own.items() if getattr(beside, name) is None}
    )


def of_attention(
    queries: Any,
    keys: Any,
    mask: Any,
    bias: Any,
    names: Sequence[str] | None,
    folds: int,
    pieces: int,
    seed: int,
) -> xr.Dataset:
    """`api.measure_attention`."""
    settings = settings_of(chosen("attention", OF_HEADS, single=False), (), folds, seed)
    heads = heads_of(queries, keys, mask, bias)
    windows, context = heads.q_NBTHK.shape[1:3]
    if not isinstance(pieces, numbers.Integral) or not 1 <= pieces <= windows:
        raise ValueError(
            f"pieces is {pieces}; of {windows} windows it must be a whole number from 1 to {windows}"
        )
    index_JM = cut_windows(windows // pieces, context, folds)
    counts = {
        "windows": windows // pieces * pieces,
        "resampled_windows": pieces * index_JM.size // context,
    }
    about = {"seed": seed, "batches": pieces} | counts
    return labelled(
        of_heads(heads, index_JM, pieces, settings), settings, about, names, single=False
    )


def of_function(
    function: Callable[[Any, Array], Array],
    tokens: Any,
    families: str | Sequence[str],
    nulls: str | Sequence[str],
    names: Sequence[str] | None,
    folds: int,
    seed: int,
) -> Callable[[Any], xr.Dataset]:
    """`api.measure_function`."""
    settings = settings_of(chosen(families, OF_VECTORS, single=False), nulls, folds, seed)
    key = jax.random.key(seed)

    @jax.jit
    def compute(params: Any, tokens: Array) -> tuple[dict[str, Values], Array, Array, Array]:
        vectors = function(params, tokens)
        if vectors.ndim != 4 or vectors.shape[1] != len(tokens) or 0 in vectors.shape:
            raise ValueError(
                f"the function gives shape {vectors.shape}; (layers, {len(tokens)} windows, T, width) is needed"
            )
        if jnp.issubdtype(vectors.dtype, jnp.complexfloating):
            raise ValueError(
                f"the function gives numbers of type {vectors.dtype}; pass their real part"
            )
        vectors_NPD = vectors.reshape(len(vectors), -1, vectors.shape[-1])
        clouds_NPD = vectors_NPD.astype(jnp.float32)
        held_N = jax.vmap(held)(vectors_NPD, clouds_NPD)
        with jax.enable_x64(False):  # the function has its own types
            index_JM = cut_windows(*vectors.shape[1:3], folds)
            places = Places(*jnp.divmod(jnp.arange(clouds_NPD.shape[1]), vectors.shape[2]))
            values = replicated(Sample(clouds_NPD, places=places), index_JM, key, settings)
        return values, jnp.isfinite(clouds_NPD).all(), held_N, jnp.abs(clouds_NPD).max(axis=(1, 2))

    def table_of(params: Any) -> xr.Dataset:
        with lapack.threads_for():
            values, finite, held_N, largest_N = jax.device_get(compute(params, tokens))
        if not finite:
            raise ValueError("the function gives vectors that are not finite in float32")
        for number, largest in enumerate(largest_N):
            check_size(float(largest), f"vectors of layer {number}")
            if not held_N[number]:
                raise ValueError(
                    f"vectors of layer {number}: float32 would lose their spread; subtract the mean"
                )
        values = jax.tree.map(lambda value: np.asarray(value)[None], values)
        return labelled(
            values, settings, {"seed": seed, "windows": len(tokens)}, names, single=False
        )

    return table_of


def labelled(
    values: dict[str, Values],
    settings: MeasureConfig,
    about: dict[str, Any],
    names: Sequence[str] | None,
    single: bool,
) -> xr.Dataset:
    """The tables of a run, without step and positions; of one layer, without that."""
    results, _ = join.joined({0: raw_table(values, about)}, settings.families, settings.nulls)
    results = results.isel(step=0, positions=0).drop_vars(["step", "positions"])
    what = (
        f"{about['points']:,} vectors of width {about['width']}"
        if "points" in about
        else "queries and keys"
    )
    results.attrs = {"title": f"Anisoscope {anisoscope.__version__}: {what}"} | results.attrs
    check_names(names, results.sizes.get("layer", 0))
    if single:
        return results.isel(layer=0).drop_vars(["layer", "depth"])
    if names is not None:
        dims = [dim for dim in ("layer", "other_layer") if dim in results.dims]
        results = results.assign_coords({dim: list(names) for dim in dims})
    return results


def raw_table(values: dict[str, Values], about: dict[str, Any]) -> xr.Dataset:
    """Of pieces, as batches, and one set of positions."""
    arrays = jax.tree.map(lambda value: np.asarray(value)[:, None], values)
    return replicates_table.table(
        arrays, 0, ("all",), about | {"layer_0": "vectors, as the others"}
    )


def described(layers: list[Any], clusters: Any, pieces: list[Piece]) -> dict[str, Any]:
    """What the tables say of the vectors."""
    index_JM, count = pieces[0].folds.index_JM, len(pieces)
    by = (
        "runs of consecutive points"
        if clusters is None
        else f"whole clusters, of {len(np.unique(clusters))}"
    )
    each = f" in each of {count} pieces of {pieces[0].size} points" if count > 1 else ""
    return {
        "points": sum(piece.size for piece in pieces),
        "width": np.shape(layers[0])[1],
        "folds_in_words": f"{len(index_JM)} of {index_JM.shape[1]} points{each}, {by}",
        "resampled_points": count * index_JM.size,
        "batches": count,
        "folds": len(index_JM),
    } | freedoms(pieces)


def freedoms(pieces: list[Piece]) -> dict[str, float]:
    """Student's degrees of freedom of the intervals, by how a quantity is resampled."""
    count = len(pieces[0].folds.index_JM)
    if count == 1:
        return {}
    found = {}
    for kind, equal in (("jackknife", count), ("sections", section_count(count))):
        if any(piece.folds.unequal for piece in pieces):
            freedom = sum(degrees_of_freedom(*piece.folds[1:], kind) for piece in pieces)
        else:
            freedom = len(pieces) * (equal - 1)
        found[f"degrees_of_freedom_{kind}"] = round(freedom, 1)
    return found
