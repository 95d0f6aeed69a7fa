"""Measure chunks of vectors: read them layer by layer, and hand them to the engine.

A user's own functions of a cloud get the intervals and the null model of the others.
Arrays carry the letters of `models`.
"""

import functools
import itertools
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
import xarray as xr
from jax import Array

from anisoscope.config.measure_config import GAUSSIAN, MeasureConfig
from anisoscope.engine.measure_clouds import LensInput, Selection, measure_all_heads, measure_clouds
from anisoscope.engine.null_models import DRAWS, factor_covariance, gaussian, layer_keys
from anisoscope.engine.sizes import Folds, lay_out
from anisoscope.metrics.attention import Heads
from anisoscope.metrics.convert import as_vectors
from anisoscope.metrics.quantity import MEASURED, Quantity, Values
from anisoscope.metrics.registry import FAMILIES, find_family, quantities, select_kind
from anisoscope.results.summary import NULL, summarize
from anisoscope.sources.array_checks import Vectors
from anisoscope.sources.folds import Chunk, describe
from anisoscope.utils import memory
from anisoscope.utils.progress import LOGGER, progress_bar

WORK = 4  # memory of any program on a cloud, in sizes of that cloud
COPIES, CONSTANT = "duplicates", "constant columns"
MANY_COPIES = 0.05  # share of the points; without clusters a line says so
MANY_VALUES = 256  # vectors of fewer distinct integers, as int8 or bits, have tied distances
# labels that tables have besides the dimensions of quantities
TABLE_COORDINATES = ("batch", "depth", "jackknife", NULL, "positions", "statistic", "step")
Metric = Callable[[np.ndarray], Any]


@jax.enable_x64(False)
def measure_chunks(
    vectors: Vectors,
    chunks: list[Chunk],
    settings: MeasureConfig,
    label: str = "",
    lens: tuple[Any, np.ndarray] | None = None,
    key: Array | None = None,
) -> tuple[dict[str, Values], dict[str, Any]]:
    """Measure each layer, and all layers at once by families that compare layers.

    `label` is that of the progress bar. `lens` is the unembedding, and the token that each point is
    to predict. The keys of the Gaussian null models are made from the vectors, unless `key` is
    given. Return {cloud: {quantity: (chunk, layer, …, R)}}, and attributes for tables.
    """
    layers, parts, counts = vectors.layers, [], [[] for _ in vectors.layers]
    work = [part for chunk in chunks for part in share_work(chunk, settings.families)]
    with progress_bar(None, label, "layer", total=len(work) * len(layers)) as bar:
        for whole, chunk, families in work:
            check = check_chunk_memory(vectors, chunk.size, families, len(chunks))
            values, copied = measure_clouds(
                read_layers(layers, chunk.rows_P, counts if whole else None, bar.update),
                lay_out(chunk.folds, chunk.places),
                chunk.folds,
                Selection(families, settings.nulls),
                jax.random.key(settings.seed) if key is None else key,
                None if key is None else range(len(layers)),
                check,
                None if lens is None else LensInput(lens[0], lens[1][chunk.rows_P]),
            )
            if whole:
                parts.append(values)
                for count, number in zip(counts, copied, strict=True):
                    count[-1][COPIES] = number
            else:
                for cloud, by_name in values.items():
                    parts[-1].setdefault(cloud, {}).update(by_name)
    values = jax.tree.map(lambda *values: np.stack(values), *parts)
    attributes = {"seed": settings.seed} | describe(vectors, chunks) | describe_degenerate(counts)
    if vectors.cluster_P is None:
        warn_of_copies(counts, vectors.shape[0])
    searched = [chunk.size for _, chunk, _ in work if all(chunk is not other for other in chunks)]
    if searched:
        attributes["neighbors_among"] = f"{sum(searched):,} of {attributes['points']:,} points"
        LOGGER.warning(
            "neighbors are searched among %s, drawn in whole clusters; a larger search_among "
            "takes more of them, in time as the square of their number",
            attributes["neighbors_among"],
        )
    return values, attributes


def check_chunk_memory(
    vectors: Vectors, points: int, families: tuple[str, ...], chunks: int
) -> Callable[[int], None]:
    """Check memory for the clouds before they are read, and return the check of each program."""
    layers, width = len(vectors.layers), max(vectors.widths)
    description = f"{points:,} points of width {width}"
    together = select_kind(families, "layers", "logit_lens")
    if together and layers > 1:
        description = f"{layers} layers of {description} together"
    check = functools.partial(check_available, description=description, chunks=chunks)
    check(WORK * 4 * (layers if together else 1) * points * width)
    return check


def read_layers(
    layers: list[Any],
    rows_P: np.ndarray | slice,
    counts: list[list[dict[str, int]]] | None,
    update: Callable[[], Any],
) -> Iterator[np.ndarray]:
    """Read these points of one layer after another, and count what is degenerate; None: do not."""
    for n, layer in enumerate(layers):
        cloud_PD = as_vectors(layer[rows_P], f"vectors of layer {n}")
        if counts is not None:
            counts[n].append(count_degenerate(cloud_PD))
        yield cloud_PD
        update()


