"""Which scored positions of which validation windows are read: input as in training, windows apart
for fit and test.
"""

import jax
import numpy as np

from anisoscope.config.run_config import RunConfig
from anisoscope.config.tangents_config import TangentsConfig
from anisoscope.data import unigrams
from anisoscope.data.corpus import Corpus
from anisoscope.subspaces.gradient_inputs import Windows, picked
from anisoscope.training import objective
from anisoscope.utils.errors import UserError


def make_windows(
    config: RunConfig, tangents: TangentsConfig, corpus: Corpus
) -> tuple[Windows, Windows]:
    """To fit and to test; UserError where the validation split is too short, or too little of it is
    scored.
    """
    context, count = config.model.context, tangents.windows
    available = (len(corpus.valid) - 1) // context  # an encoder's window has a character more, too
    most = available // 2 // tangents.folds * tangents.folds
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
    log_frequency_V = unigrams.log_frequency(corpus.train, 1, corpus.vocab_size)
    bins_WT = unigrams.bins(log_frequency_V)[windows_WL[:, :-1]]
    parts = [
        np.asarray(part_WT).reshape(2, tangents.folds, -1, context) for part_WT in (*batch, bins_WT)
    ]
    return tuple(picked(*(part[half] for part in parts), tangents, rng) for half in range(2))
