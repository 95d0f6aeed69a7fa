"""Arrays cut into pieces and folds, and the panel of each: values of all points, resamples of whole
folds.

J folds of M points are resampled; all P points make up the values. Arrays carry the letters of
`models`.
"""

import contextlib
import dataclasses
import functools
import math
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.measurement import null_models
from anisoscope.measurement.families.attention_family import Heads
from anisoscope.measurement.families.registry import FAMILIES, quantities
from anisoscope.measurement.intervals import degrees_of_freedom, weight_replicates
from anisoscope.measurement.panel import MEASURED, Sample, panel
from anisoscope.measurement.quantity import Values
from anisoscope.measurement.resampling import Places
from anisoscope.metrics import lapack
from anisoscope.metrics.convert import as_vectors
from anisoscope.sources.array_checks import places_of
from anisoscope.sources.array_readout import Read
from anisoscope.sources.degenerate import Seen, counts_in_words
from anisoscope.sources.folds import Folds, cut, cut_pieces
from anisoscope.utils import memory

FEWEST_CLUSTERS = 5  # of which intervals come without a warning
LEAST = 4  # times a cloud of many points itself, which no family's program does without


class Piece(NamedTuple):
    """Points that are measured together; places and folds are of these."""

    # of the points that are given; a slice of all reads them without a copy
    rows_P: np.ndarray | slice
    size: int
    places: Places | None
    folds: Folds


def pieces_of(
    points: int,
    clusters: Sequence | None,
    positions: Sequence | None,
    count: int,
    folds: int,
    seed: int,
) -> list[Piece]:
    """ValueError, one line, where clusters and positions do not fit the points, or make no such
    pieces or folds.
    """
    places_of(points, clusters, positions)  # refused as a whole
    pieces, generator = [], np.random.default_rng(seed)
    for rows_P in cut_pieces(points, clusters, count, seed):
        label_P, position_P = (
            None if given is None else np.asarray(given)[rows_P] for given in (clusters, positions)
        )
        own = cut(rows_P.size, label_P, folds, seed)
        if len(own.index_JM) < folds and pieces:  # as many folds in all pieces: one program
            return pieces_of(points, clusters, positions, count, len(own.index_JM), seed)
        folds = len(own.index_JM)
        places = places_of(rows_P.size, label_P, position_P)
        pieces.append(Piece(rows_P if count > 1 else slice(None), rows_P.size, places, own))
    least = min(piece.folds.index_JM.shape[1] for piece in pieces)

    def alike(index_JM: np.ndarray) -> np.ndarray:
        """As many points of each fold in all pieces."""
        return index_JM[:, np.sort(generator.choice(index_JM.shape[1], least, replace=False))]

    clusters_of = [
        len(np.unique(piece.places.window_P)) for piece in pieces if piece.places is not None
    ]
    if folds > 1 and min(clusters_of, default=FEWEST_CLUSTERS) < FEWEST_CLUSTERS:
        freedom = len(pieces) * degrees_of_freedom(*pieces[0].folds[1:], "jackknife")
        warnings.warn(
            f"clusters: {min(clusters_of)} of them, so that intervals have {freedom:.1f} degrees of freedom; below "
            f"{FEWEST_CLUSTERS} clusters they hold the truth less often than in 95 %: pass more, or folds=1 for none",
            stacklevel=4,
        )
    folds_of = [piece.folds._replace(index_JM=alike(piece.folds.index_JM)) for piece in pieces]
    return [piece._replace(folds=own) for piece, own in zip(pieces, folds_of, strict=True)]


