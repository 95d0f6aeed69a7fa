"""Read separate texts in padded batches: token vectors, and pooled vectors of whole texts.

Padding never enters a cloud: a mask hides it from the model, and only places that hold a token are
kept. Letters: S sets of positions, M points of a set, U texts.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr

from anisoscope import __version__
from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.pretrained_config import PretrainedConfig
from anisoscope.sources import arrays
from anisoscope.sources.evaluation_windows import POSITION_SETS
from anisoscope.sources.hf.load_model import PretrainedModel
from anisoscope.sources.hf.reading.extract import residual_stream
from anisoscope.sources.hf.reading.guards import CLOSE
from anisoscope.sources.hf.reading.named_modules import Modules, padding_arguments, read_modules
from anisoscope.sources.hf.reading.token_windows import SPECIAL, special_frame, unknown_token
from anisoscope.sources.hf.revision import as_attributes
from anisoscope.sources.hf.texts import Text
from anisoscope.utils.errors import UserError
from anisoscope.utils.progress import bar

SIDES = ("left", "right")
# mean over the tokens of a text; its last token; its first token, a special one
POOLS = ("mean", "last", "cls")
OFFERED = 2  # tokens drawn per token measured
# (ids_BT, mask_BT) -> (B, T, D) or (B, D) of each layer
Reader = Callable[[np.ndarray, np.ndarray], list[torch.Tensor]]
Picks = dict[str, np.ndarray]  # set of positions -> places among all tokens


class Tokens(NamedTuple):
    """Tokens of the drawn texts, one text after another."""

    ids: list[np.ndarray]
    special_N: np.ndarray  # True at special tokens
    empty: int  # number of texts without a token

    @property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """The text of each token, and its position in the text."""
        sizes = [len(ids_T) for ids_T in self.ids]
        text_N = np.repeat(np.arange(len(sizes)), sizes)
        return text_N, np.concatenate([np.arange(size) for size in sizes])


def measure_texts(
    loaded: PretrainedModel,
    tokenizer: Any,
    text: Text,
    parts: list[str],
    modules: Modules | None,
    config: PretrainedConfig,
    options: Any,
) -> xr.Dataset:
    """Measure separate texts, at modules or in the residual stream."""
    measure, side, pools = config.measure, options.padding or "right", options.pools
    if "cls" in pools and not special_frame(tokenizer)[0]:
        raise UserError(
            "pool=cls: this tokenizer puts no special token before a text; name another pool"
        )
    source = parts, tokenizer, config.window, config.special_tokens
    tokens = draw_texts(*source, bool(pools), measure)
    if modules is not None:
        first = read_modules(loaded, modules, tokens.ids[0][None])
        if any(x.ndim == 2 for x in first):  # one vector per text: more texts are needed
            tokens = draw_texts(*source, True, measure)

    def read(ids_BT: np.ndarray, mask_BT: np.ndarray) -> list[torch.Tensor]:
        if modules is not None:
            return read_modules(loaded, modules, ids_BT, mask_BT)
        return residual_stream(loaded, ids_BT, **padding_arguments(loaded, mask_BT))[0]

    picks = pick_tokens(tokens, measure)
    kept = KeptVectors(tokens, picks, pools)
    pads = (tokenizer.pad_token_id, tokenizer.eos_token_id, 0)
    pad = next(token for token in pads if token is not None)
    padding = read_batches(
        tokens, kept, read, options.batch_size, side, pad, loaded.about["computed_in"]
    )
    table = measure_kept(tokens, kept, picks, modules and [*modules], measure)
    about = as_attributes(loaded.about) | {
        "corpus": text.name,
        "corpus_sha256": text.sha256,
        "texts": f"{len(tokens.ids)} of {len(parts)} texts, each cut to {config.window} tokens, "
        f"padded on the {side}",
        "texts_without_tokens": tokens.empty,
        "padding": padding,
        "window": config.window,
        "anisoscope": __version__,
    }
    return table.assign_attrs(about | ({"hook_points": ", ".join(modules)} if modules else {}))


def draw_texts(
    parts: list[str],
    tokenizer: Any,
    window: int,
    special: bool,
    pooled: bool,
    measure: MeasureConfig,
) -> Tokens:
    """Draw texts in random order, cut to the window, until there are enough tokens.

    Where texts are `pooled`, there must be enough texts too.
    """
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


def pick_tokens(tokens: Tokens, measure: MeasureConfig) -> Picks:
    """Pick equally many tokens for every set of positions."""
    _, place_N = tokens.places
    allowed = dict(zip(POSITION_SETS, (np.ones(len(place_N), bool), place_N > 0), strict=True))
    if tokens.special_N.any():
        allowed[SPECIAL] = ~tokens.special_N
    order_N = np.random.default_rng(measure.seed).permutation(len(place_N))
    count = min(measure.points * measure.batches, *(int(x_N.sum()) for x_N in allowed.values()))
    return {name: np.sort(order_N[x_N[order_N]][:count]) for name, x_N in allowed.items()}


def padded_batches(
    tokens: Tokens, side: str, pad: int, size: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield (indices of texts, ids_BT, mask_BT), with texts of similar length together."""
    order_U = np.argsort([-len(ids_T) for ids_T in tokens.ids], kind="stable")
    for start in range(0, len(order_U), size):
        text_B = order_U[start : start + size]
        length = max(len(tokens.ids[u]) for u in text_B)
        ids_BT = np.full((len(text_B), length), pad, np.int32)
        mask_BT = np.zeros(ids_BT.shape, bool)
        for row, u in enumerate(text_B):
            own = len(tokens.ids[u])
            part = slice(length - own, None) if side == "left" else slice(own)
            ids_BT[row, part], mask_BT[row, part] = tokens.ids[u], True
        yield text_B, ids_BT, mask_BT


