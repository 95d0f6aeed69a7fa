"""Choose windows, compute states and gradients on them, and collect matrices at the stream.

Matrices are written as rows of the width of the stream. Two kernels of a block read the stream, and
are split on their input side: attention (queries, keys and values) and mlp (into the hidden units).
Block l + 1 reads layer l, so their rows are compared with the proxies of layer l. Two kernels write
to the stream: attention_out and mlp_out. Their input is not a state of the stream, so they are
split on their output side, and compared with the proxies of the layer after their block. embedding
is the table of tokens, at layer 0.

Shape letters are those of docs/reference/letters.md; J folds of W windows, Q points of a fold, P = J Q points,
fold-major; M matrices, O the rows of a matrix.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.linalg

from anisoscope.config.model_config import ModelConfig
from anisoscope.config.run_config import RunConfig
from anisoscope.config.tangents_config import TangentsConfig, check_settings, early_steps
from anisoscope.data import unigrams
from anisoscope.data.corpus import Corpus
from anisoscope.metrics.registry import FAMILIES, select_kind
from anisoscope.models import transformer
from anisoscope.models.layers import NORM_PLACES
from anisoscope.subspaces.tangent_quantities import MATRICES, WEIGHT_CHANGES
from anisoscope.training import objective
from anisoscope.utils.errors import UserError

Array = Any  # NumPy's or JAX's
LEAST_EARLY = 2  # checkpoints needed for early proxies
NO_BIN = -1  # of a token that every window has, or that the model does not read
READING = {"attention": "qkv", "mlp": "mlp_up"}
WRITING = {"attention_out": "attention_out", "mlp_out": "mlp_down"}
KERNELS = READING | WRITING

Rows = dict[str, Array]  # {matrix: (…, width or rows, …)}


class TangentWindows(NamedTuple):
    """Windows in folds, with targets, weights and picked positions."""

    tokens_JWT: np.ndarray  # inputs, masked if the model is trained so
    targets_JWT: np.ndarray
    weights_JWT: np.ndarray  # weights of the positions in the loss
    picks_JQ: np.ndarray  # int32, scored positions, as indices into the W*T positions of a fold
    bins_P: np.ndarray  # int32, bin of the token's log frequency in the text, or NO_BIN
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


def check_gradient_families(families: tuple[str, ...]) -> None:
    """Raise UserError if a family needs more than a single cloud of gradients."""
    if others := [name for name in families if FAMILIES[name].kind != "cloud"]:
        clouds = ", ".join(select_kind(FAMILIES, "cloud"))
        why = "does not read single clouds, as gradients are"
        raise UserError(f"tangents.families: {others[0]} {why}; choose from {clouds}")


def check_tangents(config: RunConfig, tangents: TangentsConfig) -> None:
    """Raise UserError where proxies cannot be fitted and tested with these settings."""
    if not tangents.enabled:
        return
    check_gradient_families(tangents.families)
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
    return model.width - NORM_PLACES[model.norm].final


def stream_basis(width: int, dimensions: int) -> np.ndarray:
    """Return orthonormal columns (D, D') of what is read; D' = D - 1 excludes the vector of ones."""
    if dimensions == width:
        return np.eye(width, dtype=np.float32)
    return scipy.linalg.helmert(width).T.astype(np.float32)


def choose_tangent_windows(
    config: RunConfig, tangents: TangentsConfig, corpus: Corpus
) -> tuple[TangentWindows, TangentWindows]:
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
    if config.model.same_first:  # such a model does not read the first character
        bins_WT[:, 0] = NO_BIN
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
) -> tuple[TangentWindows, TangentWindows]:
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
) -> TangentWindows:
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
    return TangentWindows(tokens_JWT, targets_JWT, weights_JWT, picks_JQ, bins_P, time_P)


def activations(
    model: transformer.Model,
    params: Any,
    windows: TangentWindows,
    visible_TT: Array,
    basis_DD: np.ndarray,
) -> Array:
    """Return the states at the picked positions, (layer, P, D)."""

    def read_fold(fold: tuple[Array, Array]) -> Array:
        tokens_WT, picks_Q = fold
        resid_LBTD = model.apply(params, tokens_WT, None, visible_TT)[1].resid_LBTD
        return _pick(resid_LBTD, picks_Q) @ basis_DD

    return _join_folds(jax.lax.map(read_fold, (windows.tokens_JWT, windows.picks_JQ)))


def compute_gradients(
    model: transformer.Model,
    params: Any,
    windows: TangentWindows,
    visible_TT: Array,
    basis_DD: np.ndarray,
) -> Gradients:
    """Run a forward and a backward pass, fold by fold, in the memory of one."""

    def read_fold(summed: Rows, fold: tuple[Array, ...]) -> tuple[Rows, tuple[Array, ...]]:
        tokens_WT, targets_WT, weights_WT, picks_Q = fold
        batch = objective.Batch(tokens_WT, targets_WT, weights_WT)
        apply = functools.partial(model.apply, params, tokens_WT, None, visible_TT)
        shape = jax.eval_shape(apply)[1].resid_LBTD.shape

        def loss(taps_LBTD: Array, matrices: Rows) -> tuple[Array, tuple[Array, Array]]:
            replaced = replace_matrices(params, matrices)
            logits_WTV, states = model.apply(replaced, tokens_WT, taps_LBTD, visible_TT)
            return objective.nats(logits_WTV, batch), (logits_WTV, states.resid_LBTD)

        (gradient_NBTD, slope), (logits_WTV, resid_LBTD) = jax.grad(
            loss, argnums=(0, 1), has_aux=True
        )(jnp.zeros(shape), collect_matrices(params))
        loss_WT = optax.softmax_cross_entropy_with_integer_labels(logits_WTV, targets_WT)
        square_NBT = jnp.square(gradient_NBTD).sum(axis=3)
        state_NQD, gradient_NQD = _pick(resid_LBTD, picks_Q), _pick(gradient_NBTD, picks_Q)
        state_NQD = state_NQD - state_NQD.mean(axis=2, keepdims=True)
        state_NQD = state_NQD / jnp.linalg.norm(state_NQD, axis=2, keepdims=True)
        values = (
            _pick(resid_LBTD, picks_Q) @ basis_DD,
            gradient_NQD @ basis_DD,
            loss_WT.reshape(-1)[picks_Q],
            jnp.sqrt(square_NBT).mean(axis=1),
            square_NBT.mean(axis=1),
            jnp.square(gradient_NQD.sum(axis=2)).sum(axis=1) / shape[-1],
            jnp.square((gradient_NQD * state_NQD).sum(axis=2)).sum(axis=1),
            jnp.square(gradient_NQD).sum(axis=(1, 2)),
        )
        return jax.tree.map(jnp.add, summed, slope), values

    zero = jax.tree.map(jnp.zeros_like, collect_matrices(params))
    slope, (points_JNQD, gradient_JNQD, loss_JQ, *rest) = jax.lax.scan(read_fold, zero, windows[:4])
    return Gradients(
        _join_folds(points_JNQD),
        _join_folds(gradient_JNQD),
        loss_JQ.ravel(),
        *rest,
        matrix_rows(slope),
    )


def _pick(x_NBTD: Array, picks_Q: Array) -> Array:
    return x_NBTD.reshape(len(x_NBTD), -1, x_NBTD.shape[-1])[:, picks_Q]


def _join_folds(x_JNQD: Array) -> Array:
    """Join folds to (N, P, D)."""
    return jnp.moveaxis(x_JNQD, 1, 0).reshape(x_JNQD.shape[1], -1, x_JNQD.shape[-1])


def collect_matrices(params: Any) -> Rows:
    """Collect the matrices as stored in the parameters."""
    kernels = {name: params["blocks"][where]["kernel"] for name, where in KERNELS.items()}
    return {"embedding": params["tokens"]} | kernels


def replace_matrices(params: Any, matrices: Rows) -> Any:
    """Replace the matrices in the parameters."""
    kernels = {
        where: params["blocks"][where] | {"kernel": matrices[name]}
        for name, where in KERNELS.items()
    }
    return params | {"tokens": matrices["embedding"], "blocks": params["blocks"] | kernels}


def matrix_rows(matrices: Rows) -> Rows:
    """Put the width last: (1, V, D) for tokens, and (N, …, D) for kernels, a row for each unit."""
    kernels = {name: jnp.swapaxes(matrices[name], 1, 2) for name in READING}
    kernels |= {name: matrices[name] for name in WRITING}
    return {"embedding": matrices["embedding"][None]} | kernels


def parameter_update(before: Any, after: Any) -> Rows:
    """Return the update from one set of parameters to another."""
    ends = collect_matrices(before), collect_matrices(after)
    return matrix_rows(jax.tree.map(lambda a, b: jnp.asarray(b) - jnp.asarray(a), *ends))


def short_rows(matrices: dict[str, Rows], basis_DD: np.ndarray, layers: int) -> Array:
    """Write matrices in the basis, each as at most D' rows R with the same R'R.

    Returns:
        (layer, kind x matrix, D', D'); NaN where no such matrix reads or writes a layer.
    """
    width = basis_DD.shape[1]

    def shorten(rows_OD: Array) -> Array:
        padded_OD = jnp.pad(rows_OD, ((0, max(width - len(rows_OD), 0)), (0, 0)))  # a small table
        return jnp.linalg.qr(padded_OD @ basis_DD, mode="r")

    factors = []
    for kind in WEIGHT_CHANGES:
        for name in MATRICES:
            short_MDD = jax.lax.map(shorten, matrices[kind][name])
            first = int(name in WRITING)  # the layer after the first block
            missing = ((first, layers - len(short_MDD) - first), (0, 0), (0, 0))
            factors.append(jnp.pad(short_MDD, missing, constant_values=jnp.nan))
    return jnp.stack(factors, axis=1)
