"""Find massive vectors, and make the set of positions without them.

A token whose vector is massive in any layer is left out of all layers: they keep the same tokens, as
comparisons of layers need. Letters: M positions of a fold, Z inputs of a batch.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from anisoscope.metrics.leading import is_massive
from anisoscope.utils.errors import SettingError


class Choice(NamedTuple):
    """The picked positions of an input, and which key each query sees: (T, T) or (N, T, T)."""

    picks_P: np.ndarray
    visible: np.ndarray
    massive_P: np.ndarray | None = None  # of all positions, those left out; None: unknown


class MassiveTokens(NamedTuple):
    """The massive vectors of each input of a batch, and the order in which positions are picked."""

    massive_ZLP: np.ndarray  # of all positions of all windows
    order_JM: np.ndarray


def find_massive(layers: Iterable[Iterable[Any]]) -> np.ndarray:
    """Mark the massive vectors of each layer, (L, P); a layer comes in blocks (rows, D) of float32."""
    norms = (
        np.concatenate([jnp.linalg.norm(jnp.asarray(block), axis=1) for block in blocks])
        for blocks in layers
    )
    return np.stack([np.asarray(is_massive(norm_P)) for norm_P in norms])


def find_massive_tokens(resid_ZLBTD: Any, order_JM: np.ndarray) -> MassiveTokens:
    """Find the massive vectors of the inputs of a batch; a median is that of a layer of an input."""
    width = resid_ZLBTD.shape[-1]
    massive = [
        find_massive([x_BTD.reshape(-1, width)] for x_BTD in x_LBTD) for x_LBTD in resid_ZLBTD
    ]
    return MassiveTokens(np.stack(massive), order_JM)


def choose_others(tokens: MassiveTokens, visible: np.ndarray, points: int) -> Iterator[Choice]:
    """Choose, for each input, positions that are massive in no layer.

    Of each fold the first positions in random order are picked, as for all positions: with nothing
    massive they are the same. A position that is massive in every window is neither query nor key.
    UserError where a fold has too few positions left.
    """
    folds = len(tokens.order_JM)
    for massive_LP in tokens.massive_ZLP:
        massive_P = massive_LP.any(axis=0)
        left = [order_M[~massive_P[order_M]] for order_M in tokens.order_JM]
        fewest, share = min(map(len, left)), points // folds
        if fewest < share:
            what = f"a fold has {fewest} tokens that are massive in no layer, and needs {share}"
            advice = "lower measure.points, or leave measure.without_massive out"
            raise SettingError(f"{what}; {advice}", "measure.points", "measure.without_massive")
        always_T = massive_P.reshape(-1, visible.shape[-1]).all(axis=0)
        hidden = visible.copy()
        hidden[..., always_T, :] = hidden[..., always_T] = False
        yield Choice(np.concatenate([order_M[:share] for order_M in left]), hidden, massive_P)
