"""Bits per character on fixed windows of the validation split and over the whole test split."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

import processes
from experiments.base import Config
from training import objective

MASK_SEED = 0  # the masks of an evaluation are the same for every run


@dataclass(frozen=True, slots=True)
class Score:
    loss: float  # nats per predicted character
    bits_per_character: float
    characters: int  # predicted


def valid_batch(config: Config, tokens_N: np.ndarray, mask_token: int) -> objective.Batch:
    """`evaluate.windows` windows at even distances over the split."""
    length = config.model.context + 1
    count = min(config.evaluate.windows, tokens_N.size - length + 1)
    starts_M = np.linspace(0, tokens_N.size - length, count).astype(np.int64)
    return _batch(config, tokens_N, starts_M, mask_token)


def test_batch(config: Config, tokens_N: np.ndarray, mask_token: int) -> tuple[objective.Batch, str]:
    """Windows that score every character of the split once, and the protocol in words.

    Next character: windows advance by `evaluate.stride`; of all but the first only the last `stride` characters
    count, so that each is predicted from at least context - stride characters. Masked character: windows side by
    side, masks drawn once. The last window is moved back to end with the split and counts what is left.
    """
    context = config.model.context
    stride = context
    if config.objective == "next":
        stride = config.evaluate.stride or max(context // 2, 1)
    last = tokens_N.size - context - 1
    starts_M = np.append(np.arange(0, last, stride), last)
    batch = _batch(config, tokens_N, starts_M, mask_token)
    fresh_M = np.diff(starts_M, prepend=starts_M[0] - context)  # characters that no earlier window counted
    counted_MT = np.arange(context) >= context - fresh_M[:, None]
    batch = batch._replace(weights_BT=batch.weights_BT * counted_MT)
    if config.objective == "next":
        return batch, f"whole test split, context {context}, stride {stride}"
    return batch, f"15 % masked characters of the whole test split, context {context}, windows side by side"


def _batch(config: Config, tokens_N: np.ndarray, starts_M: np.ndarray, mask_token: int) -> objective.Batch:
    windows_ML = tokens_N[starts_M[:, None] + np.arange(config.model.context + 1)].astype(np.int32)
    examples_M = jnp.arange(len(starts_M))
    batch = objective.make_batch(config.objective, windows_ML, jax.random.key(MASK_SEED), examples_M, mask_token)
    return jax.tree.map(np.asarray, batch)


def make_scorer(apply: Callable, place: Callable, rows: int) -> Callable:
    """score(params, batch, label='') -> Score. Feeds `rows` windows at a time; `place` puts them on the devices."""

    @jax.jit
    def nats(params: Any, batch: objective.Batch) -> jax.Array:
        return objective.nats(apply(params, batch.tokens_BT)[0], batch)

    def score(params: Any, batch: objective.Batch, label: str = "") -> Score:
        padding = -len(batch.tokens_BT) % rows  # padded rows weigh nothing
        padded = jax.tree.map(lambda x: np.pad(x, ((0, padding), (0, 0))), batch)
        total = 0.0
        for i in tqdm(
            range(0, len(padded.tokens_BT), rows),
            desc=label,
            disable=not label or not processes.is_first(),
            leave=False,
        ):
            total += float(nats(params, place(jax.tree.map(lambda x, i=i: x[i : i + rows], padded))))
        characters = int(batch.weights_BT.sum())
        loss = total / characters if characters else math.nan
        return Score(loss, loss / math.log(2), characters)

    return score
