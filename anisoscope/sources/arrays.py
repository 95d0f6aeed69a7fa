"""Measure arrays: vectors, queries and keys, or a JAX function.

Check and align the inputs, cut them into chunks, measure each chunk, and make the table.
Shape letters are those of docs/reference/letters.md, and J folds of M points.
"""

import dataclasses
import numbers
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
import xarray as xr

import anisoscope
from anisoscope.config.measure_config import (
    CLOUD_NULLS,
    FIRST_LOOK,
    SEARCHED,
    MeasureConfig,
)
from anisoscope.engine.sizes import Folds
from anisoscope.metrics import convert
from anisoscope.metrics.convert import ArrayLike
from anisoscope.metrics.quantity import MEASURED, Values
from anisoscope.metrics.registry import FAMILIES, null_models_for, quantities
from anisoscope.metrics.resampling import TokenPositions
from anisoscope.results import replicates_table
from anisoscope.results.frame import values_of
from anisoscope.results.missing_names import as_table
from anisoscope.results.replicates_table import add_massive
from anisoscope.results.summary import summarize_checkpoint
from anisoscope.sources import array_checks, array_chunks
from anisoscope.sources.array_checks import LENS_FAMILY, VectorsLike
from anisoscope.sources.folds import Chunk, check_searched, cut_chunks, cut_runs, warn_of_few
from anisoscope.sources.massive_tokens import find_massive
from anisoscope.sources.unembedding import read_lens
from anisoscope.utils.progress import LOGGER, library_call

Params = TypeVar("Params")
WIDE = 8  # times as many coordinates as points: points may be columns
SWAPPED = "vectors have %s points of width %s; rows are points: transpose them if these are swapped"


