"""Two models as a pair to compare, of which one or both are pretrained
(sources/two_representations.py).

Tokenizers may differ, so both read the same pieces of the text, each from its beginning
(reading/pieces.py).

Letters: M points of a batch, or layers of the second model, S sets of positions, Z inputs of a
batch: one here.
"""

import hashlib
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.pretrained_config import PretrainedConfig, steps
from anisoscope.data import corpus as texts
from anisoscope.data.corpus import Corpus
from anisoscope.models.description import description
from anisoscope.results import joined_files
from anisoscope.sources import two_representations
from anisoscope.sources.finished_run import open_run
from anisoscope.sources.hf import load_model
from anisoscope.sources.hf.reading import guards
from anisoscope.sources.hf.reading.clamp import clamp_coordinates
from anisoscope.sources.hf.reading.extract import read_activations
from anisoscope.sources.hf.reading.text_chunks import (
    CommonPoints,
    Ends,
    common_points,
    draw_chunks,
    token_ends,
)
from anisoscope.sources.hf.reading.token_windows import (
    SAMPLE,
    special_frame,
    validation_text,
    window_length,
)
from anisoscope.sources.two_representations import Clouds, Pair
from anisoscope.sources.two_runs import reader
from anisoscope.utils.errors import UserError
from anisoscope.utils.files import read_json
from anisoscope.utils.settings import from_dict, replace


class Side(NamedTuple):
    """One of the two models."""

    step: int
    measure: MeasureConfig
    corpus: Corpus
    bytes: int  # of the text that it reads at a time
    longest: float  # positions that a piece may have
    words: str
    ends: Ends
    vectors: Callable[[bytes], np.ndarray]  # of a piece, (N, T, D)


def opened(first: str, second: str) -> Pair:
    """Both models; UserError, one line, where they cannot be compared."""
    words = first, second
    return pair(words, tuple(map(side_of, words)))


def side_of(word: str) -> Side:
    return _pretrained(word) if two_representations.is_pretrained(word) else _of_run(word)


def pair(words: tuple[str, str], sides: tuple[Side, Side]) -> Pair:
    same = [_text(side) for side in sides]
    two_representations.refuse_different(
        words, same, "take two runs of one text and the same measure.* settings"
    )
    labels = two_representations.labels_of(words, tuple(side.step for side in sides))
    measure, length, count = sides[0].measure, min(side.bytes for side in sides), 0
    pieces = _readable(sides, length)

    def clouds(batch: int) -> list[Clouds]:
        nonlocal count
        points = common_points(pieces, tuple(side.ends for side in sides), measure, batch)
        count += len(points.pieces)
        first_NMD, second_NME = (
            _vectors(side, points, number) for number, side in enumerate(sides)
        )
        return [
            Clouds(
                first_NMD[:, picks_P],
                second_NME[:, picks_P],
                np.stack([first_NMD[:, other_M[picks_P]] for other_M in points.others_KM]),
            )
            for picks_P in points.picks_SP
        ]

    def attributes() -> dict[str, Any]:
        about = (
            {"corpus": sides[0].corpus.name} | same[0] | {"piece_bytes": length, "pieces": count}
        )
        about["points_are"] = (
            f"where tokens of both end, in the same {count} pieces of {length} bytes"
        )
        for name, side, label in zip(("first", "second"), sides, labels, strict=True):
            about |= {name: label, f"{name}_step": side.step, f"{name}_model": side.words}
        return about

    return Pair(labels, measure, sides[0].corpus, clouds, attributes)


def _text(side: Side) -> dict[str, Any]:
    """What has to be the same for both."""
    settings = {
        f"measure.{name}": getattr(side.measure, name) for name in two_representations.SETTINGS
    }
    return settings | {
        "corpus_sha256": side.corpus.sha256,
        "text_sha256": hashlib.sha256(_valid(side)).hexdigest(),
    }


def _valid(side: Side) -> bytes:
    """The validation split."""
    return np.frombuffer(side.corpus.vocabulary, np.uint8)[side.corpus.valid].tobytes()


