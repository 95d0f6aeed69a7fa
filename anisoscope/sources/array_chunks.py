"""Run the panel on chunks of vectors.

Values use all points of a chunk, replicates use its folds. Arrays carry the letters of `models`,
and J folds of M points.
"""

import dataclasses
import functools
import math
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax import Array

from anisoscope.config.measure_config import INPUT_KINDS, MeasureConfig
from anisoscope.measurement.families.attention_family import Heads
from anisoscope.measurement.families.registry import quantities
from anisoscope.measurement.intervals import weight_replicates
from anisoscope.measurement.null_models import layer_keys
from anisoscope.measurement.panel import MEASURED, Sample, measure_panel
from anisoscope.measurement.quantity import Quantity, Values
from anisoscope.metrics import copies, lapack
from anisoscope.metrics.convert import as_vectors
from anisoscope.sources.array_checks import Vectors
from anisoscope.sources.folds import Chunk, Folds, describe
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
    """Run the panel on each layer, or on all layers at once for families that compare layers.

    `label` is that of the progress bar. `lens` is the unembedding, and the token that each point is
    to predict. The key of the Gaussian null models is made from the vectors, unless given. Return
    {cloud: {quantity: (chunk, layer, …, R)}}, and attributes for tables.
    """
    layers = vectors.layers
    kinds = {INPUT_KINDS[name] for name in settings.families}
    numbers = range(len(layers))
    together = not kinds.isdisjoint(("layers", "logit_lens"))
    unequal = any(chunk.folds.unequal for chunk in chunks)
    groups = [numbers] if together else [[number] for number in numbers]
    parts, counts = [], [[] for _ in layers]
    for group in progress_bar(groups, label, "layer"):
        panels, width = [], max(vectors.widths[n] for n in group)
        for chunk in chunks:
            description = f"{chunk.size:,} points of width {width}"
            if len(group) > 1:
                description = f"{len(group)} layers of {description} together"
            # checked before the arrays are read
            check_available(WORK * 4 * len(group) * chunk.size * width, description, len(chunks))
            clouds = [as_vectors(layers[n][chunk.rows_P], f"vectors of layer {n}") for n in group]
            for n, cloud_PD in zip(group, clouds, strict=True):
                counts[n].append(count_degenerate(cloud_PD))
            # columns of zeros change no distance, where layers are compared
            pads = [((0, 0), (0, width - cloud_PD.shape[1])) for cloud_PD in clouds]
            clouds_NPD = np.stack([*map(np.pad, clouds, pads)])
            sample = Sample(clouds_NPD, places=chunk.places)
            if lens is not None:
                sample = sample._replace(unembedding=lens[0], target_P=lens[1][chunk.rows_P])
            key_N = cloud_keys(clouds_NPD, settings.seed)
            key_N = key_N if key is None else layer_keys(key, np.array(group))
            measure = functools.partial(
                run_panel, sample, settings, key_N, description, len(chunks)
            )
            panels.append(resample(measure, chunk.size, chunk.folds, quantities(), unequal))
        parts.append(jax.tree.map(lambda *values: np.stack(values), *panels))
    values = jax.tree.map(lambda *values: np.concatenate(values, axis=1), *parts)
    least, points = min(sum(x[COPIES] for x in chunk) for chunk in counts), vectors.shape[0]
    if vectors.cluster_P is None and least > MANY_COPIES * points:
        LOGGER.warning(
            "%s of %s points are copies of others in every layer and count as independent, so that "
            "intervals are too narrow; pass clusters, or leave copies out",
            *(f"{least:,}", f"{points:,}"),
        )
    attributes = {"seed": settings.seed} | describe(vectors, chunks) | describe_degenerate(counts)
    return values, attributes


@jax.enable_x64(False)
def measure_head_chunks(
    heads: Heads, folds: Folds, count: int, settings: MeasureConfig
) -> dict[str, Values]:
    """Return {cloud: {quantity: (chunk, block, head, …, R)}} of chunks of whole windows."""
    blocks, windows, context, head_count, width = heads.q_NBTHK.shape
    size, panels = windows // count, []
    description = (
        f"queries and keys of width {width}, of {blocks * head_count:,} heads "
        f"at {size * context:,} positions,"
    )
    cloud_NPD = np.zeros((blocks, size * context, 1), np.float32)
    for start in range(0, size * count, size):
        q_NBTHK, k_NBTHK = (x[:, start : start + size] for x in (heads.q_NBTHK, heads.k_NBTHK))
        part = heads._replace(q_NBTHK=q_NBTHK, k_NBTHK=k_NBTHK, picks_P=np.arange(size * context))
        unused = jax.random.key(0)  # heads have no Gaussian null model
        sample = Sample(cloud_NPD, part)
        measure = functools.partial(run_panel, sample, settings, unused, description, count)
        panels.append(resample(measure, size * context, folds, quantities()))
    return jax.tree.map(lambda *values: np.stack(values), *panels)


