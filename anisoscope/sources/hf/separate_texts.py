"""Read separate texts, those of one length together: vectors of tokens, and of whole texts.

No text is padded, so no vector depends on padding. Letters: M picked tokens, U texts.
"""

from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from anisoscope import __version__
from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.pretrained_config import PretrainedConfig
from anisoscope.sources import arrays
from anisoscope.sources.evaluation_windows import POSITION_SETS
from anisoscope.sources.hf import guards
from anisoscope.sources.hf.extract import check_finite_activations, residual_stream, to_array
from anisoscope.sources.hf.load_model import PretrainedModel
from anisoscope.sources.hf.revision import as_attributes
from anisoscope.sources.hf.token_windows import (
    SPECIAL,
    Text,
    check_unknown,
    special_frame,
    special_ids,
)
from anisoscope.utils.errors import UserError
from anisoscope.utils.progress import progress_bar

# mean over the tokens of a text; its last token; its first token, a special one
POOLS = ("mean", "last", "cls")
OFFERED = 2  # tokens drawn per token measured
TOKENS = "tokens"  # vectors of picked tokens, beside those of pools


class Tokens(NamedTuple):
    """Tokens of the drawn texts, one text after another."""

    ids: list[np.ndarray]
    special_N: np.ndarray  # True at special tokens
    text_N: np.ndarray  # the number of each token's text
    position_N: np.ndarray  # its position in this text
    empty: int  # texts without a token, left out


def measure_texts(
    loaded: PretrainedModel,
    tokenizer: Any,
    text: Text,
    config: PretrainedConfig,
    pools: tuple[str, ...],
) -> xr.Dataset:
    """Measure separate texts in the residual stream."""
    if "cls" in pools and not special_frame(tokenizer)[0]:
        why = "this tokenizer puts no special token before a text"
        raise UserError(f"pool=cls: {why}; name another pool")
    tokens = draw_texts(text.parts, tokenizer, config, bool(pools))
    checks = check_tokens(loaded, tokenizer, tokens)
    picks = pick_tokens(tokens, config.measure)
    rows_M = np.unique(np.concatenate([*picks.values()]))
    vectors = read_text_vectors(loaded, tokens, rows_M, pools, config.pretrained.batch_size)
    table = measure_vectors(tokens, picks, rows_M, vectors, config.measure)
    return table.assign_attrs(
        as_attributes(loaded.attributes) | checks,
        corpus=text.name,
        corpus_sha256=text.sha256,
        texts=f"{len(tokens.ids)} of {len(text.parts)} texts, each cut to {config.window} tokens"
        + f"; {tokens.empty} without a token left out" * (tokens.empty > 0),
        window=config.window,
        anisoscope=__version__,
    )


def draw_texts(parts: list[str], tokenizer: Any, config: PretrainedConfig, pooled: bool) -> Tokens:
    """Draw texts in random order, cut to the window, until there are enough tokens.

    Where texts are `pooled`, there must be enough texts too.
    """
    measure, ids, count, empty = config.measure, [], 0, 0
    points, special = measure.points * measure.batches, config.special_tokens
    end = special_frame(tokenizer)[1] if special else []
    for number in np.random.default_rng(measure.seed).permutation(len(parts)):
        tokens = tokenizer(parts[number], add_special_tokens=special, verbose=False)["input_ids"]
        if not tokens:
            empty += 1
            continue
        if len(tokens) > config.window:
            tokens = tokens[: config.window - len(end)] + end
        ids.append(np.asarray(tokens, np.int32))
        count += len(ids[-1])
        if count >= OFFERED * points and not (pooled and len(ids) < points):
            break
    if not ids:
        raise UserError(f"texts: none of {len(parts)} has a token; pass longer texts")
    text_N = np.repeat(np.arange(len(ids)), [len(ids_T) for ids_T in ids])
    position_N = np.concatenate([np.arange(len(ids_T)) for ids_T in ids])
    special_N = np.isin(np.concatenate(ids), special_ids(tokenizer))
    return Tokens(ids, special_N, text_N, position_N, empty)