@jax.enable_x64(False)
def of_layers(
    layers: list[Any],
    pieces: list[Piece],
    settings: MeasureConfig,
    progress: Callable[[list], Iterable] = iter,
    read: Read | None = None,
) -> tuple[dict[str, Values], dict[str, str]]:
    """{cloud: {quantity: (piece, layer, …, R)}}, layer by layer unless layers are compared; what is
    to be told.
    """
    together = any(FAMILIES[name].of in ("layers", "readout") for name in settings.families)
    numbers = list(range(len(layers)))
    unequal = any(piece.folds.unequal for piece in pieces)
    parts, seen = [], [Seen() for _ in layers]
    for some in progress([numbers] if together else [[number] for number in numbers]):
        panels = []
        for piece in pieces:
            points, width = piece.size, np.shape(layers[0])[1]
            words = f"{points:,} points of width {width}"
            words = f"{len(some)} layers of {words} together" if len(some) > 1 else words
            # before they are read
            check_memory(LEAST * 4 * len(some) * points * width, words, len(pieces))
            with _fitting(words, len(pieces)):
                clouds_NPD = np.stack(
                    [
                        as_vectors(layers[number][piece.rows_P], f"vectors of layer {number}")
                        for number in some
                    ]
                )
                for number, cloud_PD in zip(some, clouds_NPD, strict=True):
                    seen[number].add(cloud_PD)
                sample = Sample(clouds_NPD, places=piece.places)
                if read is not None:
                    sample = sample._replace(
                        readout=read.readout, target_P=read.target_P[piece.rows_P]
                    )
                digest_N = np.array(
                    [zlib.crc32(np.ascontiguousarray(cloud_PD)) for cloud_PD in clouds_NPD],
                    np.uint32,
                )
                key_N = null_models.layer_keys(jax.random.key(settings.seed), digest_N)
                given = sample, piece.folds.index_JM, settings, key_N, words, len(pieces)
                values = _measure(*given, unequal)
                panels.append(_weighed(values, piece.folds) if unequal else values)
        parts.append(jax.tree.map(lambda *values: np.stack(values), *panels))
    return jax.tree.map(lambda *values: np.concatenate(values, axis=1), *parts), counts_in_words(
        seen
    )


@jax.enable_x64(False)
def of_heads(
    heads: Heads, index_JM: np.ndarray, pieces: int, settings: MeasureConfig
) -> dict[str, Values]:
    """The quantities of every head: {cloud: {quantity: (piece, block, head, …, R)}}; pieces of
    whole windows.
    """
    blocks, windows, context, count, width = heads.q_NBTHK.shape
    size, panels = windows // pieces, []
    words = f"queries and keys of width {width}, of {blocks * count:,} heads at {size * context:,} positions,"
    cloud_NPD = np.zeros((blocks, size * context, 1), np.float32)
    for start in range(0, size * pieces, size):
        q_NBTHK, k_NBTHK = (x[:, start : start + size] for x in (heads.q_NBTHK, heads.k_NBTHK))
        part = heads._replace(q_NBTHK=q_NBTHK, k_NBTHK=k_NBTHK, picks_P=np.arange(size * context))
        with _fitting(words, pieces):
            unused = jax.random.key(0)  # heads have no Gaussian null model
            panels.append(
                _measure(Sample(cloud_NPD, part), index_JM, settings, unused, words, pieces)
            )
    return jax.tree.map(lambda *values: np.stack(values), *panels)


def _measure(
    sample: Sample,
    index_JM: np.ndarray,
    settings: MeasureConfig,
    key: Array,
    words: str,
    pieces: int,
    unequal: bool = False,
) -> dict[str, Values]:
    """Of one piece. Its key draws the Gaussian null model, and is made from the vectors themselves:
    draws of different clouds are independent, in several calls too, and a cloud has the same values
    wherever it stands.

    ValueError where the program, which says what it takes, would not fit beside the arrays that are
    there.
    """
    given = sample, index_JM, key
    leaves, structure = jax.tree.flatten(jax.eval_shape(lambda *arrays: arrays, *given))
    program = _compiled(dataclasses.replace(settings, seed=0), structure, tuple(leaves), unequal)
    if (needs := program.memory_analysis()) is not None:
        takes = needs.temp_size_in_bytes + needs.output_size_in_bytes + needs.argument_size_in_bytes
        check_memory(takes, words, pieces)
    with lapack.threads_for(min(sample.clouds_NPD.shape[1:])):
        return jax.device_get(program(*given))