def measure(
    x: VectorsLike | str | os.PathLike[str],
    clusters: ArrayLike | Sequence[object] | None = None,
    *,
    axes: Sequence[str] | None = None,
    mask: ArrayLike | Sequence[Sequence[int]] | None = None,
    token_positions: ArrayLike | Sequence[int] | None = None,
    unembedding: tuple[Mapping[str, object] | None, ArrayLike] | None = None,
    targets: ArrayLike | Sequence[int] | None = None,
    families: str | Sequence[str] = FIRST_LOOK,
    nulls: str | Sequence[str] = CLOUD_NULLS,
    layer_names: Sequence[str] | None = None,
    folds: int = 8,
    num_chunks: int = 1,
    search_among: int | None = SEARCHED,
    without_massive: bool = False,
    seed: int = 0,
    metrics: Mapping[str, Callable[[np.ndarray], float]] | None = None,
    quiet: bool = False,
) -> xr.Dataset:
    """Measure clouds of vectors: values, 95 % intervals, and the excess over null models.

    Values and intervals are of all points; folds of unequal clusters are weighted by their share of
    the points. Clusters that weigh as fewer than five equal ones cause a warning. Rows of zeros,
    constant columns, duplicates and tied distances are counted in `attrs["degenerate"]`.

    Args:
        x: one layer (points, width), a list of layers, or a dict of them by name: NumPy, JAX or
            PyTorch arrays, DataFrames or memory-mapped files; or the path of a file of them.
            Layers may differ in width. Layers (texts, tokens, width), such as the `hidden_states`
            of transformers, or one array (layers, texts, tokens, width): each text is a cluster.
        clusters: (points,), a label of the sentence, image or window of each point: whole clusters
            are resampled. Without labels folds are runs of consecutive points.
        axes: what the axes of an array hold, which three axes need: ("layer", "point", "width") or
            ("text", "token", "width"). The dimensions of a DataArray may have these names.
        mask: (texts, tokens), the `attention_mask` of these texts: 0 at padding, on either side,
            which is left out.
        token_positions: (points,), the place of each point in its cluster, 0 for its first token;
            the families `leading` and `trajectory` read them.
        unembedding: (norm, W), the map from the last layer to logits: W (vocabulary, width), norm
            None or a dict of `kind` ("layer", "rms") and any of `scale`, `shift`, `epsilon`.
        targets: (points,) or (texts, tokens), the token that each point is to predict, below 0 for
            none.
        families: families of quantities (docs/reference/metric_families.md), or "all" of vectors.
        nulls: "gaussian" (clouds of the same spectrum), "isotropic", "capped" (spectra),
            "flipped" (random signs of clusters), or () for none.
        layer_names: names of the layers; by default the keys of a dict, or numbers from 0.
        folds: maximum number of folds of whole clusters to resample; 1: no intervals.
        num_chunks: measure this many chunks of whole clusters separately, where all points do not
            fit into memory. Values are means over chunks, each with the points of one chunk.
        search_among: of more points neighbors are searched among about so many, drawn in whole
            clusters: `attrs["neighbors_among"]`. None: among all, in time as the square of points.
        without_massive: measure also without the points that are massive in any layer: longer than
            ten times the median norm there. `massive_vectors` counts them by layer.
        seed: random seed of the folds and the null models.
        metrics: your own functions of a cloud (points, width) in float32, by name. Each returns a
            number, which gets an interval and an excess over "gaussian".
        quiet: show neither a progress bar (after ten seconds) nor the message about compiling.

    Returns:
        A Dataset with a variable for each quantity and the dimensions (statistic, layer, …),
        without layer where x is one layer; statistic is "mean", "low", "high" or "std". Of texts
        it has a dimension `positions` too: "all", and "without_first_token" of each text; and
        "without_massive" where that is set.
        `<quantity>_excess` has a dimension `null`: value minus that null model. `.attrs` of a
        variable have its formula, units and source. NaN: there are too few points for it.

    Raises:
        ValueError: shapes do not fit, a number is not finite or exceeds float32, or there are too
            few points or clusters; the message is one line.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((512, 8))
    >>> table = measure(x, clusters=np.arange(512) // 16, families="similarity")
    >>> print(f"{float(table.mean_cosine.sel(statistic='mean')):.3f}")
    0.000
    """
    with library_call(quiet), jax.enable_x64(False):
        if isinstance(x, str | os.PathLike):
            from anisoscope.sources import vector_files  # needs optional libraries

            file = vector_files.load_vectors(x)
            x, mask = file.vectors, file.mask if mask is None else mask
            clusters = file.clusters if clusters is None else clusters
            token_positions = file.token_positions if token_positions is None else token_positions
        vectors = array_checks.read_vectors(x, clusters, token_positions, axes, mask)
        names = array_checks.choose_names(layer_names, vectors)
        if WIDE * (points := vectors.shape[0]) < min(vectors.widths):
            LOGGER.warning(SWAPPED, points, vectors.width)
        targets = array_checks.align(targets, x, "targets")
        kinds = array_checks.VECTOR_INPUTS[: 1 if vectors.single else 2]
        if unembedding is not None:
            families = (families,) if isinstance(families, str) else families
            families = (
                families if "all" in families else {**dict.fromkeys(families), LENS_FAMILY: None}
            )
            kinds = (*kinds, LENS_FAMILY)
        settings = array_checks.make_settings(families, kinds, nulls, folds, seed)
        array_checks.check_texts(vectors, settings.folds)
        array_chunks.check_metrics(metrics or {})
        check_searched(search_among)
        massive_LP = vectors.find_massive() if without_massive else None
        tables, warned = {}, False
        for positions, points in array_checks.position_sets(vectors, massive_LP).items():
            lens = read_lens(unembedding, targets, points)
            cuts = num_chunks, settings.folds, settings.seed, search_among
            chunks = cut_chunks(points, *cuts)
            warned = warned or warn_of_few(points, chunks)
            values, attributes = measure_layers(points, chunks, settings, lens)
            table = make_table(values, settings, attributes, names)
            if metrics:
                table = array_chunks.add_metrics(table, metrics, points.layers, chunks, settings)
            warn_of_missing(table, points.layers, chunks)
            tables[positions] = table
        table = join_positions(tables) if len(tables) > 1 else table
        table = table if massive_LP is None else add_massive(table, [massive_LP])
        table = table.isel(layer=0).drop_vars(["layer", "depth"]) if vectors.single else table
        return as_table(table)


