"""How alike two models are on the same text, of which others trained one or both; the table of
sources/similarity.py.

Tokenizers may differ, so both read the same pieces of the text, each from its beginning (reading/pieces.py).
"""

import functools
import hashlib
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr

from anisoscope.config.measure import MeasureConfig
from anisoscope.config.pretrained import PretrainedConfig, steps
from anisoscope.data import corpus as texts
from anisoscope.data.corpus import Corpus
from anisoscope.measurement.families import comparison
from anisoscope.measurement.nulls import PERMUTATIONS
from anisoscope.measurement.sources import similarity
from anisoscope.measurement.sources.hub import load
from anisoscope.measurement.sources.hub.reading import guards
from anisoscope.measurement.sources.hub.reading.clamp import clamp
from anisoscope.measurement.sources.hub.reading.extract import activations
from anisoscope.measurement.sources.hub.reading.pieces import Common, Ends, common, ends_of, pieces_of
from anisoscope.measurement.sources.hub.reading.windows import SAMPLE, frame, text_of, tokens_of
from anisoscope.measurement.sources.run import open_run
from anisoscope.measurement.tables import files
from anisoscope.models.description import description
from anisoscope.utils.errors import UserError
from anisoscope.utils.files import read_json
from anisoscope.utils.progress import bar
from anisoscope.utils.settings import filled, from_dict, replace, to_dict

ALIKE = similarity.SETTINGS


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


class Pair(NamedTuple):
    sides: tuple[Side, Side]
    labels: tuple[str, str]
    corpus: Corpus


def opened(first: str, second: str) -> Pair:
    """Both models; UserError, one line, where they cannot be compared."""
    sides = tuple((_of_others if similarity.of_others(word) else _of_ours)(word) for word in (first, second))
    texts = [_text(side) for side in sides]
    different = [
        f"{name}={str(here)[:12]} and {str(there)[:12]}"
        for (name, here), there in zip(texts[0].items(), texts[1].values(), strict=True)
        if here != there
    ]
    if different:
        raise UserError(
            f"--similarity: {first} and {second} have no points in common: {'; '.join(different)}; take two runs "
            "of one text and the same measure.* settings"
        )
    return Pair(sides, similarity.labels_of((first, second), tuple(side.step for side in sides)), sides[0].corpus)


def _text(side: Side) -> dict[str, Any]:
    """What has to be the same for both."""
    settings = {f"measure.{name}": getattr(side.measure, name) for name in ALIKE}
    return settings | {"corpus_sha256": side.corpus.sha256, "text_sha256": hashlib.sha256(_valid(side)).hexdigest()}


def _valid(side: Side) -> bytes:
    """The validation split."""
    return np.frombuffer(side.corpus.vocabulary, np.uint8)[side.corpus.valid].tobytes()


def _of_ours(word: str) -> Side:
    run = open_run(word.partition("@")[0])
    step = similarity.step_of(word, run.steps) if run.steps else None
    if step is None:
        raise UserError(f"--similarity={word}: there is no checkpoint; run --stages=train first")
    params, vectors = run.params(step), jax.jit(run.vectors)
    token_of = np.zeros(256, np.int32)
    token_of[np.frombuffer(run.corpus.vocabulary, np.uint8)] = np.arange(len(run.corpus.vocabulary))

    def read(piece: bytes) -> np.ndarray:
        return np.asarray(vectors(params, token_of[np.frombuffer(piece, np.uint8)][None]))[:, 0]

    said = f"{description(run.config.model)}; step {step:,}"
    config = run.config
    return Side(
        step,
        config.measure,
        run.corpus,
        config.model.context,
        config.model.context,
        said,
        lambda p: np.arange(1, len(p) + 1),
        read,
    )


