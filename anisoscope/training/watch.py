"""Cheap geometry of a training batch, inside of the program of a step; and checkpoints kept at its turning points.

What is looked at are the activations that the step has anyway: a fixed choice of positions of its batch, whose text (of
an encoder masked) is another at every look. So a curve is dense in time and noisy, where the panel's is neither.
"""

import bisect
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from anisoscope.config.run import RunConfig
from anisoscope.metrics import similarity
from anisoscope.metrics.cloud import centred
from anisoscope.models.masks import visible_keys

# In words and units, of every layer (0: the embedding) or of every block; those of the panel's name are its quantities.
LAYERS = {
    "anisotropy": ("anisotropy", "1"),
    "participation_ratio": ("participation ratio", "dimensions"),
    "mean_cosine": ("mean cosine", "1"),
    "drift": ("drift |E x|", "activation"),
    "mean_norm": ("mean norm", "activation"),
}
BLOCKS = {"attention_first": ("attention on position 0", "1"), "gradient_norm": ("norm of the gradient", "1")}
ITERATIONS = 32  # of the power method: 1 % of an eigenvalue whose neighbour is 0.95 of it
WINDOWS = 2  # of a batch, whose attention is looked at
# Looks that a mean is taken of; that come before any turning point; points that are kept.
SMOOTHED, FIRST, MOST = 3, 4, 16


class Seen(NamedTuple):
    """Of the activations of a block, what is looked at."""

    cloud_PD: jax.Array
    q_BTHK: jax.Array  # of few windows
    k_BTHK: jax.Array


def cloud(config: RunConfig, x_BTD: jax.Array) -> jax.Array:
    flat_PD = x_BTD.reshape(-1, x_BTD.shape[-1])
    picks_P = np.random.default_rng(0).permutation(flat_PD.shape[0])[: config.watch.points]
    return jax.lax.stop_gradient(flat_PD[picks_P])


def see(config: RunConfig) -> Callable[[jax.Array, jax.Array, jax.Array], Seen]:
    return lambda x_BTD, q_BTHK, k_BTHK: Seen(cloud(config, x_BTD), q_BTHK[:WINDOWS], k_BTHK[:WINDOWS])


def look(config: RunConfig, embedding_PD: jax.Array, seen_N: Seen, grads: dict[str, Any]) -> dict[str, jax.Array]:
    """Every quantity by layer, (N + 1,), or by block, (N,); float32. Gradients are those before clipping."""
    cloud_NPD = jnp.concatenate([embedding_PD[None], seen_N.cloud_PD]).astype(jnp.float32)
    anisotropy_N, ratio_N = jax.vmap(spectrum)(cloud_NPD)
    squares = [jnp.square(leaf).reshape(leaf.shape[0], -1).sum(1) for leaf in jax.tree.leaves(grads["blocks"])]
    return {
        "anisotropy": anisotropy_N,
        "participation_ratio": ratio_N,
        **{name: jax.vmap(getattr(similarity, name))(cloud_NPD) for name in ("mean_cosine", "drift", "mean_norm")},
        "attention_first": attention_first(config, seen_N.q_BTHK, seen_N.k_BTHK),
        "gradient_norm": jnp.sqrt(sum(squares)),
    }


