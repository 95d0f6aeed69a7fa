"""Which scored positions of which validation windows are read: input as in training, windows apart for fit and test.

J groups of W windows, in each of which Q positions that the loss counts are picked.
"""

from typing import NamedTuple

import jax
import numpy as np

from data import frequency
from data.corpus import Corpus
from tangents.config import TangentsConfig
from training import objective
from training.config import RunConfig
from workdir.errors import UserError


class Windows(NamedTuple):
    """Arrays over J groups; the points that are read of them are group-major."""

    tokens_JWT: np.ndarray  # what the model reads: masked where it is trained so
    targets_JWT: np.ndarray
    weights_JWT: np.ndarray  # where the loss counts
    picks_JQ: np.ndarray  # int32, indices into the W*T positions of a group, of scored ones
    bins_P: np.ndarray  # int32, of log frequency of the character that stands there in the text
    time_P: np.ndarray  # the place in its window


def make_windows(config: RunConfig, tangents: TangentsConfig, corpus: Corpus) -> tuple[Windows, Windows]:
    """To fit and to test; UserError where the validation split is too short, or too little of it is scored."""
    context, count = config.model.context, tangents.windows
    available = (len(corpus.valid) - 1) // context  # an encoder's window has a character more, too
    most = available // 2 // tangents.groups * tangents.groups
    if available < 2 * count:
        raise UserError(
            f"the validation split has {len(corpus.valid)} characters, {available} windows of {context}; "
            f"tangents.windows={count} needs twice as many: lower it to {most}"
        )
    rng = np.random.default_rng(tangents.seed)
    starts_W = rng.permutation(available)[: 2 * count] * context
    windows_WL = corpus.valid[starts_W[:, None] + np.arange(context + 1)].astype(np.int32)
    key = jax.random.key(tangents.seed)
    batch = objective.make_batch(config, windows_WL, key, np.arange(2 * count), corpus.mask_token)
    log_frequency_C = frequency.log_frequency(corpus.train, 1, corpus.vocab_size)
    bins_WT = frequency.bins(log_frequency_C)[windows_WL[:, :-1]]
    parts = [np.asarray(part_WT).reshape(2, tangents.groups, -1, context) for part_WT in (*batch, bins_WT)]
    return tuple(_picked(*(part[half] for part in parts), tangents, rng) for half in range(2))


def _picked(tokens_JWT, targets_JWT, weights_JWT, bins_JWT, tangents: TangentsConfig, rng) -> Windows:
    groups, _, context = tokens_JWT.shape
    share = tangents.points // groups
    scored = [np.flatnonzero(weights_WT.ravel()) for weights_WT in weights_JWT]
    fewest = min(map(len, scored))
    if fewest < share:
        raise UserError(
            f"a group of {tokens_JWT.shape[1]} windows has {fewest} scored positions; tangents.points="
            f"{tangents.points} needs {share}: lower it to {fewest * groups}, or raise tangents.windows"
        )
    picks_JQ = np.stack([rng.permutation(one)[:share] for one in scored]).astype(np.int32)
    bins_P = np.take_along_axis(bins_JWT.reshape(groups, -1), picks_JQ, axis=1).ravel()
    return Windows(tokens_JWT, targets_JWT, weights_JWT, picks_JQ, bins_P, picks_JQ.ravel() % context)