class KeptVectors:
    """Vectors (layer, …, D) in float32 of picked tokens, pools and whole texts."""

    def __init__(self, tokens: Tokens, picks: Picks, pools: tuple[str, ...]):
        self.starts_U = np.cumsum([0, *(len(ids_T) for ids_T in tokens.ids)])
        self.rows_M = np.unique(np.concatenate([*picks.values()]))
        self.pools, self.texts = pools, len(tokens.ids)
        self.arrays: dict[str, np.ndarray] = {}

    def add(self, text_B: np.ndarray, mask_BT: np.ndarray, layers: list[torch.Tensor]) -> None:
        """Keep the picked vectors of a padded batch."""
        for n, x in enumerate(layers):
            x, layer = x.detach().to("cpu", torch.float32).numpy(), (n, len(layers))
            if x.ndim == 2:
                self._put("all", layer, self.texts, text_B, x)
                continue
            for u, x_TD, mask_T in zip(text_B, x, mask_BT, strict=True):
                own_TD = x_TD[mask_T]
                first, last = np.searchsorted(self.rows_M, self.starts_U[u : u + 2])
                picked = own_TD[self.rows_M[first:last] - self.starts_U[u]]
                self._put("tokens", layer, len(self.rows_M), slice(first, last), picked)
                for pool in self.pools:
                    place = -1 if pool == "last" else 0
                    pooled_D = own_TD.mean(0) if pool == "mean" else own_TD[place]
                    self._put(pool, layer, self.texts, u, pooled_D)

    def _put(self, name: str, layer: tuple[int, int], rows: int, place: Any, x: np.ndarray) -> None:
        n, layers = layer
        if not np.isfinite(x).all():
            raise UserError(
                f"vectors of layer {n} hold numbers that are not finite; try dtype=float32"
            )
        if name not in self.arrays:
            self.arrays[name] = np.empty((layers, rows, x.shape[-1]), np.float32)
        if x.shape[-1] != (width := self.arrays[name].shape[-1]):
            raise UserError(
                f"layer {n} has width {x.shape[-1]}, other layers {width}; measure widths separately"
            )
        self.arrays[name][n, place] = x

    def clouds(self, picks: Picks, count: int) -> dict[str, tuple[np.ndarray, np.ndarray | None]]:
        """Return vectors (layer, point, D) by set of positions, and their places among all tokens.

        The places are None for whole texts.
        """
        whole = {name: (x[:, :count], None) for name, x in self.arrays.items() if name != "tokens"}
        if "tokens" not in self.arrays:
            return whole
        if "all" in self.arrays:
            raise UserError(
                "hook_points: some return a vector per token, some per text; measure each kind "
                "separately"
            )
        x, places = self.arrays["tokens"], self.rows_M
        return {
            name: (x[:, np.searchsorted(places, row_M)], row_M) for name, row_M in picks.items()
        } | whole


def read_batches(
    tokens: Tokens,
    kept: KeptVectors,
    reader: Reader,
    batch_size: int,
    side: str,
    pad: int,
    dtype: str,
) -> str:
    """Read all batches into `kept`, and return how padding was checked, in words.

    Raises:
        UserError: padding changes vectors.
    """
    words = ""
    batches = padded_batches(tokens, side, pad, batch_size)
    total = math.ceil(len(tokens.ids) / batch_size)
    for text_B, ids_BT, mask_BT in bar(batches, "measure_model: read", "batch", total=total):
        layers = reader(ids_BT, mask_BT)
        if not words and not mask_BT.all():
            words = _check_padding(reader, layers, ids_BT, mask_BT, side, dtype)
        kept.add(text_B, mask_BT, layers)
    return words or "all texts of a batch have one length: there was no padding"


def _check_padding(
    reader: Reader, layers: list[torch.Tensor], ids_BT: Any, mask_BT: Any, side: str, dtype: str
) -> str:
    """Check that the shortest text of a batch has the same vectors when read alone."""
    row, furthest = int(mask_BT.sum(1).argmin()), 0.0
    mask_T = mask_BT[row]
    alone = reader(ids_BT[row, mask_T][None], np.ones((1, mask_T.sum()), bool))
    for x, y in zip(layers, alone, strict=True):
        own = x[row][torch.as_tensor(mask_T, device=x.device)] if x.ndim == 3 else x[row]
        far = float((own.float() - y[0].float()).abs().max() / y.abs().max().float())
        furthest = max(furthest, far)
    if not furthest <= CLOSE[dtype]:
        other = SIDES[side == "left"]
        raise UserError(
            f"padding changes the vectors by a share of {furthest:.2g}; pass a model that takes an "
            f"attention_mask, padding={other}, or no padding"
        )
    return f"a text alone gives the same vectors to {furthest:.0e}"


def measure_kept(
    tokens: Tokens, kept: KeptVectors, picks: Picks, names: list[str] | None, measure: MeasureConfig
) -> xr.Dataset:
    """Measure the sets of positions, and each pool as another set, into one table."""
    text_N, place_N = tokens.places
    tables = {}
    for name, (x, row_M) in kept.clouds(picks, measure.points * measure.batches).items():
        tables[name] = arrays.measure_vectors(
            x,
            measure.families,
            measure.nulls,
            clusters=None if row_M is None else text_N[row_M],
            token_positions=None if row_M is None else place_N[row_M],
            names=names,
            folds=measure.folds,
            num_chunks=measure.batches,
            seed=measure.seed,
        )
    table = xr.concat(
        tables.values(),
        xr.Variable("positions", [*tables]),
        data_vars="all",
        join="exact",
        combine_attrs="override",
    )
    points = ", ".join(f"{name} {table.attrs['points']}" for name, table in tables.items())
    return table.assign_attrs(points_of=points)
