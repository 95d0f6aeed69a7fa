"""Bits per character on fixed windows of the validation split and over the whole test split."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from data.corpus import Corpus
from training import objective
from training.config import RunConfig
from workdir.errors import UserError
from workdir.progress import bar

MASK_SEED = 0  # the masks of an evaluation are the same for every run


@dataclass(frozen=True, slots=True)
class Score:
    loss: float  # nats per predicted character
    bits_per_character: float
    characters: int  # predicted


class Windows(NamedTuple):
    """M windows of context + 1 characters."""

    starts_M: np.ndarray  # where each begins in its split
    fresh_M: np.ndarray  # how many predictions count, at the end of each: the others an earlier window has counted


def valid_windows(config: RunConfig, characters: int) -> Windows:
    """`evaluate.windows` windows at even distances over the split; fewer where they would coincide."""
    last = characters - config.model.context - 1
    starts_M = np.linspace(0, last, min(config.evaluate.windows, last + 1)).astype(np.int64)
    return Windows(starts_M, np.full_like(starts_M, config.model.context))


def test_windows(config: RunConfig, characters: int) -> tuple[Windows, str]:
    """Windows that score every character of the split once (but the first or the last), and the protocol in words.

    They advance as the objective says. The last one is moved back to end with the split and counts what is left.
    """
    context = config.model.context
    stride, protocol = objective.OBJECTIVES[config.objective].test_stride(config.model, config.evaluate.stride)
    last = characters - context - 1
    starts_M = np.append(np.arange(0, last, stride), last)
    return Windows(starts_M, np.diff(starts_M, prepend=starts_M[0] - context)), protocol


def batches(
    config: RunConfig, tokens_N: np.ndarray, windows: Windows, mask_token: int, rows: int
) -> Iterator[objective.Batch]:
    """The windows in batches of `rows`; the last one is filled up with rows that weigh nothing."""
    context, count = config.model.context, len(windows.starts_M)
    key = jax.random.key(MASK_SEED)
    for first in range(0, count, rows):
        index_B = np.arange(first, first + rows)
        real_B = index_B < count
        row_B = np.minimum(index_B, count - 1)
        windows_BL = tokens_N[windows.starts_M[row_B, None] + np.arange(context + 1)].astype(np.int32)
        batch = objective.make_batch(config, jnp.asarray(windows_BL), key, jnp.asarray(index_B), mask_token)
        counts_BT = (np.arange(context) >= context - windows.fresh_M[row_B, None]) & real_B[:, None]
        yield batch._replace(weights_BT=batch.weights_BT * counts_BT)


def check(config: RunConfig, corpus: Corpus, rows: int) -> None:
    """Raise UserError where a split has no character to score: in a few short windows none may be masked."""
    count = config.evaluate.windows
    for split_N, windows, where, advice in (
        (corpus.valid, valid_windows(config, corpus.valid.size), f"evaluate.windows={count}", "raise it or "),
        (corpus.test, test_windows(config, corpus.test.size)[0], "the test split", ""),
    ):
        parts = batches(config, split_N, windows, corpus.mask_token, rows)
        if not any(part.weights_BT.any() for part in parts):
            raise UserError(
                f"no scored character in {where}: none of {len(windows.starts_M) * config.model.context} is masked; "
                f"{advice}take a longer text"
            )


def make_scorer(
    apply: Callable, config: RunConfig, mask_token: int, place: Callable, rows: int, together: Callable
) -> Callable:
    """score(params, tokens_N, windows, label='', check=…) -> [Score of each member whose parameters are stacked].

    `rows` windows go at a time, `place` puts them on the devices, and `together` makes a function of one member's
    parameters one of all members'. A label shows a progress bar; `check` is called between two batches and may raise.
    """

    @jax.jit
    def nats(params: Any, batch: objective.Batch) -> tuple[jax.Array, jax.Array]:
        each = together(lambda one: objective.nats(apply(one, batch.tokens_BT)[0], batch))
        return each(params), batch.weights_BT.sum()

    def score(
        params: Any,
        tokens_N: np.ndarray,
        windows: Windows,
        label: str = "",
        check: Callable[[], None] = lambda: None,
    ) -> list[Score]:
        totals_R, characters = np.zeros(()), 0
        parts = batches(config, tokens_N, windows, mask_token, rows)
        count = -(-len(windows.starts_M) // rows)
        for batch in bar(parts, label, "batch", total=count, leave=False):
            check()
            losses_R, predicted = nats(params, place(batch))
            totals_R, characters = totals_R + np.asarray(losses_R, np.float64), characters + int(predicted)
        losses = [float(total) / characters for total in totals_R]
        return [Score(loss, loss / math.log(2), characters) for loss in losses]

    return score
