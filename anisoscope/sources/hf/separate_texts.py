"""Read separate texts in padded batches: token vectors, and pooled vectors of whole texts.

Padding never enters a cloud: a mask hides it from the model, and only vectors of real tokens are
kept. Letters: M picked tokens, U texts.
"""

import inspect
from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr

from anisoscope import __version__
from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.pretrained_config import PretrainedConfig
from anisoscope.sources import arrays
from anisoscope.sources.evaluation_windows import POSITION_SETS
from anisoscope.sources.hf.extract import check_finite, residual_stream, to_array
from anisoscope.sources.hf.guards import CLOSE, position_table, relative_distance
from anisoscope.sources.hf.load_model import PretrainedModel
from anisoscope.sources.hf.revision import as_attributes
from anisoscope.sources.hf.token_windows import SPECIAL, Text, special_frame, unknown_token
from anisoscope.utils.errors import UserError
from anisoscope.utils.progress import bar

SIDES = ("left", "right")
# mean over the tokens of a text; its last token; its first token, a special one
POOLS = ("mean", "last", "cls")
OFFERED = 2  # tokens drawn per token measured
TOKENS = "tokens"  # vectors of picked tokens, beside those of pools


class Tokens(NamedTuple):
    """Tokens of the drawn texts, one text after another."""

    ids: list[np.ndarray]
    special_N: np.ndarray  # True at special tokens
    empty: int  # number of texts without a token

    @property
    def starts_U(self) -> np.ndarray:
        """The index of each text's first token, and the number of all tokens."""
        return np.cumsum([0, *(len(ids_T) for ids_T in self.ids)])

    @property
    def text_N(self) -> np.ndarray:
        return np.repeat(np.arange(len(self.ids)), np.diff(self.starts_U))

    @property
    def position_N(self) -> np.ndarray:
        """The position of each token in its text."""
        return np.arange(self.starts_U[-1]) - self.starts_U[self.text_N]


def measure_texts(
    loaded: PretrainedModel,
    tokenizer: Any,
    text: Text,
    config: PretrainedConfig,
    side: str,
    pools: tuple[str, ...],
) -> xr.Dataset:
    """Measure separate texts in the residual stream."""
    measure = config.measure
    if "cls" in pools and not special_frame(tokenizer)[0]:
        raise UserError(
            "pool=cls: this tokenizer puts no special token before a text; name another pool"
        )
    tokens = draw_texts(text.parts, tokenizer, config, bool(pools))
    picks = pick_tokens(tokens, measure)
    pads = (tokenizer.pad_token_id, tokenizer.eos_token_id, 0)
    pad = next(token for token in pads if token is not None)
    batches = padded_batches(tokens, side, pad, config.pretrained.batch_size)
    rows_M = np.unique(np.concatenate([*picks.values()]))
    vectors, padding = read_vectors(loaded, tokens, rows_M, pools, batches)
    table = measure_vectors(tokens, picks, rows_M, vectors, measure)
    return table.assign_attrs(
        as_attributes(loaded.attributes)
        | {
            "corpus": text.name,
            "corpus_sha256": text.sha256,
            "texts": f"{len(tokens.ids)} of {len(text.parts)} texts, each cut to {config.window} tokens, "
            f"padded on the {side}",
            "texts_without_tokens": tokens.empty,
            "padding": padding,
            "window": config.window,
            "anisoscope": __version__,
        }
    )


def draw_texts(parts: list[str], tokenizer: Any, config: PretrainedConfig, pooled: bool) -> Tokens:
    """Draw texts in random order, cut to the window, until there are enough tokens.

    Where texts are `pooled`, there must be enough texts too.
    """
    measure, window, special = config.measure, config.window, config.special_tokens
    points, ids, empty, count = measure.points * measure.batches, [], 0, 0
    for number in np.random.default_rng(measure.seed).permutation(len(parts)):
        tokens = tokenizer(parts[number], add_special_tokens=special, verbose=False)["input_ids"]
        if tokens:
            ids.append(np.asarray(tokens[:window], np.int32))
            count += len(ids[-1])
        else:
            empty += 1
        if count >= OFFERED * points and not (pooled and len(ids) < points):
            break
    if not ids:
        raise UserError(f"texts: none of {len(parts)} has a token; pass longer texts")
    special_ids = sorted(set(tokenizer.all_special_ids) - {unknown_token(tokenizer)})
    return Tokens(ids, np.isin(np.concatenate(ids), special_ids), empty)


def pick_tokens(tokens: Tokens, measure: MeasureConfig) -> dict[str, np.ndarray]:
    """Pick equally many tokens for every set of positions: {set: indices among all tokens}."""
    allowed = dict.fromkeys(POSITION_SETS, tokens.position_N >= 0)
    allowed[POSITION_SETS[1]] = tokens.position_N > 0
    if tokens.special_N.any():
        allowed[SPECIAL] = ~tokens.special_N
    order_N = np.random.default_rng(measure.seed).permutation(len(tokens.special_N))
    count = min(measure.points * measure.batches, *(int(x_N.sum()) for x_N in allowed.values()))
    return {name: np.sort(order_N[x_N[order_N]][:count]) for name, x_N in allowed.items()}