def measure_attention(
    queries: ArrayLike,
    keys: ArrayLike,
    *,
    mask: str | ArrayLike,
    bias: ArrayLike | None = None,
    layer_names: Sequence[str] | None = None,
    folds: int = 8,
    num_chunks: int = 1,
    seed: int = 0,
    quiet: bool = False,
) -> xr.Dataset:
    """Measure queries and keys, and how sharp the attention is that they make.

    Args:
        queries: (layers, heads, windows, T, K), as they enter the dot product.
        keys: the same shape; keys that several heads share are repeated.
        mask: which key (column) each query (row) sees: "causal", "bidirectional", or booleans (T,
            T) or (layers, T, T).
        bias: added to the scores <q, k> / sqrt(K): (layers, heads, T, T), or broadcast to that.
        layer_names: names of the layers; by default they are numbered from 1.
        folds: maximum number of folds of whole windows to resample; 1: no intervals.
        num_chunks: as for `measure`, of whole windows.
        seed: recorded in `.attrs`; nothing here is random.
        quiet: show neither a progress bar (after ten seconds) nor the message about compiling.

    Returns:
        A Dataset like that of `measure`, with the dimensions (statistic, block, head, …).

    Raises:
        ValueError: shapes do not fit, or a number is not finite; the message is one line.

    >>> import numpy as np
    >>> queries = np.zeros((2, 4, 8, 16, 8), np.float32)  # all scores are equal
    >>> table = measure_attention(queries, queries, mask="bidirectional")
    >>> print(f"{float(table.attention_entropy.sel(statistic='mean').mean()):.3f}")  # ln 16
    2.773
    """
    settings = array_checks.make_settings("attention", array_checks.HEAD_INPUTS, (), folds, seed)
    heads = array_checks.read_heads(queries, keys, mask, bias)
    array_checks.check_names(layer_names, len(heads.q_NBTHK))
    windows = heads.q_NBTHK.shape[1]
    if not isinstance(num_chunks, numbers.Integral) or not 1 <= num_chunks <= windows:
        raise ValueError(
            f"num_chunks is {num_chunks}; {windows} windows allow a whole number from 1 to {windows}"
        )
    cut = cut_runs(np.arange(windows // num_chunks), min(folds, windows // num_chunks))
    with library_call(quiet):
        values = array_chunks.measure_head_chunks(heads, cut, num_chunks, settings)
    attributes = {
        "seed": seed,
        "batches": num_chunks,
        "windows": windows // num_chunks * num_chunks,
    }
    return as_table(make_table(values, settings, attributes, layer_names))


def make_measure(
    function: Callable[[Params, jax.Array], jax.Array],
    tokens: ArrayLike,
    *,
    families: str | Sequence[str] = FIRST_LOOK,
    nulls: str | Sequence[str] = CLOUD_NULLS,
    layer_names: Sequence[str] | None = None,
    folds: int = 8,
    seed: int = 0,
    metrics: Mapping[str, Callable[[np.ndarray], float]] | None = None,
) -> Callable[[Params], xr.Dataset]:
    """Make a compiled function that measures the output of a JAX function for any parameters.

    Args:
        function: (params, tokens) -> activations (layers, windows, T, width), or a list of layers.
        tokens: (windows, …) of any kind; whole windows are resampled.
        families: as for `measure`.
        nulls: as for `measure`.
        layer_names: names of the layers; by default they are numbered from 0.
        folds: maximum number of folds of whole windows to resample; 1: no intervals.
        seed: random seed of the null models.
        metrics: your own functions of a cloud, as for `measure`.

    Returns:
        A function of params that returns a Dataset like that of `measure`.

    Raises:
        ValueError: a shape is wrong, or activations are not finite; the message is one line.

    >>> import jax.numpy as jnp
    >>> import numpy as np
    >>> def embed(table_VD, tokens_BT):  # a single layer
    ...     return table_VD[tokens_BT][None]
    >>> tokens = np.random.default_rng(0).integers(0, 50, (64, 16))
    >>> read = make_measure(embed, tokens, families="similarity", nulls=())
    >>> mean = read(jnp.ones((50, 8))).mean_cosine.sel(statistic="mean")
    >>> print(f"{float(mean.squeeze()):.3f}")
    1.000
    """
    kinds = array_checks.VECTOR_INPUTS
    settings = array_checks.make_settings(families, kinds, nulls, folds, seed)
    array_chunks.check_metrics(metrics or {})
    compute, windows = jax.jit(function), len(tokens)

    def measure_params(params: Params) -> xr.Dataset:
        with library_call():
            vectors = _stack_layers(compute(params, tokens))
            if vectors.ndim != 4 or vectors.shape[1] != windows or 0 in vectors.shape:
                raise ValueError(
                    f"the function returns shape {vectors.shape}; "
                    f"return (layers, {windows} windows, T, width)"
                )
            layers, _, context, width = vectors.shape
            array_checks.check_names(layer_names, layers)
            places = TokenPositions(
                *np.divmod(np.arange(windows * context, dtype=np.int32), context)
            )
            clouds = array_checks.Vectors([*vectors.reshape(layers, -1, width)], *places)
            cut = cut_runs(places.window_P, min(folds, windows))
            chunk = Chunk(slice(None), len(places.window_P), places, cut)
            values, attributes = array_chunks.measure_chunks(
                clouds, [chunk], settings, key=jax.random.key(seed)
            )
            table = make_table(values, settings, attributes | {"windows": windows}, layer_names)
            if metrics:
                layers = clouds.layers
                table = array_chunks.add_metrics(table, metrics, layers, [chunk], settings)
        return as_table(table)

    return measure_params


def _stack_layers(found: Any) -> jax.Array:
    """Return activations as one array; ValueError where they are neither that nor a list of layers."""
    if isinstance(found, list | tuple) and all(isinstance(x, jax.Array) for x in found):
        if len({x.shape for x in found}) == 1:
            return jax.numpy.stack(found)
        raise ValueError(
            f"the function returns shapes {[x.shape for x in found]}; return one shape"
        )
    if not isinstance(found, jax.Array):
        raise ValueError(
            f"the function returns a {type(found).__name__}; return an array, or a list of layers"
        )
    return found


def measure_layers(
    vectors: array_checks.Vectors,
    chunks: list[Chunk],
    settings: MeasureConfig,
    lens: tuple[Any, np.ndarray] | None,
) -> tuple[dict[str, Values], dict[str, Any]]:
    """Measure layers of one width at once; of several widths, by themselves and then together."""
    if len({*vectors.widths}) == 1:
        return array_chunks.measure_chunks(vectors, chunks, settings, "measure", lens)
    kinds: dict[bool, list[str]] = {False: [], True: []}
    for name in settings.families:
        kinds[FAMILIES[name].kind == "layers"].append(name)
    values: dict[str, Values] = {}
    for families in filter(None, kinds.values()):
        part = dataclasses.replace(settings, families=tuple(families))
        found, attributes = array_chunks.measure_chunks(vectors, chunks, part, "measure")
        for cloud, by_name in found.items():
            values.setdefault(cloud, {}).update(by_name)
    # what a block adds is not measured where it changes the width
    changes = np.flatnonzero(np.diff(vectors.widths)) + 1
    for name in values[MEASURED].keys() & {"linearity_update", "linearity_update_adjusted"}:
        value = np.array(values[MEASURED].pop(name))
        value[:, changes] = np.nan
        if len(changes) < len(vectors.layers) - 1:
            values[MEASURED][name] = value
    return values, attributes


def join_positions(tables: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Join the tables of sets of positions, with the points of each in an attribute."""
    sets = xr.Variable("positions", [*tables])
    options = {"data_vars": "all", "join": "exact", "combine_attrs": "override"}
    table = xr.concat(tables.values(), sets, **options)
    points = ", ".join(f"{name} {table.attrs['points']}" for name, table in tables.items())
    return table.assign_attrs(points_of=points)


def warn_of_missing(table: xr.Dataset, layers: Sequence[Any], chunks: list[Chunk]) -> None:
    """Log which quantities no layer has a value of, or an interval, and why."""
    own = table[values_of(table)]
    missing = [str(name) for name in own if own[name].sel(statistic="mean").isnull().all()]
    if missing:
        advice = "they need more distinct points, directions, clusters or token_positions"
        if find_massive([convert.as_vectors(x, "vectors")] for x in layers).any():
            advice = (
                "a vector is massive, which hides the others: without_massive=True leaves it out"
            )
        elif all(np.ptp(convert.as_vectors(x, "vectors"), axis=0).max() == 0 for x in layers):
            advice = "all vectors are equal"
        LOGGER.warning("NaN in every layer: %s; %s", ", ".join(missing), advice)
    folds = chunks[0].folds
    if folds.count < 2:
        return
    resampled = {name for name, quantity in quantities().items() if quantity.resampling}
    without = [
        str(name)
        for name in own
        if name in resampled - {*missing} and own[name].sel(statistic="low").isnull().all()
    ]
    if without:
        LOGGER.warning(
            "no interval in any layer: %s; they are measured in each part of the points too, and "
            "folds have %s to %s points: pass larger clusters of similar size",
            ", ".join(without),
            *(f"{size:,.0f}" for size in (_sizes(folds).min(), _sizes(folds).max())),
        )


def _sizes(folds: Folds) -> np.ndarray:
    """Return the number of points of each fold."""
    return np.bincount(folds.fold_P)


def make_table(
    values: dict[str, Values],
    settings: MeasureConfig,
    attributes: dict[str, Any],
    names: Sequence[str] | None,
) -> xr.Dataset:
    """Make the table of means, intervals and excess, without step and positions."""
    raw = raw_table(values, attributes)
    known = {null for name in raw.data_vars for null in null_models_for(str(name))}
    results, _ = summarize_checkpoint(
        raw, None, tuple(null for null in settings.nulls if null in known)
    )
    results = results.isel(step=0, positions=0).drop_vars(["step", "positions"])
    vectors = "queries and keys"
    if "points" in attributes:
        vectors = f"{attributes['points']:,} vectors of width {attributes['width']}"
    results.attrs = {"title": f"Anisoscope {anisoscope.__version__}: {vectors}"} | results.attrs
    layer = "layer" if "layer" in results.dims else "block"
    dims = (layer, "other_layer") if names is not None else ()
    return results.assign_coords({dim: list(names) for dim in dims if dim in results.dims})


def raw_table(values: dict[str, Values], attributes: dict[str, Any]) -> xr.Dataset:
    """Make the table of replicates, with chunks as batches and one set of positions."""
    arrays = jax.tree.map(lambda value: np.asarray(value)[:, None], values)
    attributes = attributes | {"layer_0": "vectors, as the others"}
    return replicates_table.build_table(arrays, 0, ("all",), attributes)
