"""Measure chunks of vectors: read them layer by layer, and hand them to the engine.

Arrays carry the letters of `models`.
"""

import functools
import math
import zlib
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax import Array

from anisoscope.config.measure_config import INPUT_KINDS, MeasureConfig
from anisoscope.engine.measure_clouds import LensInput, Selection, measure_all_heads, measure_clouds
from anisoscope.engine.sizes import Folds, lay_out
from anisoscope.measurement.families.attention_family import Heads
from anisoscope.measurement.families.registry import FAMILIES
from anisoscope.measurement.null_models import layer_keys
from anisoscope.measurement.quantity import MEASURED, Values
from anisoscope.metrics.convert import as_vectors
from anisoscope.sources.array_checks import Vectors
from anisoscope.sources.folds import Chunk, describe
from anisoscope.utils import memory
from anisoscope.utils.progress import LOGGER, progress_bar

WORK = 4  # memory of any program on a cloud, in sizes of that cloud
COPIES, CONSTANT = "duplicates", "constant columns"
MANY_COPIES = 0.05  # share of the points; without clusters a line says so
MANY_VALUES = 256  # vectors of fewer distinct integers, as int8 or bits, have tied distances


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
    layers, width = vectors.layers, max(vectors.widths)
    parts, counts = [], [[] for _ in layers]
    work = [pair for chunk in chunks for pair in share_work(chunk, settings.families)]
    with progress_bar(None, label, "layer", total=len(work) * len(layers)) as bar:
        for whole, chunk, families in work:
            selection = Selection(families, settings.nulls)
            together = {"layers", "logit_lens"} & {INPUT_KINDS[name] for name in families}
            description = f"{chunk.size:,} points of width {width}"
            if together and len(layers) > 1:
                description = f"{len(layers)} layers of {description} together"
            check = functools.partial(check_available, description=description, chunks=len(chunks))
            # checked before the arrays are read
            check(WORK * 4 * (len(layers) if together else 1) * chunk.size * width)

            def read(chunk: Chunk = chunk, counted: bool = whole) -> Iterator[np.ndarray]:
                for n, layer in enumerate(layers):
                    cloud_PD = as_vectors(layer[chunk.rows_P], f"vectors of layer {n}")
                    if counted:
                        counts[n].append(count_degenerate(cloud_PD))
                    yield cloud_PD
                    bar.update()

            values, copied = measure_clouds(
                read(),
                lay_out(chunk.folds, chunk.places),
                chunk.folds,
                selection,
                jax.random.key(settings.seed) if key is None else key,
                key is not None,
                check,
                None if lens is None else LensInput(lens[0], lens[1][chunk.rows_P]),
            )
            if not whole:
                for cloud, by_name in values.items():
                    parts[-1].setdefault(cloud, {}).update(by_name)
                continue
            for count, number in zip(counts, copied, strict=True):
                count[-1][COPIES] = number
            parts.append(values)
    values = jax.tree.map(lambda *values: np.stack(values), *parts)
    least, points = min(sum(x[COPIES] for x in chunk) for chunk in counts), vectors.shape[0]
    if vectors.cluster_P is None and least > MANY_COPIES * points:
        LOGGER.warning(
            "%s of %s points are copies of others in every layer and count as independent, so that "
            "intervals are too narrow; pass clusters, or leave copies out",
            *(f"{least:,}", f"{points:,}"),
        )
    attributes = {"seed": settings.seed} | describe(vectors, chunks) | describe_degenerate(counts)
    if sampled := [chunk for _, chunk, _ in work if all(chunk is not other for other in chunks)]:
        searched = f"{sum(chunk.size for chunk in sampled):,} of {attributes['points']:,} points"
        attributes["neighbors_among"] = searched
        LOGGER.warning(
            "neighbors are searched among %s, drawn in whole clusters; a larger search_among "
            "takes more of them, in time as the square of their number",
            searched,
        )
    return values, attributes


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
    size, panels = windows // count, []
    description = (
        f"queries and keys of width {width}, of {blocks * head_count:,} heads "
        f"at {size * context:,} positions,"
    )
    check = functools.partial(check_available, description=description, chunks=count)
    for start in range(0, size * count, size):
        q_NBTHK, k_NBTHK = (x[:, start : start + size] for x in (heads.q_NBTHK, heads.k_NBTHK))
        part = heads._replace(q_NBTHK=q_NBTHK, k_NBTHK=k_NBTHK, picks_P=np.arange(size * context))
        panels.append({MEASURED: measure_all_heads(part, folds, settings.families, check)})
    return jax.tree.map(lambda *values: np.stack(values), *panels)


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