def padded_batches(tokens: Tokens, side: str, pad: int, size: int) -> list[tuple[np.ndarray, ...]]:
    """Return [(indices of texts, ids_BT, mask_BT)], with texts of similar length together."""
    order_U, batches = np.argsort([-len(ids_T) for ids_T in tokens.ids], kind="stable"), []
    for start in range(0, len(order_U), size):
        text_B = order_U[start : start + size]
        ids_BT = np.full((len(text_B), len(tokens.ids[text_B[0]])), pad, np.int32)
        mask_BT = np.zeros(ids_BT.shape, bool)
        for row, u in enumerate(text_B):
            ids_T, length = tokens.ids[u], ids_BT.shape[1]
            part = slice(length - len(ids_T), None) if side == "left" else slice(len(ids_T))
            ids_BT[row, part], mask_BT[row, part] = ids_T, True
        batches.append((text_B, ids_BT, mask_BT))
    return batches


def padding_arguments(loaded: PretrainedModel, mask_BT: np.ndarray) -> dict[str, torch.Tensor]:
    """Return the mask of a padded batch, and positions that count from its first token."""
    mask = torch.as_tensor(mask_BT, dtype=torch.long, device=loaded.base.device)
    arguments = {"attention_mask": mask}
    counts_itself = position_table(loaded.base) is not None  # from the first real token
    takes_positions = "position_ids" in inspect.signature(loaded.base.forward).parameters
    if takes_positions and not counts_itself and not mask_BT[:, 0].all():
        arguments["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    return arguments


def read_layers(
    loaded: PretrainedModel, ids_BT: np.ndarray, mask_BT: np.ndarray
) -> list[torch.Tensor]:
    """Read the residual stream of a padded batch, layer by layer."""
    return residual_stream(loaded, ids_BT, **padding_arguments(loaded, mask_BT))[0]


def read_vectors(
    loaded: PretrainedModel,
    tokens: Tokens,
    rows_M: np.ndarray,
    pools: tuple[str, ...],
    batches: list[tuple[np.ndarray, ...]],
) -> tuple[dict[str, np.ndarray], str]:
    """Read the vectors of tokens `rows_M`, and of each text under each pool.

    Return {TOKENS or pool: (layer, token or text, D) in float32}, and in words how padding was
    checked. UserError where padding changes vectors, or a number is not finite.
    """
    starts_U, description, vectors = tokens.starts_U, "", {}
    for text_B, ids_BT, mask_BT in bar(batches, "measure_model: read", "batch"):
        layers = read_layers(loaded, ids_BT, mask_BT)
        if not description and not mask_BT.all():
            description = check_padding(loaded, layers, ids_BT, mask_BT)
        if not vectors:
            width, sizes = layers[0].shape[-1], dict.fromkeys(pools, len(tokens.ids))
            sizes[TOKENS] = len(rows_M)
            vectors = {
                name: np.empty((len(layers), size, width), np.float32)
                for name, size in sizes.items()
            }
        for n, x_BTD in enumerate(map(to_array, layers)):
            check_finite(x_BTD[mask_BT], loaded, f"the residual stream of layer {n}")
            for u, x_TD, mask_T in zip(text_B, x_BTD, mask_BT, strict=True):
                x_TD = x_TD[mask_T]
                first, last = np.searchsorted(rows_M, starts_U[u : u + 2])
                vectors[TOKENS][n, first:last] = x_TD[rows_M[first:last] - starts_U[u]]
                for pool in pools:
                    ends = {"last": -1, "cls": 0}
                    vectors[pool][n, u] = x_TD.mean(0) if pool == "mean" else x_TD[ends[pool]]
    return vectors, description or "all texts of a batch have one length: there was no padding"


def check_padding(
    loaded: PretrainedModel, layers: list[torch.Tensor], ids_BT: Any, mask_BT: Any
) -> str:
    """Check that the shortest text of a batch has the same vectors when read alone."""
    row = int(mask_BT.sum(1).argmin())
    mask_T = mask_BT[row]
    alone = read_layers(loaded, ids_BT[row, mask_T][None], np.ones((1, mask_T.sum()), bool))
    tokens_T = torch.as_tensor(mask_T, device=layers[0].device)
    pairs = zip(layers, alone, strict=True)
    distance = max(relative_distance(x[row][tokens_T], y[0]) for x, y in pairs)
    if not distance <= CLOSE[loaded.attributes["computed_in"]]:
        raise UserError(
            f"padding changes the vectors by a share of {distance:.2g}; pass a model that takes an "
            "attention_mask, another side of padding, or no padding"
        )
    return f"a text alone gives the same vectors to {distance:.0e}"


def measure_vectors(
    tokens: Tokens,
    picks: dict[str, np.ndarray],
    rows_M: np.ndarray,
    vectors: dict[str, np.ndarray],
    measure: MeasureConfig,
) -> xr.Dataset:
    """Measure the sets of positions, and each pool as another set, into one table."""
    options = {"families": measure.families, "nulls": measure.nulls, "folds": measure.folds}
    options |= {"num_chunks": measure.batches, "seed": measure.seed}
    tables = {}
    for name, row_M in picks.items():
        tables[name] = arrays.measure(
            vectors[TOKENS][:, np.searchsorted(rows_M, row_M)],
            clusters=tokens.text_N[row_M],
            token_positions=tokens.position_N[row_M],
            **options,
        )
    for pool in (name for name in vectors if name != TOKENS):
        x_NUD = vectors[pool][:, : measure.points * measure.batches]
        tables[pool] = arrays.measure(x_NUD, **options)
    table = xr.concat(
        tables.values(),
        xr.Variable("positions", [*tables]),
        data_vars="all",
        join="exact",
        combine_attrs="override",
    )
    points = ", ".join(f"{name} {table.attrs['points']}" for name, table in tables.items())
    return table.assign_attrs(points_of=points)