def _of_others(word: str) -> Side:
    path = pathlib.Path(word.partition("@")[0])
    settings = read_json(path / "config.json", "name the folder of a run")
    if "models" in settings:
        raise UserError(f"--similarity={word}: several models; name the folder of one below it")
    if (path / "results.nc").exists():  # which revisions were measured, only the tables say
        settings = json.loads(files.read(path / "results.nc").attrs["config"])
    config = from_dict(filled(settings, to_dict(PretrainedConfig())), PretrainedConfig)
    revisions = steps(config.pretrained)
    step = similarity.step_of(word, list(revisions))
    loaded = load.load(place := load.place_of(config.pretrained.name, revisions[step]), config.pretrained)
    if not loaded.reads_text or loaded.adapter.rate:
        why = "several tokens share a position" if loaded.reads_text else "it reads no text"
        raise UserError(f"--similarity={word}: {type(loaded.model).__name__} cannot be compared: {why}")
    tokenizer = load.tokenizer_of(place)
    if not tokenizer.is_fast:
        raise UserError(f"--similarity={word}: its tokenizer does not tell where in the text a token ends")
    before, after = map(len, frame(tokenizer)) if config.special_tokens else (0, 0)
    corpus = texts.load(config.data, config.window)
    if config.characters is not None:
        length = tokens_of(text_of(corpus), tokenizer, config.characters, config.special_tokens)
        config = replace(config, {"window": length})
    sample = np.frombuffer(corpus.vocabulary, np.uint8)[corpus.valid[:SAMPLE]].tobytes()
    spelled = len(tokenizer(sample.decode(errors="ignore"), add_special_tokens=False, verbose=False)["input_ids"])

    def tokens(piece: bytes) -> dict[str, Any]:
        return tokenizer(
            piece.decode(), add_special_tokens=config.special_tokens, return_offsets_mapping=True, verbose=False
        )

    def ends(piece: bytes) -> np.ndarray:
        given = tokens(piece)
        names = tokenizer.convert_ids_to_tokens(given["input_ids"])
        return ends_of(piece.decode(), given["offset_mapping"], names)

    def vectors(piece: bytes) -> np.ndarray:
        ids_T = np.array(tokens(piece)["input_ids"], np.int32)
        reported = config.hidden_states == "reported"
        return activations(loaded, ids_T[None, None], 1, heads=False, reported=reported).resid_ZNWTD[0, :, 0]

    said = f"{loaded.about['model_class']}, {loaded.blocks} layers; weights {loaded.about['weights_sha256'][:12]}"
    length = int((config.window - before - after) * len(sample) / spelled)
    side = Side(step, config.measure, corpus, length, guards.positions(loaded) or np.inf, said, ends, vectors)
    if config.pretrained.clamp is None:
        return side
    some = [tokens(piece)["input_ids"] for piece, _ in zip(pieces_of(_valid(side), length, 0), range(8), strict=False)]
    shortest = min(map(len, some))
    cut = clamp(loaded, config.pretrained.clamp, np.array([ids[:shortest] for ids in some]), 1)
    return side._replace(words=f"{said}; clamped: {cut}")


def table(pair: Pair) -> xr.Dataset:
    """cka, cka_unbiased and overlap of (layer, other_layer), with intervals and the excess over the null model."""
    length = min(side.bytes for side in pair.sides)
    measure = pair.sides[0].measure
    pieces, program = _readable(pair, length), _program(measure.folds)
    values, count = [], 0
    for batch in bar(range(measure.batches), " beside ".join(pair.labels), "batch"):
        points = common(pieces, tuple(side.ends for side in pair.sides), measure, batch)
        a_NMD, b_NMD = (_clouds(side, points, number) for number, side in enumerate(pair.sides))
        sets = []
        for picks_P in points.picks_SP:
            null_KNPD = np.stack([a_NMD[:, other_M[picks_P]] for other_M in points.others_KM])
            sets.append(jax.device_get(program(a_NMD[:, picks_P], b_NMD[:, picks_P], null_KNPD)))
        values.append(jax.tree.map(lambda *of_sets: np.stack(of_sets), *sets))
        count += len(points.pieces)
    about = {"corpus": pair.corpus.name} | _text(pair.sides[0]) | {"piece_bytes": length, "pieces": count}
    about["points_are"] = f"where tokens of both end, in the same {count} pieces of {length} bytes"
    for name, side, label in zip(("first", "second"), pair.sides, pair.labels, strict=True):
        about |= {name: label, f"{name}_step": side.step, f"{name}_model": side.words}
    return similarity.summarised(values, about | {"permutations": PERMUTATIONS})


def _readable(pair: Pair, length: int) -> Iterator[bytes]:
    """Without those that have more tokens than a model has positions."""
    for piece in pieces_of(_valid(pair.sides[0]), length, pair.sides[0].measure.seed):
        if all(len(side.ends(piece)) <= side.longest for side in pair.sides):
            yield piece


def _clouds(side: Side, points: Common, number: int) -> np.ndarray:
    """The vectors of all points of a batch, (N, M, D)."""
    of_piece = []
    for place, piece in enumerate(points.pieces):
        of_piece.append(side.vectors(piece)[:, points.places_2M[number][points.piece_M == place]])
    return np.concatenate(of_piece, axis=1)


@functools.cache
def _program(folds: int) -> Callable[..., similarity.Values]:
    """Compiled once for all batches and sets of positions."""

    @jax.default_matmul_precision("highest")
    def across(a_NPD: jax.Array, b_MPE: jax.Array, null_KNPD: jax.Array) -> similarity.Values:
        return comparison.across(a_NPD, b_MPE, folds, lambda number: null_KNPD[number])

    return jax.jit(across)