def cloud_keys(clouds_NPD: np.ndarray, seed: int) -> Array:
    """Make keys of the Gaussian null models from checksums of the vectors.

    Draws of different clouds are independent, and a cloud has the same values in any position.
    """
    digest_N = [zlib.crc32(np.ascontiguousarray(cloud_PD)) for cloud_PD in clouds_NPD]
    return layer_keys(jax.random.key(seed), np.array(digest_N, np.uint32))


def resample(
    measure: Callable[[Any, int, int | None], dict[str, Values]],
    points: int,
    folds: Folds,
    schema: Mapping[str, Quantity],
    unequal: bool | None = None,
) -> dict[str, Values]:
    """Compute values from all points, and replicates from the folds, which may leave out points.

    `measure` is (index of points, folds, sections) -> {cloud: {quantity: (…, R)}}; None sections
    are as many as the folds allow. Each of unequal folds is a section, and its replicates are
    weighted by its share of the points. `unequal` is that of all chunks.
    """
    unequal, index_P, count = unequal or folds.unequal, folds.index_JM.ravel(), len(folds.index_JM)
    replicates = measure(index_P, count, count if unequal else None)
    if not unequal and index_P.size == points:
        return replicates
    values = measure(slice(None), 1, None)
    for cloud, by_name in values.items():
        for name in by_name:
            if kind := schema[name].resampling:
                value = np.concatenate([by_name[name], replicates[cloud][name][..., 1:]], -1)
                by_name[name] = weight_replicates(value, kind, *folds[1:]) if unequal else value
    return values


def run_panel(
    sample: Sample,
    settings: MeasureConfig,
    key: Array,
    description: str,
    chunks: int,
    index_P: Any,
    folds: int,
    sections: int | None,
) -> dict[str, Values]:
    """Run the compiled panel on points of one chunk, after checking that its memory is available."""
    arguments = _take_points(sample, index_P), key
    leaves, structure = jax.tree.flatten(jax.eval_shape(lambda *arrays: arrays, *arguments))
    settings = dataclasses.replace(settings, seed=0, folds=folds)
    program = _compile(settings, structure, tuple(leaves), sections)
    if (needs := program.memory_analysis()) is not None:
        takes = needs.temp_size_in_bytes + needs.output_size_in_bytes + needs.argument_size_in_bytes
        check_available(takes, description, chunks)
    with lapack.threads_for(min(sample.clouds_NPD.shape[1:])):
        return jax.device_get(program(*arguments))


@functools.cache
def _compile(
    settings: MeasureConfig,
    structure: Any,
    leaves: tuple[jax.ShapeDtypeStruct, ...],
    sections: int | None,
) -> jax.stages.Compiled:
    """Compile one program for all arrays of one shape and any seed: keys are arguments."""

    def program(sample: Sample, key: Array) -> dict[str, Values]:
        return measure_panel({MEASURED: sample}, {}, settings, key, sections=sections)

    return jax.jit(program).lower(*jax.tree.unflatten(structure, leaves)).compile()


def _take_points(sample: Sample, index_P: Any) -> Sample:
    """Take these points, and the whole windows of heads that they form."""
    clouds_NPD, heads = sample.clouds_NPD[:, index_P], sample.heads
    if heads is not None and not isinstance(index_P, slice):
        context = heads.q_NBTHK.shape[2]
        window_B = index_P[::context] // context
        heads = heads._replace(
            q_NBTHK=heads.q_NBTHK[:, window_B],
            k_NBTHK=heads.k_NBTHK[:, window_B],
            picks_P=np.arange(index_P.size),
        )
    places, target_P = jax.tree.map(lambda x_P: x_P[index_P], (sample.places, sample.target_P))
    return Sample(clouds_NPD, heads, places, None, sample.unembedding, target_P)


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


_find_copies = jax.jit(copies.copies)


def count_degenerate(cloud_PD: np.ndarray) -> dict[str, int]:
    """Count what distorts metrics: zeros, constant columns, copies, and points of few integers."""
    few = 0 < np.ptp(cloud_PD) < MANY_VALUES and (np.rint(cloud_PD) == cloud_PD).all()
    return {
        "zero rows": int((~cloud_PD.any(axis=1)).sum()),
        CONSTANT: int((cloud_PD == cloud_PD[0]).all(axis=0).sum()),
        COPIES: len(cloud_PD) - len(np.unique(_find_copies(cloud_PD).original_P)),
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
