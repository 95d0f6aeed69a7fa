"""Windows of a text with what a model has to say of them, for gradients: as
subspaces/scored_windows.py has them of ours.
"""

import numpy as np

from anisoscope.config.tangents_config import TangentsConfig
from anisoscope.data import unigrams
from anisoscope.sources.hf.reading import guards
from anisoscope.sources.hf.reading.token_windows import Windows
from anisoscope.subspaces import gradient_inputs
from anisoscope.training.objective import KEPT, MASKED_SHARE, REPLACED
from anisoscope.utils.errors import UserError

NO_BIN = -1
IN_WORDS = {
    guards.NEXT_TOKEN: "validation windows (predicts the next token); the last position of each window is not scored",
    guards.MASKED_TOKEN: f"validation windows (predicts masked tokens, {MASKED_SHARE:.0%}: {1 - KEPT - REPLACED:.0%} "
    f"the mask token, {REPLACED:.0%} a random token that the text has, {KEPT:.0%} as they are)",
}


def make_windows(
    windows: Windows, tangents: TangentsConfig, task: str
) -> tuple[gradient_inputs.Windows, gradient_inputs.Windows]:
    """To fit and to test, of all windows of the text; UserError where it is too short, or too
    little is scored.

    A token that begins or ends every window is read, and neither asked for nor in a bin of
    frequency.
    """
    rows_NT, count = windows.rows_NT, tangents.windows
    if len(rows_NT) < 2 * count:
        most = len(rows_NT) // 2 // tangents.folds * tangents.folds
        raise UserError(
            f"the validation split has {len(rows_NT)} windows of {rows_NT.shape[1]} tokens; tangents.windows={count} "
            f"needs twice as many: lower it to {most}"
        )
    rng = np.random.default_rng(tangents.seed)
    text_WT = rows_NT[rng.permutation(len(rows_NT))[: 2 * count]]
    batch = _next(text_WT, windows) if task == guards.NEXT_TOKEN else _masked(text_WT, windows, rng)
    with np.errstate(divide="ignore"):  # tokens that the text lacks
        bins_V = unigrams.bins(np.log(windows.counts_V / windows.counts_V.sum()).astype(np.float32))
    bins_WT = np.where(
        windows.fixed_T, NO_BIN, bins_V[np.minimum(text_WT, len(bins_V) - 1)]
    ).astype(np.int32)
    halves = [part.reshape(2, tangents.folds, -1, text_WT.shape[1]) for part in (*batch, bins_WT)]
    return tuple(
        gradient_inputs.picked(*(part[half] for part in halves), tangents, rng) for half in range(2)
    )


def _next(text_WT: np.ndarray, windows: Windows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What is read, what is asked for, and where."""
    scored_T = np.append(~windows.fixed_T[1:], False).astype(np.float32)
    return text_WT, np.roll(text_WT, -1, axis=1), np.broadcast_to(scored_T, text_WT.shape)


def _masked(
    text_WT: np.ndarray, windows: Windows, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """BERT's rule: of what is asked for some is masked, some another token, and some as it is."""
    chosen_WT = (rng.random(text_WT.shape) < MASKED_SHARE) & ~windows.fixed_T
    other_WT = rng.choice(np.flatnonzero(windows.counts_V), text_WT.shape).astype(text_WT.dtype)
    how_WT = rng.random(text_WT.shape)
    input_WT = np.where(how_WT < 1 - KEPT, other_WT, text_WT)
    input_WT = np.where(how_WT < 1 - KEPT - REPLACED, windows.mask_token, input_WT)
    return (
        np.where(chosen_WT, input_WT, text_WT).astype(np.int32),
        text_WT,
        chosen_WT.astype(np.float32),
    )
