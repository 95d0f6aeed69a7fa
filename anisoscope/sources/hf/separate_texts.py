"""Read separate texts, several in a pass: vectors of tokens, and of whole texts.

Texts of several lengths are padded to one where it changes no vector of the model, which is tried
out; otherwise those of one length are read together. Letters: M picked tokens, U texts.
"""

import itertools
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from anisoscope import __version__
from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.pretrained_config import PretrainedConfig
from anisoscope.results.replicates_table import add_massive
from anisoscope.sources import arrays
from anisoscope.sources.evaluation_windows import POSITION_SETS, WITHOUT_MASSIVE
from anisoscope.sources.hf import guards
from anisoscope.sources.hf.extract import (
    check_finite_activations,
    check_positions,
    choose_layers,
    residual_stream,
    to_array,
)
from anisoscope.sources.hf.input_texts import Text
from anisoscope.sources.hf.load_model import PretrainedModel, tokens_per_position
from anisoscope.sources.hf.revision import as_attributes, label_layers
from anisoscope.sources.hf.token_windows import (
    SPECIAL,
    check_unknown,
    special_frame,
    special_ids,
    tokens_at_positions,
)
from anisoscope.sources.massive_tokens import find_massive
from anisoscope.utils.errors import UserError
from anisoscope.utils.progress import progress_bar, report_stage

# mean over the tokens of a text; its last token; its first token, a special one
POOLS = ("mean", "last", "cls")
OFFERED = 2  # positions drawn per position measured
LONGEST_TOKEN = 64  # characters that are read of a text for each token of the window
PADDED = 1e-4  # how far padding may move a vector, relative to its length
TOKEN_VECTORS = "tokens"  # vectors of picked tokens, beside those of pools


class Tokens(NamedTuple):
    """Tokens of the drawn texts, and their positions, one text after another."""

    ids: list[np.ndarray]
    count_U: np.ndarray  # positions of each text: fewer than tokens where several share one
    special_N: np.ndarray  # True at special tokens
    text_N: np.ndarray  # the number of each position's text
    position_N: np.ndarray  # its place in this text
    empty: int  # texts without a position, left out
    pad: int  # the token that pads


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
    joined = tokens_per_position(loaded.model.config)
    with report_stage("measure_model: reading the texts"):
        tokens = draw_texts(text.parts, tokenizer, config, bool(pools), joined)
    with report_stage("measure_model: checking the model"):
        checks = check_tokens(loaded, tokenizer, tokens)
    most = config.pretrained.batch_size * config.window
    layers = choose_layers(loaded, config.layers)
    with report_stage(f"measure_model: reading {len(tokens.ids)} texts with the model"):
        if config.measure.without_massive:  # known once all are read
            rows_M = np.arange(len(tokens.text_N))
            vectors = read_text_vectors(loaded, tokens, rows_M, pools, most, layers)
            massive_LN = find_massive([x_ND] for x_ND in vectors[TOKEN_VECTORS])
            picks = pick_tokens(tokens, config.measure, massive_LN.any(axis=0))
        else:
            massive_LN, picks = None, pick_tokens(tokens, config.measure)
            rows_M = np.unique(np.concatenate([*picks.values()]))
            vectors = read_text_vectors(loaded, tokens, rows_M, pools, most, layers)
    table = measure_vectors(tokens, picks, rows_M, vectors, config.measure)
    table = table if massive_LN is None else add_massive(table, [massive_LN])
    table = label_layers(table, loaded, layers)
    return table.assign_attrs(
        as_attributes(loaded.attributes) | checks,
        corpus=text.name,
        corpus_sha256=text.sha256,
        texts=f"{len(tokens.ids)} of {len(text.parts)} texts, each cut to {config.window} tokens"
        + f"; {tokens.empty} without a token left out" * (tokens.empty > 0),
        window=config.window,
        anisoscope=__version__,
    )


