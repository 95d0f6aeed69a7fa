"""Pair two models to compare, at least one of which is pretrained; two_folders.py opens runs.

Tokenizers may differ, so both models read the same chunks of the text, each chunk from its
beginning (text_chunks.py). Letters: M points of a batch, or layers of the second model,
S sets of positions, Z inputs of a batch, G batches.
"""

import contextlib
import hashlib
import itertools
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import transformers
import xarray as xr

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.pretrained_config import SINGLE_STEP, PretrainedConfig
from anisoscope.results.missing_names import as_table
from anisoscope.sources import two_models
from anisoscope.sources.hf import guards, load_model
from anisoscope.sources.hf.extract import clamp_coordinates, read_activations
from anisoscope.sources.hf.input_texts import read_texts
from anisoscope.sources.hf.load_model import PretrainedModel
from anisoscope.sources.hf.measure_model import as_arguments, open_model
from anisoscope.sources.hf.memory_model import evaluation_mode
from anisoscope.sources.hf.text_chunks import (
    CommonPoints,
    Ends,
    byte_ends,
    common_points,
    draw_chunks,
    token_ends,
)
from anisoscope.sources.hf.token_windows import (
    SAMPLE,
    decode,
    encode_text,
    set_window,
    special_frame,
)
from anisoscope.sources.paired_clouds import PairedClouds
from anisoscope.sources.two_models import ModelPair
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace

CLAMP_CHUNKS = 8  # chunks in which clamped coordinates are counted


class SharedText(NamedTuple):
    """The text that both models read."""

    name: str
    content: bytes
    sha256: str  # of the text as it was given
    record: dict[str, Any]  # for environment.json


class Side(NamedTuple):
    """One side of the comparison: a model and how it reads a chunk."""

    step: int
    measure: MeasureConfig
    text: SharedText
    bytes: int  # length of a chunk
    longest: float  # most positions in a chunk
    description: str
    ends: Ends
    vectors: Callable[[bytes], np.ndarray]  # chunk -> (N, T, D)


def pair_sides(names: tuple[str, str], sides: tuple[Side, Side]) -> ModelPair:
    """Check that both models read the same text, and pair them."""
    same = []
    for side in sides:
        measure = {f"measure.{name}": getattr(side.measure, name) for name in two_models.SETTINGS}
        sha256 = hashlib.sha256(side.text.content).hexdigest()
        same.append(measure | {"corpus_sha256": side.text.sha256, "text_sha256": sha256})
    advice = "name two runs of one text and the same measure.* settings"
    two_models.check_comparable(names, same, advice)
    labels = two_models.choose_labels(names, tuple(side.step for side in sides))
    measure, text, length = sides[0].measure, sides[0].text, min(side.bytes for side in sides)
    chunks = (
        chunk
        for chunk in draw_chunks(text.content, length, measure.seed)
        if all(len(side.ends(chunk)) <= side.longest for side in sides)
    )
    ends = tuple(side.ends for side in sides)
    points_G = [common_points(chunks, ends, measure, batch) for batch in range(measure.batches)]
    count = sum(len(points.chunks) for points in points_G)
    where = f"where tokens of both end, in the same {count} chunks of {length} bytes"
    attributes = {"corpus": text.name, "chunk_bytes": length, "chunks": count, "points_are": where}
    for name, side, label in zip(("first", "second"), sides, labels, strict=True):
        attributes |= {name: label, f"{name}_step": side.step, f"{name}_model": side.description}
    batches = (_read_clouds(sides, points) for points in points_G)
    return ModelPair(labels, measure, text.record, batches, same[0] | attributes)


def _read_clouds(sides: tuple[Side, Side], points: CommonPoints) -> list[PairedClouds]:
    """Read the clouds of a batch, of each set of positions."""
    first_NMD, second_MME = (read_points(side, points, n) for n, side in enumerate(sides))
    sets = []
    for picks_P in points.picks_SP:
        permuted_NPD = first_NMD[:, points.other_M[picks_P]]
        sets.append(PairedClouds(first_NMD[:, picks_P], second_MME[:, picks_P], permuted_NPD))
    return sets


def read_points(side: Side, points: CommonPoints, number: int) -> np.ndarray:
    """Read the vectors (N, M, D) of a batch; `number` is 0 for the first model, 1 for the second."""
    place_M = points.places_2M[number]
    return np.concatenate(
        [
            side.vectors(chunk)[:, place_M[points.chunk_M == index]]
            for index, chunk in enumerate(points.chunks)
        ],
        axis=1,
    )