def _of_run(word: str) -> Side:
    run = open_run(word.partition("@")[0])
    step, context = two_representations.step_of(word, run.steps), run.config.model.context
    vectors = reader(run, step)
    token_of = np.zeros(256, np.int32)
    token_of[np.frombuffer(run.corpus.vocabulary, np.uint8)] = np.arange(len(run.corpus.vocabulary))

    def read(piece: bytes) -> np.ndarray:
        return np.asarray(vectors(token_of[np.frombuffer(piece, np.uint8)][None]))[:, 0]

    words = f"{description(run.config.model)}; step {step:,}"
    ends = lambda piece: np.arange(1, len(piece) + 1)  # noqa: E731
    return Side(step, run.config.measure, run.corpus, context, context, words, ends, read)


def _pretrained(word: str) -> Side:
    path = pathlib.Path(word.partition("@")[0])
    settings = read_json(path / "config.json", "name the folder of a run")
    if "models" in settings:
        raise UserError(f"--similarity={word}: several models; name the folder of one below it")
    if (path / "results.nc").exists():  # which revisions were measured, only the tables say
        settings = json.loads(joined_files.read_table(path / "results.nc").attrs["config"])
    config = from_dict(settings, PretrainedConfig)
    revisions = steps(config.pretrained)
    step = two_representations.step_of(word, list(revisions))
    loaded = load_model.load_model(
        place := load_model.find_weights(config.pretrained.name, revisions[step]), config.pretrained
    )
    if not loaded.reads_text or loaded.adapter.rate:
        why = "several tokens share a position" if loaded.reads_text else "it reads no text"
        raise UserError(
            f"--similarity={word}: {type(loaded.model).__name__} cannot be compared: {why}"
        )
    tokenizer = load_model.read_tokenizer(place)
    if not tokenizer.is_fast:
        raise UserError(
            f"--similarity={word}: its tokenizer does not tell where in the text a token ends"
        )
    before, after = map(len, special_frame(tokenizer)) if config.special_tokens else (0, 0)
    corpus = texts.load(config.data, config.window)
    if config.characters is not None:
        length = window_length(
            validation_text(corpus), tokenizer, config.characters, config.special_tokens
        )
        config = replace(config, {"window": length})
    sample = np.frombuffer(corpus.vocabulary, np.uint8)[corpus.valid[:SAMPLE]].tobytes()
    spelled = len(
        tokenizer(sample.decode(errors="ignore"), add_special_tokens=False, verbose=False)[
            "input_ids"
        ]
    )

    def tokens(piece: bytes) -> dict[str, Any]:
        return tokenizer(
            piece.decode(),
            add_special_tokens=config.special_tokens,
            return_offsets_mapping=True,
            verbose=False,
        )

    def ends(piece: bytes) -> np.ndarray:
        given = tokens(piece)
        names = tokenizer.convert_ids_to_tokens(given["input_ids"])
        return token_ends(piece.decode(), given["offset_mapping"], names)

    def vectors(piece: bytes) -> np.ndarray:
        ids_T = np.array(tokens(piece)["input_ids"], np.int32)
        reported = config.hidden_states == "reported"
        return read_activations(
            loaded, ids_T[None, None], 1, heads=False, reported=reported
        ).resid_ZNWTD[0, :, 0]

    said = f"{loaded.about['model_class']}, {loaded.blocks} layers; weights {loaded.about['weights_sha256'][:12]}"
    length = int((config.window - before - after) * len(sample) / spelled)
    side = Side(
        step,
        config.measure,
        corpus,
        length,
        guards.max_positions(loaded) or np.inf,
        said,
        ends,
        vectors,
    )
    if config.pretrained.clamp is None:
        return side
    some = [
        tokens(piece)["input_ids"]
        for piece, _ in zip(draw_chunks(_valid(side), length, 0), range(8), strict=False)
    ]
    shortest = min(map(len, some))
    cut = clamp_coordinates(
        loaded, config.pretrained.clamp, np.array([ids[:shortest] for ids in some]), 1
    )
    return side._replace(words=f"{said}; clamped: {cut}")


def _readable(sides: tuple[Side, ...], length: int) -> Iterator[bytes]:
    """Without those that have more tokens than a model has positions."""
    for piece in draw_chunks(_valid(sides[0]), length, sides[0].measure.seed):
        if all(len(side.ends(piece)) <= side.longest for side in sides):
            yield piece


def _vectors(side: Side, points: CommonPoints, number: int) -> np.ndarray:
    """The vectors of all points of a batch, (N, M, D)."""
    at = [points.places_2M[number][points.piece_M == place] for place in range(len(points.pieces))]
    return np.concatenate(
        [side.vectors(piece)[:, at_M] for piece, at_M in zip(points.pieces, at, strict=True)],
        axis=1,
    )
