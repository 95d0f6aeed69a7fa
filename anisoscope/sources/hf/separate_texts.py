"""Separate texts, read in padded batches: vectors of their tokens, and pooled ones of whole texts
beside them.

Padding never enters a cloud: a mask hides it from the model, and only places that hold a token are
kept. Letters: S sets of positions, M points of a set, U texts.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.sources import arrays
from anisoscope.sources.evaluation_windows import POSITION_SETS
from anisoscope.sources.hf.reading.guards import CLOSE
from anisoscope.sources.hf.reading.token_windows import SPECIAL, unknown_token
from anisoscope.utils.errors import UserError
from anisoscope.utils.progress import bar

SIDES = ("left", "right")
# over all tokens of a text; its last token; its first, which begins every text
POOLS = ("mean", "last", "cls")
OFFERED = 2  # tokens to draw from, for each that is measured
# (ids_BT, mask_BT) -> of each layer (B, T, D) or (B, D)
Reader = Callable[[np.ndarray, np.ndarray], list[torch.Tensor]]


class Tokens(NamedTuple):
    """Of the texts that are read, one text after another."""

    ids: list[np.ndarray]
    special_N: np.ndarray  # of all tokens: whether it is a special one
    empty: int  # texts that have no token

    @property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """The text of each token, and its place there."""
        sizes = [len(one) for one in self.ids]
        return np.repeat(np.arange(len(sizes)), sizes), np.concatenate(
            [np.arange(size) for size in sizes]
        )


def draw_texts(
    parts: list[str],
    tokenizer: Any,
    window: int,
    special: bool,
    pooled: bool,
    measure: MeasureConfig,
) -> Tokens:
    """Texts in random order, cut to the window, until there are enough tokens, or texts where these
    are pooled.
    """
    wanted, ids, empty, held = measure.points * measure.batches, [], 0, 0
    for number in np.random.default_rng(measure.seed).permutation(len(parts)):
        tokens = tokenizer(parts[number], add_special_tokens=special, verbose=False)["input_ids"][
            :window
        ]
        empty += not tokens
        if tokens:
            ids.append(np.asarray(tokens, np.int32))
            held += len(tokens)
        if held >= OFFERED * wanted and not (pooled and len(ids) < wanted):
            break
    if not ids:
        raise UserError(f"none of {len(parts)} texts has a token")
    known = sorted(set(tokenizer.all_special_ids) - {unknown_token(tokenizer)})
    return Tokens(ids, np.isin(np.concatenate(ids), known), empty)


def pick_tokens(tokens: Tokens, measure: MeasureConfig) -> dict[str, np.ndarray]:
    """{set of positions: places in all tokens}, as many of each; UserError where there are too
    few.
    """
    _, place_N = tokens.places
    allowed = dict(zip(POSITION_SETS, (np.ones(len(place_N), bool), place_N > 0), strict=True))
    if tokens.special_N.any():
        allowed[SPECIAL] = ~tokens.special_N
    order_N = np.random.default_rng(measure.seed).permutation(len(place_N))
    count = min(measure.points * measure.batches, *(int(one_N.sum()) for one_N in allowed.values()))
    return {name: np.sort(order_N[one_N[order_N]][:count]) for name, one_N in allowed.items()}


def padded_batches(
    tokens: Tokens, side: str, pad: int, size: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(which texts, ids_BT, mask_BT): texts of about one length together."""
    order_U = np.argsort([-len(one) for one in tokens.ids], kind="stable")
    for start in range(0, len(order_U), size):
        text_B = order_U[start : start + size]
        length = max(len(tokens.ids[u]) for u in text_B)
        ids_BT, mask_BT = (
            np.full((len(text_B), length), pad, np.int32),
            np.zeros((len(text_B), length), bool),
        )
        for row, u in enumerate(text_B):
            there = (
                slice(length - len(tokens.ids[u]), None)
                if side == "left"
                else slice(len(tokens.ids[u]))
            )
            ids_BT[row, there], mask_BT[row, there] = tokens.ids[u], True
        yield text_B, ids_BT, mask_BT


