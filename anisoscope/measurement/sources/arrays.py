"""Anybody's arrays as a source: `measure(vectors, …)` gives the tables of a run.

Arrays carry the letters of `models`.
"""

import dataclasses
import numbers
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax import Array

from anisoscope.config.measure import MeasureConfig
from anisoscope.measurement.families.attention import Heads
from anisoscope.measurement.families.entries import FAMILIES
from anisoscope.measurement.panel import Sample
from anisoscope.measurement.quantity import Values
from anisoscope.measurement.resamples import Places
from anisoscope.measurement.sources.folds import cut_windows
from anisoscope.measurement.sources.given import (
    NULLS,
    OF_HEADS,
    OF_VECTORS,
    as_arrays,
    check_names,
    check_size,
    chosen,
    heads_of,
    layers_of,
    settings_of,
)
from anisoscope.measurement.sources.pieces import Piece, of_heads, of_layers, pieces_of, replicated
from anisoscope.measurement.tables import join, raw


def measure(
    vectors: Any = None,
    groups: Sequence | None = None,
    *,
    positions: Sequence | None = None,
    queries: Any = None,
    keys: Any = None,
    mask: Any = None,
    bias: Any = None,
    families: Sequence[str] | None = None,
    nulls: Sequence[str] = NULLS,
    names: Sequence[str] | None = None,
    folds: int = 8,
    pieces: int = 1,
    seed: int = 0,
) -> xr.Dataset:
    """The tables of a run, of these vectors: values, 95 % intervals, excess over null models, formulas and sources.

    vectors: (points, width) or (layers, points, width), or a list of layers: NumPy, JAX or PyTorch arrays, or
        memory-mapped files. They are read in float32, layer by layer: without the family comparison no more than one
        layer is in memory at once, and of the points x points distances a block.
    groups: the label of the sequence, image or window that each point comes from, (points,). Points of one group are
        dependent, so that whole groups are resampled, in `folds` folds of about as many points. Without labels the
        points must be independent, or dependent along their order only: folds are runs of points in the order given.
    positions: the place of each point in its group, (points,), 0 for its first token: the family leading says how much
        of a cloud hangs on these.
    queries, keys: (layers, heads, windows, T, K), as they enter the dot product, for the family attention; whole
        windows are resampled. `mask`: which key (column) each query (row) sees, "causal", "bidirectional", or booleans
        (T, T) or (layers, T, T). `bias`: added to the scores <q, k>/sqrt(K), as (layers, heads, T, T) or what
        broadcasts to that.
    families: all that these arrays allow, unless named. `nulls`: "gaussian", a featureless cloud of the same spectrum.
    names: of the layers; else they are numbered from 0.
    folds: the most; fewer where whole groups and windows make no such number of about one size, and of vectors and
        heads together as many of both. 1 for values without intervals. `seed`: of the folds and of the null model.
    pieces: for more points than fit into memory. Each piece of whole groups (queries and keys: of whole windows) is
        measured by itself, in `folds` folds of its own, and the values are means over pieces, as those of a run are
        over batches. What depends on the number of points, as a dimension between nearest neighbours does, is that of
        a piece. Where groups are unequal, pieces are thinned at random to the size of the smallest, and
        table.attrs["points"] says how many points are measured.

    Returns a Dataset of quantities with the dimensions (less, statistic, layer, …), without layer where `vectors` are
    of one: table.anisotropy.sel(less="nothing", statistic="mean"), or "low" and "high", the ends of the interval;
    less="gaussian" is the excess over that null model. What could not be read of so few points is NaN.

    The values are of all points. Where groups are unequal, each fold is thinned at random to the size of the smallest
    for the resamples alone; table.attrs["resampled_points"] says how many are left. Errors: ValueError, one line, for
    shapes that do not fit, a value that is not finite, or too few points or groups.
    """
    if vectors is None and queries is None:
        raise ValueError("there is nothing to measure: pass vectors, or queries and keys")
    if (queries is None) != (keys is None):
        raise ValueError("queries and keys come together; one of them is missing")
    of = (*OF_VECTORS * (vectors is not None), *OF_HEADS * (queries is not None))
    vectors = as_arrays(vectors)
    single = getattr(vectors, "ndim", None) == 2
    settings = settings_of(chosen(families, of, single), nulls, folds, seed)
    values: dict[str, Values] = {}
    about: dict[str, Any] = {"seed": seed}
    layers = [] if vectors is None else layers_of(vectors)
    heads = None if queries is None else heads_of(queries, keys, mask, bias)
    parts, index_JM = cut_both(layers, heads, groups, positions, pieces, folds, seed)
    if layers:
        check_names(names, len(layers))
        about |= described(layers, groups, parts)
        _add(values, of_layers(layers, parts, _only(settings, OF_VECTORS)))
    if heads is not None:
        windows, context = heads.q_NBTHK.shape[1:3]
        of_pieces = windows // pieces * pieces
        about |= {"windows": of_pieces, "resampled_windows": pieces * index_JM.size // context, "batches": pieces}
        _add(values, of_heads(heads, index_JM, pieces, _only(settings, OF_HEADS)))
    return labelled(values, settings, about, names, single)


def measuring(
    function: Callable[[Any, Array], Array],
    tokens: Any,
    *,
    families: Sequence[str] | None = None,
    nulls: Sequence[str] = NULLS,
    names: Sequence[str] | None = None,
    folds: int = 8,
    seed: int = 0,
) -> Callable[[Any], xr.Dataset]:
    """What gives the tables of `function(params, tokens) -> (layers, windows, T, width)` for any params of one shape.

    Function and panel are one compiled program, for all checkpoints of a model, say. `tokens` are (windows, …) of any
    kind; whole windows are resampled. All else is as for `measure`. ValueError where a vector is not finite.
    """
    settings = settings_of(chosen(families, OF_VECTORS, single=False), nulls, folds, seed)
    key = jax.random.key(seed)

    @jax.jit
    def compute(params: Any, tokens: Array) -> tuple[dict[str, Values], Array, Array]:
        vectors = function(params, tokens)
        if vectors.ndim != 4 or vectors.shape[1] != len(tokens):
            raise ValueError(
                f"the function gives shape {vectors.shape}; (layers, {len(tokens)} windows, T, width) is needed"
            )
        clouds_NPD = vectors.reshape(len(vectors), -1, vectors.shape[-1]).astype(jnp.float32)
        index_JM = cut_windows(*vectors.shape[1:3], folds)
        places = Places(*jnp.divmod(jnp.arange(clouds_NPD.shape[1]), vectors.shape[2]))
        found = replicated(Sample(clouds_NPD, places=places), index_JM, key, settings)
        return found, jnp.isfinite(clouds_NPD).all(), jnp.abs(clouds_NPD).max(axis=(1, 2))

    def table_of(params: Any) -> xr.Dataset:
        values, finite, largest_N = jax.device_get(compute(params, tokens))
        if not finite:
            raise ValueError("the function gives vectors that are not finite in float32")
        for number, largest in enumerate(largest_N):
            check_size(largest, f"vectors of layer {number}")
        values = jax.tree.map(lambda value: np.asarray(value)[None], values)
        return labelled(values, settings, {"seed": seed, "windows": len(tokens)}, names, single=False)

    return table_of


def labelled(
    values: dict[str, Values], settings: MeasureConfig, about: dict[str, Any], names: Sequence[str] | None, single: bool
) -> xr.Dataset:
    """The tables of a run, without step and positions; of one layer, without that."""
    results, _ = join.joined({0: raw_table(values, about)}, settings.families, settings.nulls)
    results = results.isel(step=0, positions=0).drop_vars(["step", "positions"])
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
    return raw.table(arrays, 0, ("all",), about | {"layer_0": "vectors, as the others"})


def cut_both(
    layers: list[Any],
    heads: Heads | None,
    groups: Sequence | None,
    positions: Sequence | None,
    pieces: int,
    folds: int,
    seed: int,
) -> tuple[list[Piece], np.ndarray]:
    """Pieces of the layers, and the folds of each piece of the heads: as many of both, since a table has one number.

    Nothing of what is not given. ValueError, one line, where groups and windows make no such folds.
    """
    parts, index_JM = [], np.empty((0, 0), int)
    if layers:
        parts = pieces_of(np.shape(layers[0])[0], groups, positions, pieces, folds, seed)
    if heads is not None:
        windows, context = heads.q_NBTHK.shape[1:3]
        if not isinstance(pieces, numbers.Integral) or not 1 <= pieces <= windows:
            raise ValueError(f"pieces is {pieces}; of {windows} windows it must be a whole number from 1 to {windows}")
        index_JM = cut_windows(windows // pieces, context, len(parts[0].index_JM) if parts else folds)
    if not parts or heads is None or len(index_JM) == len(parts[0].index_JM):
        return parts, index_JM
    if len(index_JM) == 1:
        raise ValueError(
            f"{windows // pieces} windows and the groups of the vectors make no folds of one number; measure the "
            "vectors, and queries and keys, each by itself, or pass folds=1 for values without intervals"
        )
    return cut_both(layers, heads, groups, positions, pieces, len(index_JM), seed)


def described(layers: list[Any], groups: Sequence | None, pieces: list[Piece]) -> dict[str, Any]:
    """What the tables say of the vectors."""
    index_JM, count = pieces[0].index_JM, len(pieces)
    by = "runs of consecutive points" if groups is None else f"whole groups, of {len(np.unique(groups))}"
    each = f" in each of {count} pieces of {pieces[0].size} points" if count > 1 else ""
    return {
        "points": sum(piece.size for piece in pieces),
        "width": np.shape(layers[0])[1],
        "folds": f"{len(index_JM)} of {index_JM.shape[1]} points{each}, {by}",
        "resampled_points": count * index_JM.size,
        "batches": count,
        "groups": len(index_JM),
    }


def _only(settings: MeasureConfig, of: tuple[str, ...]) -> MeasureConfig:
    families = tuple(name for name in settings.families if FAMILIES[name].of in of)
    return dataclasses.replace(settings, families=families)


def _add(values: dict[str, Values], found: dict[str, Values]) -> None:
    for cloud, quantities_of_it in found.items():
        values.setdefault(cloud, {}).update(quantities_of_it)
