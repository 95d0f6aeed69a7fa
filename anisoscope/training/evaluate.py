"""Score models in bits per character: fixed validation windows, and the whole test split.

Each score includes the cost of the best prediction without context on the same characters. That
prediction knows the frequencies of the scored split, so a gain over unigram cannot come from
frequencies.

Letters: M windows that are scored.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from anisoscope.config.run_config import RunConfig
from anisoscope.data.corpus import Corpus
from anisoscope.training import objective
from anisoscope.utils.errors import UserError
from anisoscope.utils.progress import progress_bar

SURE = 10_000  # positions among which some are masked: none is with probability 1e-700
MASK_SEED = 0  # the masks of an evaluation are the same for every run


@dataclass(frozen=True, slots=True)
class Score:
    """Bits per predicted character of a model on a split; None where a value does not apply."""

    characters: int  # number of predicted characters
    loss: float  # nats
    bits_per_character: float
    # bits of the objective's best prediction without context, on the same characters
    context_free_bits: float
    gain_over_unigram: float  # context_free_bits - bits_per_character
    mask_bits: float | None  # masked objective: of the positions that hold [MASK]
    # standard error of bits_per_character over the choice of windows
    error_windows: float | None
    error_masks: float | None  # the same, over the choice of masked characters in these windows

    def as_record(self) -> dict[str, float]:
        """Collect the values that apply, for the log and test.json."""
        values = dataclasses.asdict(self)
        return {name: value for name, value in values.items() if value is not None}


class ScoredWindows(NamedTuple):
    """M windows of context + 1 characters."""

    starts_M: np.ndarray  # first character of each window in its split
    # number of predictions that count, at the window's end: earlier windows count the others
    fresh_M: np.ndarray
    draws: int = 1  # draws of masked characters; all windows are repeated for each


def valid_windows(config: RunConfig, characters: int) -> ScoredWindows:
    """Place `evaluate.windows` windows at equal distances; fewer where they would overlap."""
    last = characters - config.model.context - 1
    most = last // config.model.context + 1
    starts_M = np.linspace(0, last, min(config.evaluate.windows, most)).astype(np.int64)
    draws = config.evaluate.draws if objective.OBJECTIVES[config.objective].random_targets else 1
    starts_M = np.tile(starts_M, draws)
    return ScoredWindows(starts_M, np.full_like(starts_M, config.model.context), draws)


def test_windows(config: RunConfig, characters: int) -> tuple[ScoredWindows, str]:
    """Place windows that score every character of a split once, and name the protocol."""
    context, last = config.model.context, characters - config.model.context - 1
    test_stride = objective.OBJECTIVES[config.objective].test_stride
    stride, protocol = test_stride(config.model, config.evaluate.stride)
    starts_M = np.append(np.arange(0, last, stride), last)
    return ScoredWindows(starts_M, np.diff(starts_M, prepend=starts_M[0] - context)), protocol


def batches(
    config: RunConfig, tokens_N: np.ndarray, windows: ScoredWindows, mask_token: int, rows: int
) -> Iterator[objective.Batch]:
    """Cut the windows into batches of `rows`, the last batch filled up with weight 0.

    Even and odd draws of masked characters are two halves.
    """
    context, count = config.model.context, len(windows.starts_M)
    distinct = count // windows.draws
    key = jax.random.key(MASK_SEED)
    for first in range(0, count, rows):
        index_B = np.arange(first, first + rows)
        real_B = index_B < count
        row_B = np.minimum(index_B, count - 1)
        places_BL = windows.starts_M[row_B, None] + np.arange(context + 1)
        windows_BL = jnp.asarray(tokens_N[places_BL].astype(np.int32))
        draw_B, window_B = np.divmod(index_B, distinct)
        examples_B = jnp.asarray(window_B + distinct * (draw_B % 2))
        turns_B = jnp.asarray(draw_B // 2)
        batch = objective.make_batch(config, windows_BL, key, examples_B, mask_token, turns_B)
        counts_BT = (np.arange(context) >= context - windows.fresh_M[row_B, None]) & real_B[:, None]
        yield batch._replace(weights_BT=batch.weights_BT * counts_BT)


def check_evaluation(config: RunConfig, corpus: Corpus, rows: int) -> None:
    """Raise UserError where a split has no character to score: few short windows may mask none."""
    if not objective.OBJECTIVES[config.objective].random_targets:
        return
    valid = valid_windows(config, corpus.valid.size), f"evaluate.windows={config.evaluate.windows}"
    test = test_windows(config, corpus.test.size)[0], "the test split"
    for (windows, where), split_N in ((valid, corpus.valid), (test, corpus.test)):
        if len(windows.starts_M) * config.model.context > SURE:
            continue
        parts = batches(config, split_N, windows, corpus.mask_token, rows)
        if not any(part.weights_BT.any() for part in parts):
            count = len(windows.starts_M) * config.model.context
            what = f"no scored character in {where}: none of {count} is masked"
            raise UserError(f"{what}; take more windows or a longer text")


def make_scorer(
    apply: Callable,
    config: RunConfig,
    mask_token: int,
    place: Callable,
    rows: int,
    over_seeds: Callable,
    everywhere: jax.sharding.Sharding | None = None,
) -> Callable:
    """Make score(params, tokens_N, windows, label='', check=…) -> [Score of each seed].

    `place` puts a batch of `rows` windows on the devices; `over_seeds` makes a function of stacked
    parameters from a function of one seed's. A label shows a progress bar; `check` is called
    between two batches and may raise.
    """

    @functools.partial(jax.jit, out_shardings=everywhere)
    def nats(params: Any, batch: objective.Batch) -> jax.Array:
        """Sum the nats of each window of each seed: all predictions, and those under [MASK]."""
        masked_BT = batch.tokens_BT == mask_token

        def sum_windows(params: Any) -> jax.Array:
            nats_BT = objective.weighted_loss(apply(params, batch.tokens_BT)[0], batch)
            return jnp.stack([nats_BT.sum(1), jnp.where(masked_BT, nats_BT, 0.0).sum(1)])

        return over_seeds(sum_windows)(params)

    def score(
        params: Any,
        tokens_N: np.ndarray,
        windows: ScoredWindows,
        label: str = "",
        check: Callable[[], None] = lambda: None,
    ) -> list[Score]:
        frequencies_V = np.bincount(tokens_N, minlength=mask_token) / tokens_N.size
        model_BR2M, counts_B3M = [], []
        parts = batches(config, tokens_N, windows, mask_token, rows)
        count = -(-len(windows.starts_M) // rows)
        for batch in progress_bar(parts, label, "batch", total=count, leave=False):
            check()
            counts_B3M.append(_count(config, frequencies_V, jax.device_get(batch), mask_token))
            model_BR2M.append(np.asarray(nats(params, place(batch)), np.float64))
        model_R2M, counts_3M = (
            np.concatenate(parts, axis=-1)[..., : len(windows.starts_M)]
            for parts in (model_BR2M, counts_B3M)
        )
        return [_score(model_2M, counts_3M, windows.draws) for model_2M in model_R2M]

    return score


def _count(
    config: RunConfig, frequencies_V: np.ndarray, batch: objective.Batch, mask_token: int
) -> np.ndarray:
    """Count predicted characters and those under [MASK], and sum the nats without context."""
    free_BT = objective.OBJECTIVES[config.objective].context_free(frequencies_V, batch, mask_token)
    masked_BT = batch.weights_BT * (batch.tokens_BT == mask_token)
    nats_BT = np.where(batch.weights_BT > 0, free_BT, 0.0) * batch.weights_BT
    return np.stack([batch.weights_BT.sum(1), masked_BT.sum(1), nats_BT.sum(1)])


def _score(model_2M: np.ndarray, counts_3M: np.ndarray, draws: int) -> Score:
    """Score a seed; errors are those of a ratio of sums, over windows or halves of their draws."""
    (nats_M, masked_nats_M), (count_M, masked_M, free_M) = model_2M, counts_3M
    characters, masked = count_M.sum(), masked_M.sum()
    loss = nats_M.sum() / characters
    above_DW = (nats_M - loss * count_M).reshape(draws, -1)
    windows = above_DW.shape[1]

    def error(squares: np.ndarray) -> float:
        return float(np.sqrt(squares) / characters) / math.log(2)

    scatter = np.square(above_DW.sum(0)).sum()
    halves = np.square(above_DW[::2].sum(0) - above_DW[1::2].sum(0)).sum() if draws > 1 else None
    bits, free = loss / math.log(2), free_M.sum() / characters / math.log(2)
    return Score(
        characters=int(characters),
        loss=float(loss),
        bits_per_character=float(bits),
        context_free_bits=float(free),
        gain_over_unigram=float(free - bits),
        mask_bits=float(masked_nats_M.sum() / masked) / math.log(2) if masked else None,
        error_windows=error(scatter * windows / (windows - 1)) if windows > 1 else None,
        error_masks=None if halves is None else error(halves),
    )