def warn_of_copies(counts: list[list[dict[str, int]]], points: int) -> None:
    """Warn where many points are copies, which count as independent without clusters."""
    least = min(sum(x[COPIES] for x in chunk) for chunk in counts)
    if least > MANY_COPIES * points:
        LOGGER.warning(
            "%s of %s points are copies of others in every layer and count as independent, so that "
            "intervals are too narrow; pass clusters, or leave copies out",
            *(f"{least:,}", f"{points:,}"),
        )


def share_work(
    chunk: Chunk, families: tuple[str, ...]
) -> list[tuple[bool, Chunk, tuple[str, ...]]]:
    """Split families of a large chunk into those of all points, and those of neighbors of a sample.

    Return what to measure in turn: whether it is the first of the chunk, points, and families.
    """
    near = tuple(name for name in families if FAMILIES[name].neighbors)
    if chunk.sample is None or not near:
        return [(True, chunk, families)]
    rest = tuple(name for name in families if name not in near)
    if not rest:
        return [(True, chunk.sample, near)]
    return [(True, chunk, rest), (False, chunk.sample, near)]


@jax.enable_x64(False)
def measure_head_chunks(
    heads: Heads, folds: Folds, count: int, settings: MeasureConfig
) -> dict[str, Values]:
    """Return {cloud: {quantity: (chunk, block, head, …, R)}} of chunks of whole windows.

    `folds` are those of the windows of a chunk.
    """
    blocks, windows, context, head_count, width = heads.q_NBTHK.shape
    size, measured = windows // count, []
    description = (
        f"queries and keys of width {width}, of {blocks * head_count:,} heads "
        f"at {size * context:,} positions,"
    )
    check = functools.partial(check_available, description=description, chunks=count)
    for start in range(0, size * count, size):
        q_NBTHK, k_NBTHK = (x[:, start : start + size] for x in (heads.q_NBTHK, heads.k_NBTHK))
        part = heads._replace(q_NBTHK=q_NBTHK, k_NBTHK=k_NBTHK, picks_P=np.arange(size * context))
        measured.append({MEASURED: measure_all_heads(part, folds, settings.families, check)})
    return jax.tree.map(lambda *values: np.stack(values), *measured)


def cloud_keys(clouds_NPD: np.ndarray, seed: int) -> Array:
    """Make keys of the Gaussian null models from checksums of the vectors.

    Draws of different clouds are independent, and a cloud has the same values in any position.
    """
    digest_N = [zlib.crc32(np.ascontiguousarray(cloud_PD)) for cloud_PD in clouds_NPD]
    return layer_keys(jax.random.key(seed), np.array(digest_N, np.uint32))


def check_available(takes: int, description: str, chunks: int | None) -> None:
    """Raise ValueError where this many bytes are not available; None: there are no chunks."""
    available = memory.available()
    if available is not None and takes > available:
        advice = "pass fewer layers or points"
        if chunks is not None:
            more = math.ceil(1.1 * chunks * takes / available)
            advice = f"name fewer families, or pass num_chunks={more}, whose values are averaged"
        raise ValueError(
            f"{description} take {memory.format_bytes(takes)} to measure, and "
            f"{memory.format_bytes(available)} are available: {advice}"
        )


def count_degenerate(cloud_PD: np.ndarray) -> dict[str, int]:
    """Count what distorts metrics: zeros, constant columns, copies, and points of few integers."""
    few = 0 < np.ptp(cloud_PD) < MANY_VALUES and (np.rint(cloud_PD) == cloud_PD).all()
    return {
        "zero rows": int((~cloud_PD.any(axis=1)).sum()),
        CONSTANT: int((cloud_PD == cloud_PD[0]).all(axis=0).sum()),
        COPIES: 0,  # the engine finds them
        "points of few whole numbers (many distances tie)": len(cloud_PD) * int(few),
    }


def describe_degenerate(counts: list[list[dict[str, int]]]) -> dict[str, str]:
    """Return an attribute that lists layers with equal counts over their chunks; {} without any."""
    layers: dict[str, list[str]] = {}
    for number, chunks in enumerate(counts):
        sums = {name: sum(count[name] for count in chunks) for name in chunks[0]}
        sums[CONSTANT] = min(count[CONSTANT] for count in chunks)
        words = ", ".join(f"{times:,} {name}" for name, times in sums.items() if times)
        layers.setdefault(words, []).append(str(number))
    layers.pop("", None)
    parts = [
        f"{words} in layer{'s' * (len(found) > 1)} {', '.join(found)}"
        for words, found in layers.items()
    ]
    return {"degenerate": "; ".join(parts)} if parts else {}


def check_metrics(metrics: Mapping[str, Metric]) -> None:
    """Raise ValueError, one line, where a name cannot be that of a new variable."""
    if not isinstance(metrics, Mapping) or not all(map(callable, metrics.values())):
        raise ValueError(
            f"metrics is {metrics!r}; pass your own functions in a dict by name; families= chooses "
            "those of the package"
        )
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
            raise ValueError(
                f"metrics: {name!r} is a quantity of families=({find_family(name)!r},); "
                "choose another name for your own function"
            )


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
    models = {name: null.variables if name == GAUSSIAN else {} for name in null_models}
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
    """Draw Gaussian clouds of the same spectrum, for metrics of the user, which are no programs."""
    key, *keys = jax.random.split(cloud_keys(cloud_PD[None], seed)[0], 1 + DRAWS)
    factor = jax.jit(factor_covariance)(cloud_PD, key)
    return [np.asarray(jax.jit(gaussian)(factor, draw)) for draw in keys]
