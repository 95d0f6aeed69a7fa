"""Anybody's arrays as a source: `measure(vectors, …)` gives the tables of a run.

J folds of M points are resampled, the points of whole groups; all P points make up the values. Arrays carry the
letters of `models`.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax import Array

from experiments import memory
from panel.attention import Heads
from panel.config import MeasureConfig
from panel.families import FAMILIES, quantities
from panel.panel import MEASURED, Sample, panel
from panel.quantity import Values
from panel.resamples import Places
from sources.folds import cut, cut_windows
from sources.given import (
    NULLS,
    OF_HEADS,
    OF_VECTORS,
    check_names,
    chosen,
    heads_of,
    layers_of,
    places_of,
    read,
    settings_of,
)
from tables import join, raw


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
    folds: 1 for values without intervals. `seed`: of the folds and of the null model.

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
    single = getattr(vectors, "ndim", None) == 2
    settings = settings_of(chosen(families, of, single), nulls, folds, seed)
    values: dict[str, Values] = {}
    about: dict[str, Any] = {"seed": seed}
    if vectors is not None:
        layers = layers_of(vectors)
        check_names(names, len(layers))
        index_JM = cut(np.shape(layers[0])[0], groups, folds, seed)
        about |= described(layers, groups, index_JM)
        places = places_of(np.shape(layers[0])[0], groups, positions)
        _add(values, of_layers(layers, places, index_JM, _only(settings, OF_VECTORS)))
    if queries is not None:
        heads = heads_of(queries, keys, mask, bias)
        index_JM = cut_windows(*heads.q_NBTHK.shape[1:3], folds)
        about |= {"windows": heads.q_NBTHK.shape[1], "resampled_windows": index_JM.size // heads.q_NBTHK.shape[2]}
        _add(values, of_heads(heads, index_JM, _only(settings, OF_HEADS)))
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
    def compute(params: Any, tokens: Array) -> tuple[dict[str, Values], Array]:
        vectors = function(params, tokens)
        if vectors.ndim != 4 or vectors.shape[1] != len(tokens):
            raise ValueError(
                f"the function gives shape {vectors.shape}; (layers, {len(tokens)} windows, T, width) is needed"
            )
        clouds_NPD = vectors.reshape(len(vectors), -1, vectors.shape[-1]).astype(jnp.float32)
        index_JM = cut_windows(*vectors.shape[1:3], folds)
        places = Places(*jnp.divmod(jnp.arange(clouds_NPD.shape[1]), vectors.shape[2]))
        found = replicated(Sample(clouds_NPD, places=places), index_JM, key, settings)
        return found, jnp.isfinite(clouds_NPD).all()

    def table_of(params: Any) -> xr.Dataset:
        values, finite = jax.device_get(compute(params, tokens))
        if not finite:
            raise ValueError("the function gives vectors that are not finite in float32")
        return labelled(values, settings, {"seed": seed, "windows": len(tokens)}, names, single=False)

    return table_of


def of_layers(
    layers: list[Any],
    places: Places | None,
    index_JM: np.ndarray,
    settings: MeasureConfig,
    progress: Callable[[list], Iterable] = iter,
) -> dict[str, Values]:
    """The quantities of the clouds, layer by layer unless layers are compared; {cloud: {quantity: (layer, …, R)}}."""
    together = any(FAMILIES[name].of == "layers" for name in settings.families)
    numbers = list(range(len(layers)))
    parts = []
    for some in progress([numbers] if together else [[number] for number in numbers]):
        clouds_NPD = np.stack([read(layers[number], f"vectors of layer {number}") for number in some])
        parts.append(_measure(Sample(clouds_NPD, places=places), index_JM, settings))
    return jax.tree.map(lambda *values: np.concatenate(values), *parts)


def of_heads(heads: Heads, index_JM: np.ndarray, settings: MeasureConfig) -> dict[str, Values]:
    """The quantities of every head: {cloud: {quantity: (block, head, …, R)}}."""
    blocks, windows, context = heads.q_NBTHK.shape[:3]
    return _measure(Sample(np.zeros((blocks, windows * context, 1), np.float32), heads), index_JM, settings)


def _measure(sample: Sample, index_JM: np.ndarray, settings: MeasureConfig) -> dict[str, Values]:
    given = sample, index_JM, jax.random.key(settings.seed)
    leaves, structure = jax.tree.flatten(jax.eval_shape(lambda *arrays: arrays, *given))
    program = _compiled(settings, structure, tuple(leaves))
    _check_memory(program.memory_analysis(), sample)
    return jax.device_get(program(*given))


@functools.cache
def _compiled(settings: MeasureConfig, structure: Any, leaves: tuple[jax.ShapeDtypeStruct, ...]) -> jax.stages.Compiled:
    """One program for all arrays of one shape."""
    given = jax.tree.unflatten(structure, leaves)
    return jax.jit(functools.partial(replicated, settings=settings)).lower(*given).compile()


def _check_memory(needs: Any, sample: Sample) -> None:
    """ValueError where the program, which says what it takes, would not fit beside the arrays that are there."""
    there = memory.available()
    if needs is None or there is None:
        return
    most = needs.temp_size_in_bytes + needs.output_size_in_bytes + needs.argument_size_in_bytes
    if most > there:
        layers, points, width = sample.clouds_NPD.shape
        together = f"{layers} layers together, as the family comparison needs them, " if layers > 1 else ""
        raise ValueError(
            f"{points:,} points of width {width}, {together}take {memory.told(most)} to measure, and "
            f"{memory.told(there)} are available: name fewer families, or leave out some groups"
        )


def replicated(sample: Sample, index_JM: Array, key: Array, settings: MeasureConfig) -> dict[str, Values]:
    """The panel's values of all points, and its resamples of the folds, which may leave some points out."""
    folds = dataclasses.replace(settings, groups=len(index_JM))
    found = panel({MEASURED: _part(sample, index_JM.ravel())}, {}, folds, key)
    if index_JM.size == sample.clouds_NPD.shape[1]:
        return found
    whole = panel({MEASURED: sample}, {}, dataclasses.replace(settings, groups=1), key)

    def both(name: str, value: Array, resampled: Array) -> Array:
        return jnp.concatenate([value, resampled[..., 1:]], -1) if quantities()[name].resampling else value

    return {
        cloud: {name: both(name, value, found[cloud][name]) for name, value in values.items()}
        for cloud, values in whole.items()
    }