def check_tokens(loaded: PretrainedModel, tokenizer: Any, tokens: Tokens) -> dict[str, Any]:
    """Check the model and its tokenizer on the drawn texts, and return what tables record."""
    ids_N, longest_T = np.concatenate(tokens.ids), max(tokens.ids, key=len)
    guards.check_vocabulary(loaded, int(ids_N.max()))
    guards.check_window(loaded, len(longest_T), 0)
    return {
        "residual_stream": guards.check_final_norm(loaded, longest_T),
        "unknown_tokens": check_unknown(ids_N, tokenizer),
        "bits_per_byte": "not checked: separate texts",
    }


def pick_tokens(tokens: Tokens, measure: MeasureConfig) -> dict[str, np.ndarray]:
    """Pick equally many tokens for every set of positions: {set: indices among all tokens}."""
    allowed = dict.fromkeys(POSITION_SETS, tokens.position_N >= 0)
    allowed[POSITION_SETS[1]] = tokens.position_N > 0
    if tokens.special_N.any():
        allowed[SPECIAL] = ~tokens.special_N
    order_N = np.random.default_rng(measure.seed).permutation(len(tokens.special_N))
    count = min(measure.points * measure.batches, *(int(x_N.sum()) for x_N in allowed.values()))
    return {name: np.sort(order_N[x_N[order_N]][:count]) for name, x_N in allowed.items()}


def read_text_vectors(
    loaded: PretrainedModel,
    tokens: Tokens,
    rows_M: np.ndarray,
    pools: tuple[str, ...],
    batch_size: int,
) -> dict[str, np.ndarray]:
    """Read the vectors of tokens `rows_M`, and of each text under each pool.

    Return {TOKENS or pool: (layer, token or text, D) in float32}. UserError where a number is not
    finite.
    """
    length_U, vectors, batches = np.array([len(ids_T) for ids_T in tokens.ids]), {}, []
    for length in np.unique(length_U):
        text_U = np.flatnonzero(length_U == length)
        batches += np.split(text_U, range(batch_size, len(text_U), batch_size))
    text_M, position_M = tokens.text_N[rows_M], tokens.position_N[rows_M]
    for text_B in progress_bar(batches, "measure_model: read", "batch"):
        layers, _ = residual_stream(loaded, np.stack([tokens.ids[u] for u in text_B]))
        if not vectors:
            shape = len(layers), len(tokens.ids), layers[0].shape[-1]
            vectors = {pool: np.empty(shape, np.float32) for pool in pools}
            vectors[TOKENS] = np.empty((shape[0], len(rows_M), shape[2]), np.float32)
        for n, x_BTD in enumerate(map(to_array, layers)):
            check_finite_activations(x_BTD, loaded, f"the residual stream of layer {n}")
            for u, x_TD in zip(text_B, x_BTD, strict=True):
                slots = slice(*np.searchsorted(text_M, (u, u + 1)))
                vectors[TOKENS][n, slots] = x_TD[position_M[slots]]
                for pool in pools:
                    ends = {"last": -1, "cls": 0}
                    vectors[pool][n, u] = x_TD.mean(0) if pool == "mean" else x_TD[ends[pool]]
    return vectors


def measure_vectors(
    tokens: Tokens,
    picks: dict[str, np.ndarray],
    rows_M: np.ndarray,
    vectors: dict[str, np.ndarray],
    measure: MeasureConfig,
) -> xr.Dataset:
    """Measure the sets of positions, and each pool as another set, into one table."""
    options = {"folds": measure.folds, "num_chunks": measure.batches, "seed": measure.seed}
    options |= {"families": measure.families, "nulls": measure.nulls}
    tables = {}
    for name, row_M in picks.items():
        x_NMD = [*vectors[TOKENS][:, np.searchsorted(rows_M, row_M)]]
        points = {"clusters": tokens.text_N[row_M], "token_positions": tokens.position_N[row_M]}
        tables[name] = arrays.measure(x_NMD, **points, **options)
    for pool in (name for name in vectors if name != TOKENS):
        x_NUD = [*vectors[pool][:, : measure.points * measure.batches]]
        tables[pool] = arrays.measure(x_NUD, **options)
    return arrays.join_positions(tables)
