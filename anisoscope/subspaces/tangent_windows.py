"""Choose the windows and positions to which tangents are fitted and on which they are tested.

Arrays carry the letters of `models`; J folds of W windows, Q points of a fold, P = J Q points,
fold-major.
"""

from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.linalg

from anisoscope.config.model_config import ModelConfig
from anisoscope.config.run_config import RunConfig
from anisoscope.config.tangents_config import TangentsConfig, check_settings, early_steps
from anisoscope.data import unigrams
from anisoscope.data.corpus import Corpus
from anisoscope.models.layers import NORMS
from anisoscope.training import objective
from anisoscope.utils.errors import UserError

LEAST_EARLY = 2  # checkpoints needed for early proxies
Array = Any  # NumPy's or JAX's


class Windows(NamedTuple):
    """Windows in folds, with targets, weights and picked positions."""

    tokens_JWT: np.ndarray  # inputs, masked if the model is trained so
    targets_JWT: np.ndarray
    weights_JWT: np.ndarray  # weights of the positions in the loss
    picks_JQ: np.ndarray  # int32, scored positions, as indices into the W*T positions of a fold
    bins_P: np.ndarray  # int32, bin of the token's log frequency in the text; -1: a special token
    time_P: np.ndarray  # position in its window


class Gradients(NamedTuple):
    """States and gradients of all layers, in the dimensions that the network reads."""

    points_NPD: Array
    gradient_NPD: Array  # dLoss/dh of the summed loss of a fold's windows
    loss_P: Array  # nats
    norm_JNT: Array  # mean |g| over windows of a fold at each position, scored or not
    square_JNT: Array  # mean |g|^2
    ones_JN: Array  # scored rows: sum of squared components of g along the vector of ones
    radial_JN: Array  # along the state itself
    total_JN: Array  # sum of |g|^2
    weights: dict[str, Array]  # gradients of the matrices at the stream (tangent_gradients.py)


def check_tangents(config: RunConfig, tangents: TangentsConfig) -> None:
    """Raise UserError where proxies cannot be fitted and tested with these settings."""
    if not tangents.enabled:
        return
    check_settings(tangents, read_width(config.model), f"model.width={config.model.width}")
    steps, checkpoints = config.train.steps, early_steps(config, tangents)
    if len(checkpoints) < LEAST_EARLY or checkpoints[-1] == steps:
        last = int(tangents.early_fraction * steps)
        raise UserError(
            f"tangents.early_fraction={tangents.early_fraction:g} of {steps} steps: {len(checkpoints)} checkpoints lie "
            f"in steps 1 to {last}; {LEAST_EARLY} are needed, and a later one: train longer, or set another fraction"
        )


def read_width(model: ModelConfig) -> int:
    """Return the dimensions in which states are read; norms may remove the vector of ones."""
    return model.width - NORMS[model.norm].final


def basis(width: int, dimensions: int) -> np.ndarray:
    """Return orthonormal columns (D, D') of what is read; D' = D - 1 excludes the vector of ones."""
    if dimensions == width:
        return np.eye(width, dtype=np.float32)
    return scipy.linalg.helmert(width).T.astype(np.float32)


def make_windows(
    config: RunConfig, tangents: TangentsConfig, corpus: Corpus
) -> tuple[Windows, Windows]:
    """Choose validation windows with their input as in training, to fit to and to test on.

    Raises:
        UserError: the validation split is too short, or has too few scored positions.
    """
    context, count = config.model.context, tangents.windows
    available = (len(corpus.valid) - 1) // context  # windows have a character more
    check_window_count(available, f"{len(corpus.valid)} characters, {available} windows", tangents)
    rng = np.random.default_rng(tangents.seed)
    starts_W = rng.permutation(available)[: 2 * count] * context
    windows_WL = corpus.valid[starts_W[:, None] + np.arange(context + 1)].astype(np.int32)
    key = jax.random.key(tangents.seed)
    batch = objective.make_batch(config, windows_WL, key, np.arange(2 * count), corpus.mask_token)
    log_frequency_V = unigrams.log_frequency(corpus.train, 1, corpus.vocab_size)
    bins_WT = unigrams.bins(log_frequency_V)[windows_WL[:, :-1]]
    return split_windows((*batch, bins_WT), tangents, rng)


def check_window_count(available: int, description: str, tangents: TangentsConfig) -> None:
    """Raise UserError where the validation split has too few windows."""
    if available < 2 * tangents.windows:
        most = available // 2 // tangents.folds * tangents.folds
        raise UserError(
            f"the validation split has {description}; tangents.windows={tangents.windows} needs "
            f"twice as many: lower it to {most}"
        )


def split_windows(
    parts: tuple[np.ndarray, ...], tangents: TangentsConfig, rng: np.random.Generator
) -> tuple[Windows, Windows]:
    """Split (tokens, targets, weights, bins), each (2 W, T), into windows to fit and to test."""
    parts = [np.asarray(x_WT) for x_WT in parts]
    parts = [x_WT.reshape(2, tangents.folds, -1, x_WT.shape[1]) for x_WT in parts]
    return tuple(pick_points(*(x[half] for x in parts), tangents, rng) for half in range(2))


def pick_points(
    tokens_JWT: np.ndarray,
    targets_JWT: np.ndarray,
    weights_JWT: np.ndarray,
    bins_JWT: np.ndarray,
    tangents: TangentsConfig,
    rng: np.random.Generator,
) -> Windows:
    """Draw equally many scored positions of each fold; UserError where there are too few."""
    folds, windows, context = tokens_JWT.shape
    share = tangents.points // folds
    scored = [np.flatnonzero(weights_WT.ravel()) for weights_WT in weights_JWT]
    fewest = min(map(len, scored))
    if fewest < share:
        raise UserError(
            f"a fold of {windows} windows has {fewest} scored positions; tangents.points={tangents.points} needs "
            f"{share}: lower it to {fewest * folds}, or raise tangents.windows"
        )
    picks_JQ = np.stack([rng.permutation(places)[:share] for places in scored]).astype(np.int32)
    bins_P = np.take_along_axis(bins_JWT.reshape(folds, -1), picks_JQ, axis=1).ravel()
    time_P = picks_JQ.ravel() % context
    return Windows(tokens_JWT, targets_JWT, weights_JWT, picks_JQ, bins_P, time_P)