class KeptVectors:
    """Rows of vectors (layer, …, D) in float32, filled batch by batch."""

    def __init__(self, tokens: Tokens, picks: dict[str, np.ndarray], pools: tuple[str, ...]):
        self.starts_U = np.cumsum([0, *(len(one) for one in tokens.ids)])
        self.rows_M = np.unique(np.concatenate([*picks.values()]))
        self.pools, self.texts, self.made = pools, len(tokens.ids), {}

    def add(self, text_B: np.ndarray, mask_BT: np.ndarray, layers: list[torch.Tensor]) -> None:
        for n, x in enumerate(layers):
            x = x.detach().to("cpu", torch.float32).numpy()
            if x.ndim == 2:
                self._put("all", n, len(layers), self.texts, text_B, x)
                continue
            for u, x_TD, mask_T in zip(text_B, x, mask_BT, strict=True):
                own_TD = x_TD[mask_T]
                first, last = np.searchsorted(self.rows_M, self.starts_U[u : u + 2])
                self._put("tokens", n, len(layers), len(self.rows_M), slice(first, last),
                          own_TD[self.rows_M[first:last] - self.starts_U[u]])  # fmt: skip
                for pool in self.pools:
                    one_D = (
                        own_TD.mean(0) if pool == "mean" else own_TD[-1 if pool == "last" else 0]
                    )
                    self._put(pool, n, len(layers), self.texts, u, one_D)

    def _put(
        self, name: str, n: int, layers: int, rows: int, place: Any, values: np.ndarray
    ) -> None:
        if not np.isfinite(values).all():
            raise UserError(f"vectors of layer {n} hold numbers that are not finite")
        made = self.made.setdefault(name, np.empty((layers, rows, values.shape[-1]), np.float32))
        if values.shape[-1] != made.shape[-1]:
            raise UserError(
                f"layer {n} has width {values.shape[-1]}, others {made.shape[-1]}; measure those of one width together"
            )
        made[n, place] = values

    def clouds(
        self, picks: dict[str, np.ndarray], count: int
    ) -> dict[str, tuple[np.ndarray, np.ndarray | None]]:
        """{set of positions: its vectors (layer, point, D), and their places among all tokens, None
        of whole texts}.
        """
        if "tokens" in self.made and "all" in self.made:
            raise UserError(
                "some hook points give a vector for a token, some for a text; measure these apart"
            )
        clouds = {name: (x[:, :count], None) for name, x in self.made.items() if name != "tokens"}
        if "tokens" in self.made:
            of_tokens = self.made["tokens"]
            places = {name: np.searchsorted(self.rows_M, row_M) for name, row_M in picks.items()}
            clouds = {
                name: (of_tokens[:, places[name]], row_M) for name, row_M in picks.items()
            } | clouds
        return clouds


def read_batches(
    tokens: Tokens,
    kept: KeptVectors,
    reader: Reader,
    batch_size: int,
    side: str,
    pad: int,
    dtype: str,
) -> str:
    """All batches into `kept`; what was checked of padding, in words. UserError where it changes
    vectors.
    """
    said = "all texts of a batch have one length: there was no padding"
    total = math.ceil(len(tokens.ids) / batch_size)
    for text_B, ids_BT, mask_BT in bar(
        padded_batches(tokens, side, pad, batch_size), "measure_model: read", "batch", total=total
    ):
        layers = reader(ids_BT, mask_BT)
        if said.startswith("all") and not mask_BT.all():
            said = _check(reader, layers, ids_BT, mask_BT, side, dtype)
        kept.add(text_B, mask_BT, layers)
    return said


def _check(
    reader: Reader, layers: list[torch.Tensor], ids_BT: Any, mask_BT: Any, side: str, dtype: str
) -> str:
    """The shortest text of a batch must give the same vectors when it is read alone."""
    row, furthest = int(mask_BT.sum(1).argmin()), 0.0
    there_T = mask_BT[row]
    for x, alone in zip(
        layers, reader(ids_BT[row, there_T][None], np.ones((1, there_T.sum()), bool)), strict=True
    ):
        own = x[row][torch.as_tensor(there_T, device=x.device)] if x.ndim == 3 else x[row]
        far = float((own.float() - alone[0].float()).abs().max() / alone.abs().max().float())
        furthest = max(furthest, far)
    if not furthest <= CLOSE[dtype]:
        other = SIDES[side == "left"]
        raise UserError(
            f"padding changes what the model computes: a text alone differs by a share of {furthest:.2g}; the model "
            f"must take an attention_mask, and positions; try padding={other}, or leave it out for windows"
        )
    return f"a text alone gives the same vectors to {furthest:.0e}"


def measure_kept(
    tokens: Tokens,
    kept: KeptVectors,
    picks: dict[str, np.ndarray],
    names: Any,
    measure: MeasureConfig,
) -> xr.Dataset:
    """A table with the sets of positions side by side; pooled vectors are sets of their own."""
    text_N, place_N = tokens.places
    tables = {}
    for name, (clouds, row_M) in kept.clouds(picks, measure.points * measure.batches).items():
        clusters, positions = (None, None) if row_M is None else (text_N[row_M], place_N[row_M])
        tables[name] = arrays.measure_vectors(
            clouds,
            measure.families,
            measure.nulls,
            clusters=clusters,
            positions=positions,
            names=names,
            folds=measure.folds,
            pieces=measure.batches,
            seed=measure.seed,
        )
    whole = xr.concat(
        tables.values(),
        xr.Variable("positions", [*tables]),
        data_vars="all",
        join="exact",
        combine_attrs="override",
    )
    return whole.assign_attrs(
        points_of=", ".join(f"{name} {table.attrs['points']}" for name, table in tables.items())
    )