def _part(sample: Sample, index_P: Array) -> Sample:
    """These points; of heads, the windows that they make up."""
    places = jax.tree.map(lambda x_P: x_P[index_P], sample.places)
    if sample.heads is None:
        return Sample(sample.clouds_NPD[:, index_P], None, places)
    q_NBTHK, k_NBTHK = sample.heads.q_NBTHK, sample.heads.k_NBTHK
    window_B = index_P[:: q_NBTHK.shape[2]] // q_NBTHK.shape[2]
    heads = sample.heads._replace(
        q_NBTHK=q_NBTHK[:, window_B], k_NBTHK=k_NBTHK[:, window_B], picks_P=jnp.arange(index_P.size)
    )
    return Sample(sample.clouds_NPD[:, index_P], heads, places)


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
    """Of one batch and one set of positions."""
    arrays = jax.tree.map(lambda value: np.asarray(value)[None, None], values)
    return raw.table(arrays, 0, ("all",), about | {"layer_0": "vectors, as the others"})


def described(layers: list[Any], groups: Sequence | None, index_JM: np.ndarray) -> dict[str, Any]:
    """What the tables say of the vectors."""
    points, width = np.shape(layers[0])
    by = "runs of consecutive points" if groups is None else f"whole groups, of {len(np.unique(groups))}"
    return {
        "points": points,
        "width": width,
        "folds": f"{len(index_JM)} of {index_JM.shape[1]} points, {by}",
        "resampled_points": index_JM.size,
        "batches": 1,
        "groups": len(index_JM),
    }


def _only(settings: MeasureConfig, of: tuple[str, ...]) -> MeasureConfig:
    families = tuple(name for name in settings.families if FAMILIES[name].of in of)
    return dataclasses.replace(settings, families=families)


def _add(values: dict[str, Values], found: dict[str, Values]) -> None:
    for cloud, quantities_of_it in found.items():
        values.setdefault(cloud, {}).update(quantities_of_it)