def make_side(
    name: str,
    loaded: PretrainedModel,
    tokenizer: Any,
    text: SharedText,
    config: PretrainedConfig,
    step: int,
) -> Side:
    """Describe how a loaded model reads the chunks of a text."""
    if loaded.adapter.tokens_per_position:
        why = "several tokens share a position"
        raise UserError(f"{name}: {why}; name another model")
    special, by_bytes = config.special_tokens, reads_bytes(name, tokenizer)
    window = config.window
    if config.characters is not None:
        window = set_window(decode(text.content), tokenizer, config).window
    frame = sum(map(len, special_frame(tokenizer))) if special else 0

    def tokenize(chunk: bytes) -> dict[str, Any]:
        return tokenizer(
            chunk.decode(),
            add_special_tokens=special,
            return_offsets_mapping=not by_bytes,
            verbose=False,
        )

    def ends(chunk: bytes) -> np.ndarray:
        tokens = tokenize(chunk)
        names = tokenizer.convert_ids_to_tokens(tokens["input_ids"])
        if by_bytes:
            return byte_ends(chunk, tokens["input_ids"])
        return token_ends(chunk.decode(), tokens["offset_mapping"], names)

    def vectors(chunk: bytes) -> np.ndarray:
        ids_T = np.array(tokenize(chunk)["input_ids"], np.int32)
        reported = config.hidden_states == "reported"
        read = read_activations(loaded, ids_T[None, None], 1, heads=False, reported=reported)
        return read.resid_ZLBTD[0, :, 0]

    sample = text.content[:SAMPLE]
    tokens_N, _ = encode_text(sample.decode(errors="ignore"), tokenizer)
    if not tokens_N.size:
        raise UserError("the text is empty; pass a longer one")
    guards.check_window(loaded, window)
    guards.check_vocabulary(loaded, int(tokens_N.max()))
    length, attributes = int((window - frame) * len(sample) / tokens_N.size), loaded.attributes
    digest = attributes["weights_sha256"][:12]
    description = f"{attributes['model_class']}, {loaded.blocks} layers; weights {digest}"
    longest = guards.max_positions(loaded) or np.inf
    side = Side(step, config.measure, text, length, longest, description, ends, vectors)
    if config.pretrained.clamp is None:
        return side
    chunks = itertools.islice(draw_chunks(text.content, length, 0), CLAMP_CHUNKS)
    ids = [tokenize(chunk)["input_ids"] for chunk in chunks]
    ids_CT = np.array([row[: min(map(len, ids))] for row in ids])
    cut = clamp_coordinates(loaded, config.pretrained.clamp, ids_CT, 1)
    return side._replace(description=f"{description}; clamped: {cut}")


def reads_bytes(name: str, tokenizer: Any) -> bool:
    """Return whether a token is a byte; UserError where a tokenizer does not say where tokens end."""
    by_bytes = isinstance(tokenizer, transformers.ByT5Tokenizer)
    if not (tokenizer.is_fast or by_bytes):
        what = f"{name}: {type(tokenizer).__name__} does not say where its tokens end"
        raise UserError(f"{what}; pass a fast tokenizer (PreTrainedTokenizerFast)")
    return by_bytes


def compare_pretrained(
    models: tuple[Any, Any],
    texts: Any,
    revision: str | tuple[str | None, str | None] | None,
    labels: tuple[str, str] | None,
    settings: dict[str, Any],
) -> xr.Dataset:
    """Compare two models as `anisoscope.compare_models` documents."""
    with as_arguments(), load_model.quiet(), contextlib.ExitStack() as modes:
        revisions = (revision, revision) if isinstance(revision, str | None) else revision
        for name, pair in {"labels": labels or ("", ""), "revision": revisions}.items():
            if isinstance(pair, str) or len(pair) != 2:
                raise UserError(f"{name} is {pair!r}; pass two, one of each model")
        read = read_texts(texts)
        text = SharedText(read.name, read.content.encode(), read.sha256, {})
        names, sides = [], []
        for model, revision in zip(models, revisions, strict=True):
            config = replace(PretrainedConfig(), settings)
            loaded, tokenizer = open_model(model, revision, None, config)
            name = loaded.attributes["pretrained"]
            names.append(name if revision is None else f"{name}@{revision}")
            sides.append(make_side(name, loaded, tokenizer, text, config, SINGLE_STEP))
            modes.enter_context(evaluation_mode(loaded))
        pair = pair_sides(tuple(names), tuple(sides))
        first, second = labels or (pathlib.Path(name).resolve().name for name in names)
        steps = ("first_step", "second_step")  # the label has the revision
        attributes = {name: x for name, x in pair.attributes.items() if name not in steps}
        masked = int(attributes["measure.masked"])  # NetCDF has no booleans
        attributes |= {"first": first, "second": second, "measure.masked": masked}
        return as_table(two_models.measure_pair(pair._replace(attributes=attributes)))