def draw_texts(
    parts: list[str], tokenizer: Any, config: PretrainedConfig, pooled: bool, joined: int = 1
) -> Tokens:
    """Draw texts in random order, cut to the window, until there are enough positions.

    Where texts are `pooled`, there must be enough texts too. `joined` tokens share a position.
    """
    measure, ids, count, empty = config.measure, [], 0, 0
    points, special = measure.points * measure.batches, config.special_tokens
    end = special_frame(tokenizer)[1] if special else []
    for number in np.random.default_rng(measure.seed).permutation(len(parts)):
        part = parts[number][: LONGEST_TOKEN * config.window]
        tokens = tokenizer(part, add_special_tokens=special, verbose=False)["input_ids"]
        if len(tokens) < joined:
            empty += 1
            continue
        if len(tokens) > config.window:
            tokens = tokens[: config.window - len(end)] + end
        ids.append(np.asarray(tokens, np.int32))
        count += len(tokens) // joined
        if count >= OFFERED * points and not (pooled and len(ids) < points):
            break
    if not ids:
        raise UserError(f"texts: none of {len(parts)} has a token; pass longer texts")
    count_U = np.array([len(ids_T) // joined for ids_T in ids])
    special = special_ids(tokenizer)
    special_N = np.concatenate(
        [
            tokens_at_positions(np.isin(ids_T[: count * joined], special), joined).any(-1)
            for ids_T, count in zip(ids, count_U, strict=True)
        ]
    )
    text_N = np.repeat(np.arange(len(ids)), count_U)
    position_N = np.concatenate([np.arange(count) for count in count_U])
    pad = tokenizer.pad_token_id or 0
    return Tokens(ids, count_U, special_N, text_N, position_N, empty, pad)


def check_tokens(loaded: PretrainedModel, tokenizer: Any, tokens: Tokens) -> dict[str, Any]:
    """Check the model and its tokenizer on the drawn texts, and return what tables record."""
    ids_N, longest_T = np.concatenate(tokens.ids), max(tokens.ids, key=len)
    guards.check_vocabulary(loaded, int(ids_N.max()))
    guards.check_window(loaded, len(longest_T))
    return {
        "residual_stream": guards.check_final_norm(loaded, longest_T),
        "unknown_tokens": check_unknown(ids_N, tokenizer),
        "bits_per_byte": "not checked: separate texts",
    }


def pick_tokens(
    tokens: Tokens, measure: MeasureConfig, massive_N: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Pick equally many tokens for every set of positions: {set: indices among all tokens}.

    There is a set without massive tokens where they are known.
    """
    allowed = dict.fromkeys(POSITION_SETS, tokens.position_N >= 0)
    allowed[POSITION_SETS[1]] = tokens.position_N > 0
    if tokens.special_N.any():
        allowed[SPECIAL] = ~tokens.special_N
    if massive_N is not None:
        allowed[WITHOUT_MASSIVE] = ~massive_N
    order_N = np.random.default_rng(measure.seed).permutation(len(tokens.special_N))
    count = min(measure.points * measure.batches, *(int(x_N.sum()) for x_N in allowed.values()))
    return {name: np.sort(order_N[x_N[order_N]][:count]) for name, x_N in allowed.items()}


def read_text_vectors(
    loaded: PretrainedModel,
    tokens: Tokens,
    rows_M: np.ndarray,
    pools: tuple[str, ...],
    most: int,
    chosen: tuple[int, ...] | None = None,
) -> dict[str, np.ndarray]:
    """Read the vectors of positions `rows_M`, and of each text under each pool.

    A pass has `most` tokens, and layers are those `chosen` (None: all). Return {TOKEN_VECTORS or
    pool: (layer, position or text, D) in float32}.
    UserError where a number is not finite.
    """
    vectors: dict[str, np.ndarray] = {}
    text_M, position_M = tokens.text_N[rows_M], tokens.position_N[rows_M]
    passes = plan_passes(tokens, most, is_padding_harmless(loaded, tokens))
    for text_B in progress_bar(passes, "measure_model: read", "pass"):
        layers = read_pass(loaded, tokens, text_B, chosen)
        if not vectors:
            shape = len(layers), len(tokens.ids), layers[0].shape[-1]
            vectors = {pool: np.empty(shape, np.float32) for pool in pools}
            vectors[TOKEN_VECTORS] = np.empty((shape[0], len(rows_M), shape[2]), np.float32)
        for (n, x_BTD), (b, u) in itertools.product(enumerate(layers), enumerate(text_B)):
            x_TD = x_BTD[b, : tokens.count_U[u]]
            layer = chosen[n] if chosen else n
            check_finite_activations(x_TD, loaded, f"the residual stream of layer {layer}")
            slots = slice(*np.searchsorted(text_M, (u, u + 1)))
            vectors[TOKEN_VECTORS][n, slots] = x_TD[position_M[slots]]
            for pool in pools:
                ends = {"last": -1, "cls": 0}
                vectors[pool][n, u] = x_TD.mean(0) if pool == "mean" else x_TD[ends[pool]]
    return vectors


def plan_passes(tokens: Tokens, most: int, padded: bool) -> list[list[int]]:
    """Gather texts of like length into passes of at most `most` tokens, padding included."""
    passes: list[list[int]] = []
    length_U = [len(ids_T) for ids_T in tokens.ids]
    for u in np.argsort(length_U, kind="stable").tolist():
        last = passes[-1] if passes else []
        fits = (len(last) + 1) * length_U[u] <= most
        if last and fits and (padded or length_U[last[0]] == length_U[u]):
            last.append(u)
        else:
            passes.append([u])
    return passes


def read_pass(
    loaded: PretrainedModel,
    tokens: Tokens,
    text_B: list[int],
    chosen: tuple[int, ...] | None = None,
) -> list[np.ndarray]:
    """Read texts in one pass, padded behind to the longest; return the layers (B, T, D)."""
    length_B = np.array([len(tokens.ids[u]) for u in text_B])
    mask_BT = np.arange(length_B.max()) < length_B[:, None]
    ids_BT = np.full(mask_BT.shape, tokens.pad, np.int32)
    ids_BT[mask_BT] = np.concatenate([tokens.ids[u] for u in text_B])
    layers, _ = residual_stream(loaded, ids_BT, layers=chosen, mask_BT=mask_BT)
    check_positions(loaded, ids_BT.shape[1], layers[0].shape[1])
    return [to_array(x_BTD) for x_BTD in layers]


def is_padding_harmless(loaded: PretrainedModel, tokens: Tokens) -> bool:
    """Return whether the shortest text, padded to the longest, has the vectors that it has alone.

    In half precision rounding could hide what padding changes, so nothing is padded there.
    """
    length_U = [len(ids_T) for ids_T in tokens.ids]
    pair = [int(np.argmin(length_U)), int(np.argmax(length_U))]
    if length_U[pair[0]] == length_U[pair[1]] or loaded.attributes["computed_in"] != "float32":
        return False
    together = read_pass(loaded, tokens, pair)
    for b, u in enumerate(pair):
        alone, count = read_pass(loaded, tokens, [u]), tokens.count_U[u]
        for x_BTD, y_BTD in zip(together, alone, strict=True):
            x_TD, y_TD = x_BTD[b, :count], y_BTD[0, :count]
            move_T = np.linalg.norm(x_TD - y_TD, axis=-1)
            if not (move_T <= PADDED * np.linalg.norm(y_TD, axis=-1)).all():
                return False
    return True


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
        x_NMD = [*vectors[TOKEN_VECTORS][:, np.searchsorted(rows_M, row_M)]]
        points = {"clusters": tokens.text_N[row_M], "token_positions": tokens.position_N[row_M]}
        with report_stage(f"measure_model: measuring the tokens of the set {name}"):
            tables[name] = arrays.measure(x_NMD, **points, **options)
    for pool in (name for name in vectors if name != TOKEN_VECTORS):
        x_NUD = [*vectors[pool][:, : measure.points * measure.batches]]
        with report_stage(f"measure_model: measuring the texts under the pool {pool}"):
            tables[pool] = arrays.measure(x_NUD, **options)
    return arrays.join_positions(tables)