def _weighed(found: dict[str, Values], folds: Folds) -> dict[str, Values]:
    kinds = {name: quantity.resampling for name, quantity in quantities().items()}

    def read(name: str, value: np.ndarray) -> np.ndarray:
        return (
            weight_replicates(value, kinds[name], folds.size_J, folds.square_J)
            if kinds[name]
            else value
        )

    return {
        cloud: {name: read(name, x) for name, x in values.items()}
        for cloud, values in found.items()
    }


@functools.cache
def _compiled(
    settings: MeasureConfig, structure: Any, leaves: tuple[jax.ShapeDtypeStruct, ...], unequal: bool
) -> jax.stages.Compiled:
    """One program for all arrays of one shape, whatever the seed: keys are arguments."""
    given = jax.tree.unflatten(structure, leaves)
    return (
        jax.jit(functools.partial(replicated, settings=settings, unequal=unequal))
        .lower(*given)
        .compile()
    )


def check_memory(takes: int, words: str, pieces: int) -> None:
    """ValueError where so many bytes are not there."""
    there = memory.available()
    if there is not None and takes > there:
        raise ValueError(
            f"{words} take {memory.format_bytes(takes)} to measure, and {memory.format_bytes(there)} are available: "
            f"name fewer families, or pass pieces={math.ceil(1.1 * pieces * takes / there)}, whose values are averaged"
        )


@contextlib.contextmanager
def _fitting(words: str, pieces: int) -> Iterator[None]:
    """ValueError where memory does not do in spite of what was foreseen: others take of it too."""
    try:
        yield
    except Exception as error:
        if not memory.is_out(error):
            raise
        why = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise ValueError(
            f"out of memory ({why}) at {words}: name fewer families, or pass pieces={2 * pieces}, whose values are "
            "averaged"
        ) from error


def replicated(
    sample: Sample, index_JM: Array, key: Array, settings: MeasureConfig, unequal: bool = False
) -> dict[str, Values]:
    """The panel's values of all points, and its resamples of the folds, which may leave some points
    out.

    Of unequal folds each is a section by itself, which `weight_replicates` can then give its weight.
    """
    folds, parts = (
        dataclasses.replace(settings, folds=len(index_JM)),
        len(index_JM) if unequal else None,
    )
    replicates = panel({MEASURED: _part(sample, index_JM.ravel())}, {}, folds, key, parts=parts)
    if not unequal and index_JM.size == sample.clouds_NPD.shape[1]:
        return replicates
    whole = panel({MEASURED: sample}, {}, dataclasses.replace(settings, folds=1), key)

    def both(name: str, value: Array, resampled: Array) -> Array:
        return (
            jnp.concatenate([value, resampled[..., 1:]], -1)
            if quantities()[name].resampling
            else value
        )

    return {
        cloud: {name: both(name, value, replicates[cloud][name]) for name, value in values.items()}
        for cloud, values in whole.items()
    }


def _part(sample: Sample, index_P: Array) -> Sample:
    """These points; of heads, the windows that they make up."""
    places, target_P = jax.tree.map(lambda x_P: x_P[index_P], (sample.places, sample.target_P))
    if sample.heads is None:
        return Sample(sample.clouds_NPD[:, index_P], None, places, None, sample.readout, target_P)
    q_NBTHK, k_NBTHK = sample.heads.q_NBTHK, sample.heads.k_NBTHK
    window_B = index_P[:: q_NBTHK.shape[2]] // q_NBTHK.shape[2]
    heads = sample.heads._replace(
        q_NBTHK=q_NBTHK[:, window_B], k_NBTHK=k_NBTHK[:, window_B], picks_P=jnp.arange(index_P.size)
    )
    return Sample(sample.clouds_NPD[:, index_P], heads, places)