def spectrum(cloud_PD: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Anisotropy and participation ratio, without a decomposition: of the smaller of the two Gram matrices.

    With G = x x' or x' x of the centred cloud, trace(G)^2 / |G|^2 is the participation ratio. The largest eigenvalue
    comes from the power method, so that anisotropy is never too large.
    """
    x_PD = centred(cloud_PD)
    x_PD = x_PD if x_PD.shape[0] <= x_PD.shape[1] else x_PD.T
    gram_EE = jnp.matmul(x_PD, x_PD.T, precision=jax.lax.Precision.HIGHEST)
    start_E = jax.random.normal(jax.random.key(0), gram_EE.shape[:1])

    def closer(_: int, v_E: jax.Array) -> jax.Array:
        v_E = gram_EE @ v_E
        return v_E / jnp.linalg.norm(v_E)

    v_E = jax.lax.fori_loop(0, ITERATIONS, closer, start_E)
    trace = jnp.trace(gram_EE)
    return v_E @ (gram_EE @ v_E) / trace, jnp.square(trace) / jnp.square(gram_EE).sum()


def attention_first(config: RunConfig, q_NBTHK: jax.Array, k_NBTHK: jax.Array) -> jax.Array:
    """Mean over heads of the softmax weight on key 0, over the rows that see it and another one: (N,)."""
    visible_TT = visible_keys(config.model, q_NBTHK.shape[2])
    counted_T = visible_TT[:, 0] & (visible_TT.sum(axis=1) > 1)

    def of_block(both: tuple[jax.Array, jax.Array]) -> jax.Array:
        q_BTHK, k_BTHK = (x.astype(jnp.float32) for x in both)
        scores_BHTT = jnp.einsum("bthk,bshk->bhts", q_BTHK * q_BTHK.shape[-1] ** -0.5, k_BTHK)
        weights_BHTT = jax.nn.softmax(jnp.where(visible_TT, scores_BHTT, -jnp.inf))
        return jnp.where(counted_T, weights_BHTT[..., 0], 0.0).mean((0, 1)).sum() / counted_T.sum()

    return jax.lax.map(of_block, (q_NBTHK, k_NBTHK))


class TurningPoints:
    """Where a curve is seen to have turned, look by look.

    Its mean over SMOOTHED looks has come back from its farthest point by this share of its whole range so far, and by
    twice what it usually moves from look to look (the median): noise is no turning point. One is known only then,
    some looks after the farthest point. Which way the curve goes at first is seen after FIRST looks. There are MOST at
    most.
    """

    def __init__(self, share: float):
        self.share, self.seen, self.way, self.farthest = share, 0, 0, 0.0
        self.last: list[float] = []  # SMOOTHED looks at most
        self.moves: list[float] = []  # from look to look, without sign, ascending
        self.looks, self.first, self.low, self.high = 0, 0.0, math.inf, -math.inf  # of the smoothed curve

    def look(self, value: float) -> bool:
        """Whether the curve is seen to have turned, now that it has this value too; not finite: it is no look."""
        if not math.isfinite(value):
            return False
        if self.last:
            bisect.insort(self.moves, abs(value - self.last[-1]))
        self.last = [*self.last, value][-SMOOTHED:]
        smooth = float(np.mean(self.last))
        self.first = self.first if self.looks else smooth
        self.low, self.high = min(self.low, smooth), max(self.high, smooth)
        usual = statistics.median(self.moves) if self.moves else 0.0
        back = max(self.share * (self.high - self.low), 2 * usual)
        self.looks += 1
        if not self.way:
            self.way = int(np.sign(smooth - self.first)) if self.looks > FIRST else 0
            self.farthest = self.high if self.way > 0 else self.low
        elif self.way * (smooth - self.farthest) > 0:
            self.farthest = smooth
        elif self.way * (self.farthest - smooth) > back and self.seen < MOST:
            self.seen, self.way, self.farthest = self.seen + 1, -self.way, smooth
            return True
        return False


def curve(lines: list[dict[str, Any]], name: str) -> dict[int, float]:
    """{step of the line: mean over the blocks} of one quantity in a log."""
    return {line["step"]: over_blocks(name, line[name]) for line in lines if line["kind"] == "watch"}


def over_blocks(name: str, values: Sequence[float]) -> float:
    """The embedding is no block."""
    return float(np.mean(np.asarray(values[1:] if name in LAYERS else values, np.float64)))


def unseen(every: int, lines: list[dict[str, Any]], saved: int) -> list[int]:
    """Steps up to `saved` that were looked at, whose look a log lacks."""
    return sorted({*range(1, saved + 1, every)} - {line["step"] for line in lines if line["kind"] == "watch"})


def kept(lines: list[dict[str, Any]]) -> list[int]:
    """Steps whose checkpoint was kept at a turning point."""
    return [line["step"] for line in lines if line["kind"] == "turn"]


def seen_again(name: str, share: float, lines: list[dict[str, Any]]) -> list[int]:
    """The same from the looks of a log: it may be cut between a look and the line of the turn that was seen in it."""
    looks, points = curve(lines, name), TurningPoints(share)
    return [step for step in sorted(looks) if points.look(looks[step])]
