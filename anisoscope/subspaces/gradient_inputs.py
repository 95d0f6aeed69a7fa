"""What the stage is given of a model, whoever computes it: windows, and the states and gradients
read of them.

Arrays carry the letters of `models`; J folds of W windows, Q points of a fold, P = J Q points,
fold-major.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from anisoscope.config.tangents_config import TangentsConfig
from anisoscope.utils.errors import UserError

Array = Any  # NumPy's or JAX's


class Windows(NamedTuple):
    """Arrays over J folds; the points that are read of them are fold-major."""

    tokens_JWT: np.ndarray  # what the model reads: masked where it is trained so
    targets_JWT: np.ndarray
    weights_JWT: np.ndarray  # where the loss counts
    picks_JQ: np.ndarray  # int32, indices into the W*T positions of a fold, of scored ones
    # int32, of log frequency of what stands there in the text; -1: a special token, of no bin
    bins_P: np.ndarray
    time_P: np.ndarray  # the place in its window


class Read(NamedTuple):
    """Of all layers; points fold-major, in the dimensions that the network reads."""

    points_NPD: Array
    gradient_NPD: Array  # dLoss/dh of the summed loss of a fold's windows
    loss_P: Array  # nats
    norm_JNT: Array  # mean |g| of a fold's windows at each place, scored or not
    square_JNT: Array  # mean |g|^2
    ones_JN: Array  # of the scored rows: sum of the squared parts of g along the vector of ones
    radial_JN: Array  # along the state itself
    total_JN: Array  # sum of |g|^2
    weights: dict[
        str, Array
    ]  # gradients of the matrices that read the stream or write to it (subspaces/weight_gradients.py)


def picked(
    tokens_JWT: np.ndarray,
    targets_JWT: np.ndarray,
    weights_JWT: np.ndarray,
    bins_JWT: np.ndarray,
    tangents: TangentsConfig,
    rng: np.random.Generator,
) -> Windows:
    """With as many scored positions of each fold, drawn at random; UserError where there are too
    few.
    """
    folds, _, context = tokens_JWT.shape
    share = tangents.points // folds
    scored = [np.flatnonzero(weights_WT.ravel()) for weights_WT in weights_JWT]
    fewest = min(map(len, scored))
    if fewest < share:
        raise UserError(
            f"a fold of {tokens_JWT.shape[1]} windows has {fewest} scored positions; tangents.points="
            f"{tangents.points} needs {share}: lower it to {fewest * folds}, or raise tangents.windows"
        )
    picks_JQ = np.stack([rng.permutation(one)[:share] for one in scored]).astype(np.int32)
    bins_P = np.take_along_axis(bins_JWT.reshape(folds, -1), picks_JQ, axis=1).ravel()
    return Windows(
        tokens_JWT, targets_JWT, weights_JWT, picks_JQ, bins_P, picks_JQ.ravel() % context
    )


def coordinates(width: int, dimensions: int) -> np.ndarray:
    """An orthonormal basis (D, D') of what is read: with one dimension less, all but the vector of
    ones.
    """
    if dimensions == width:
        return np.eye(width, dtype=np.float32)
    return scipy.linalg.helmert(width).T.astype(np.float32)
