"""One compiled program for all checkpoints of a run: states and gradients on the windows, proxies, and their tests.

Arrays carry the letters of `models`; J groups of W windows, Q points of a group, P = J Q, R = 1 + J resamples, X frames
(every fit of every kind), C control frames, G kinds of rows (RAW, then UNIT), and bins of log frequency.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.linalg
from jax import Array

from data.corpus import Corpus
from data.frequency import BINS
from metrics import similarity, tangent
from models import transformer
from models.config import ModelConfig
from models.masks import idle, visible_keys
from panel.config import MeasureConfig
from panel.panel import Sample, panel
from panel.resamples import Places, leave_out
from tangents import proxies, written
from tangents.config import TangentsConfig, width_of
from tangents.proxies import Fitted, Frames
from tangents.rows import Windows, make_windows
from training import objective
from training.config import RunConfig

FITS = ("early", "here", "previous", "untrained", "other seed")  # what a proxy was fitted to
GIVEN = tuple(fit for fit in FITS if fit != "here")
ROWS = ("raw", "unit")  # gradients as they are, and each over its norm


class Read(NamedTuple):
    """Of all layers; points group-major, in the dimensions that the network reads."""

    points_NPD: Array
    gradient_NPD: Array  # dLoss/dh of the summed loss of a group's windows
    loss_P: Array  # nats
    norm_JNT: Array  # mean |g| of a group's windows at each place, scored or not
    square_JNT: Array  # mean |g|^2
    ones_JN: Array  # of the scored rows: sum of the squared parts of g along the vector of ones
    radial_JN: Array  # along the state itself, without its mean coordinate
    total_JN: Array  # sum of |g|^2
    weights: written.Rows  # gradients of the matrices that read the stream


class Tested(NamedTuple):
    values: dict[str, Array]
    panel: dict[str, dict[str, Array]]  # of gradients, by kind of rows: {quantity: (layer, …, R)}
    fitted: Fitted  # here


class Program(NamedTuple):
    """Jitted, of one run; `params` as they were saved."""

    activations: Callable[[Any], Array]  # of the windows to fit on: (layer, P, D)
    fit: Callable[[Array], Fitted]
    # params, {fit: Frames}, {"between": Rows, "step": Rows} -> Tested
    test: Callable[[Any, dict[str, Frames], dict[str, written.Rows]], Tested]


def coordinates(model: ModelConfig) -> np.ndarray:
    """An orthonormal basis (D, D') of what is read: without the vector of ones where every norm removes it."""
    if width_of(model) == model.width:
        return np.eye(model.width, dtype=np.float32)
    return scipy.linalg.helmert(model.width).T.astype(np.float32)


def make_program(config: RunConfig, tangents: TangentsConfig, corpus: Corpus) -> Program:
    to_fit, to_test = make_windows(config, tangents, corpus)
    model = dataclasses.replace(config.model, mask="bidirectional", dtype="float32")
    model = dataclasses.replace(model, **{name: getattr(ModelConfig(), name) for name in idle(model)})
    visible_TT = np.asarray(visible_keys(config.model, config.model.context))
    activations, fit, test = computations(model, tangents, corpus.vocab_size)
    return Program(
        activations=lambda params: activations(params, to_fit, visible_TT),
        fit=fit,
        test=lambda params, given, moved: jax.device_get(test(params, (to_fit, to_test), visible_TT, given, moved)),
    )


@functools.cache
def computations(model: ModelConfig, tangents: TangentsConfig, vocab_size: int) -> tuple[Callable, Callable, Callable]:
    """Of runs that share model and settings, whatever their masks and objectives: these are data."""
    network, basis_DD = transformer.build(model, vocab_size, "float32"), coordinates(model)

    def activations(params: Any, windows: Windows, visible_TT: Array) -> Array:
        def of_group(group: tuple[Array, Array]) -> Array:
            tokens_WT, picks_Q = group
            return _picked(network.apply(params, tokens_WT, None, visible_TT)[1].resid_NBTD, picks_Q) @ basis_DD

        return _joined(jax.lax.map(of_group, (windows.tokens_JWT, windows.picks_JQ)))

    def test(params: Any, windows: tuple, visible_TT: Array, given: dict, moved: dict) -> Tested:
        to_fit, to_test = windows
        cloud_NPD = activations(params, to_fit, visible_TT)
        read_now = read(network, params, to_test, visible_TT, basis_DD)
        fitted = proxies.fit(cloud_NPD, tangents)
        by_rank, matrices = [], {"gradient": read_now.weights} | moved
        matrix_NMDD = written.short(matrices, basis_DD, len(cloud_NPD))
        for rank in tangents.ranks:
            every = given | {"here": fitted.frames}
            frames_NXDK = jnp.moveaxis(jnp.stack([every[fit][rank] for fit in FITS]), 2, 0)
            frames_NXDK = frames_NXDK.reshape(len(frames_NXDK), -1, *frames_NXDK.shape[3:])
            found = of_rank(read_now, frames_NXDK, matrix_NMDD, to_test.bins_P, tangents)
            by_rank.append(found)
        values = {name: jnp.stack([found[name] for found in by_rank]) for name in by_rank[0]}
        values |= of_gradients(read_now, to_test.bins_P, tangents) | of_local(read_now, cloud_NPD, tangents)
        return Tested(values, gradient_panel(read_now, to_test, tangents), fitted)

    def precise(work: Callable) -> Callable:
        return jax.jit(jax.default_matmul_precision("highest")(work))

    return precise(activations), precise(lambda cloud_NPD: proxies.fit(cloud_NPD, tangents)), precise(test)


def read(model: transformer.Model, params: Any, windows: Windows, visible_TT: Array, basis_DD: np.ndarray) -> Read:
    """A forward and a backward pass, group by group: the memory is that of one group's windows and of all rows kept."""

    def of_group(summed: written.Rows, group: tuple[Array, ...]) -> tuple[written.Rows, tuple[Array, ...]]:
        tokens_WT, targets_WT, weights_WT, picks_Q = group
        batch = objective.Batch(tokens_WT, targets_WT, weights_WT)
        shape = jax.eval_shape(lambda: model.apply(params, tokens_WT, None, visible_TT)[1].resid_NBTD).shape

        def loss(taps_NBTD: Array, matrices: written.Rows) -> tuple[Array, tuple[Array, Array]]:
            logits_WTV, found = model.apply(written.put(params, matrices), tokens_WT, taps_NBTD, visible_TT)
            return objective.nats(logits_WTV, batch), (logits_WTV, found.resid_NBTD)

        both = jax.grad(loss, argnums=(0, 1), has_aux=True)
        (gradient_NBTD, slope), (logits_WTV, resid_NBTD) = both(jnp.zeros(shape), written.take(params))
        loss_WT = optax.softmax_cross_entropy_with_integer_labels(logits_WTV, targets_WT)
        square_NBT = jnp.square(gradient_NBTD).sum(axis=3)
        state_NQD, gradient_NQD = _picked(resid_NBTD, picks_Q), _picked(gradient_NBTD, picks_Q)
        state_NQD = state_NQD - state_NQD.mean(axis=2, keepdims=True)
        state_NQD = state_NQD / jnp.linalg.norm(state_NQD, axis=2, keepdims=True)
        found = (
            _picked(resid_NBTD, picks_Q) @ basis_DD,
            gradient_NQD @ basis_DD,
            loss_WT.reshape(-1)[picks_Q],
            jnp.sqrt(square_NBT).mean(axis=1),
            square_NBT.mean(axis=1),
            jnp.square(gradient_NQD.sum(axis=2)).sum(axis=1) / shape[-1],
            jnp.square((gradient_NQD * state_NQD).sum(axis=2)).sum(axis=1),
            jnp.square(gradient_NQD).sum(axis=(1, 2)),
        )
        return jax.tree.map(jnp.add, summed, slope), found

    zero = jax.tree.map(jnp.zeros_like, written.take(params))
    slope, found_J = jax.lax.scan(of_group, zero, windows[:4])
    points_JNQD, gradient_JNQD, loss_JQ, *rest = found_J
    return Read(_joined(points_JNQD), _joined(gradient_JNQD), loss_JQ.ravel(), *rest, written.rows(slope))


def _picked(x_NBTD: Array, picks_Q: Array) -> Array:
    return x_NBTD.reshape(len(x_NBTD), -1, x_NBTD.shape[-1])[:, picks_Q]


def _joined(x_JNQD: Array) -> Array:
    """(N, P, D), group-major."""
    return jnp.moveaxis(x_JNQD, 1, 0).reshape(x_JNQD.shape[1], -1, x_JNQD.shape[-1])


def of_gradients(read_now: Read, bins_P: Array, tangents: TangentsConfig) -> dict[str, Array]:
    """What is said of gradients without any proxy: (…, R)."""
    weight_RJ = similarity.leave_out(tangents.groups)
    weight_RJ = weight_RJ / weight_RJ.sum(axis=1, keepdims=True)

    def over(x_J: Array) -> Array:
        """Means over the groups that are left, R last."""
        return jnp.moveaxis(jnp.tensordot(weight_RJ, x_J, 1), 0, -1)

    norm_NTR, square_NTR, total_NR = over(read_now.norm_JNT), over(read_now.square_JNT), over(read_now.total_JN)
    weight_BRP = _in_bins(bins_P)[:, None] * leave_out(tangents.groups, tangents.points)[None]
    weight_BRP = weight_BRP / weight_BRP.sum(axis=2, keepdims=True)
    norm_NP = jnp.linalg.norm(read_now.gradient_NPD, axis=2)
    return {
        "first_position_share": square_NTR[:, 0] / square_NTR.sum(axis=1),
        "first_position_norm": norm_NTR[:, 0] / jnp.median(norm_NTR, axis=1),
        "ones_share": over(read_now.ones_JN) / total_NR,
        "radial_share": over(read_now.radial_JN) / total_NR,
        "norm_in_bin": jnp.einsum("brp,np->nbr", weight_BRP, norm_NP),
        "loss_in_bin": jnp.einsum("brp,p->br", weight_BRP, read_now.loss_P),
    }


def _in_bins(bins_P: Array) -> Array:
    return bins_P[None] == jnp.arange(len(BINS))[:, None]


def of_rank(
    read_now: Read,
    frames_NXDK: Array,
    matrix_NMDD: Array,
    bins_P: Array,
    tangents: TangentsConfig,
) -> dict[str, Array]:
    """Every frame of one rank in every layer; layers go one after another."""
    keep_RP = leave_out(tangents.groups, tangents.points)
    in_bin_BP = _in_bins(bins_P)
    key = jax.random.key(tangents.seed)

    def of_layer(given: tuple[Array, ...]) -> dict[str, Array]:
        points_PD, gradient_PD, matrix_MDD, frames_XDK = given
        rows_GPD = jnp.stack([gradient_PD, unit(gradient_PD)])

        def of(frame_DK: Array) -> dict[str, Array]:
            others_CDK = tangent.random_frames(frame_DK, key, tangents.controls)
            found = of_frame(frame_DK, others_CDK, points_PD, rows_GPD, keep_RP, key)
            return found | of_matrices(frame_DK, others_CDK, matrix_MDD)

        # one after another: on a CPU, decompositions of many matrices at once can wait for each other for ever
        found = jax.lax.map(of, frames_XDK)
        binned = jax.vmap(lambda frame_DK: of_bins(frame_DK, points_PD, gradient_PD, keep_RP, in_bin_BP))(frames_XDK)
        return found | binned

    return jax.lax.map(of_layer, (read_now.points_NPD, read_now.gradient_NPD, matrix_NMDD, frames_NXDK))


def unit(rows_PD: Array) -> Array:
    """Each over its norm; 0 stays 0."""
    norm_P1 = jnp.linalg.norm(rows_PD, axis=1, keepdims=True)
    return jnp.where(norm_P1 > 0, rows_PD / jnp.where(norm_P1 > 0, norm_P1, 1.0), 0.0)


def of_frame(
    frame_DK: Array, others_CDK: Array, points_PD: Array, rows_GPD: Array, keep_RP: Array, key: Array
) -> dict[str, Array]:
    """One frame in one layer: energies, what the activations explain, controls, and IsoScore* of what is left."""

    def of_rows(rows_PD: Array) -> dict[str, Array]:
        energy_R = jax.vmap(lambda keep_P: tangent.energy(frame_DK, rows_PD, keep_P))(keep_RP)
        short_DD = jnp.linalg.qr(rows_PD, mode="r")  # D rows of the same second moments, for many frames
        control_C = jax.vmap(lambda other_DK: tangent.energy(other_DK, short_DD))(others_CDK)
        covariance_RDD = jax.vmap(lambda keep_P: tangent.covariance(rows_PD, keep_P))(keep_RP)
        alike_CDK = tangent.equal_energy_frames(frame_DK, rows_PD.T @ rows_PD, key, len(others_CDK))
        whole = jnp.zeros((len(frame_DK), 0))

        def left(other_DK: Array, covariance_DD: Array = covariance_RDD[0]) -> Array:
            """What removing a frame adds to IsoScore*."""
            return tangent.isoscore_outside(other_DK, covariance_DD) - tangent.isoscore_outside(whole, covariance_DD)

        return {
            "energy": energy_R,
            "control_energy": control_C,
            "control_ratio": tangent.ratio(energy_R[0], control_C),
            "control_p": tangent.p_value(energy_R[0], control_C),
            "isoscore_gain": jax.vmap(lambda covariance_DD: left(frame_DK, covariance_DD))(covariance_RDD),
            "isoscore_gain_normal": jax.vmap(left)(others_CDK),
            "isoscore_gain_equal_energy": jax.vmap(left)(alike_CDK),
        }

    variance_R = jax.vmap(lambda keep_P: tangent.variance_share(frame_DK, points_PD, keep_P))(keep_RP)
    return jax.lax.map(of_rows, rows_GPD) | {"variance": variance_R}


def of_matrices(frame_DK: Array, others_CDK: Array, matrix_MDD: Array) -> dict[str, Array]:
    """Energies of gradients and updates of the matrices that read this layer, (of, matrix); p beside random frames."""

    def of(short_DD: Array) -> tuple[Array, Array]:
        own = tangent.energy(frame_DK, short_DD)
        control_C = jax.vmap(lambda other_DK: tangent.energy(other_DK, short_DD))(others_CDK)
        return own, tangent.p_value(own, control_C)

    energy_M, p_M = jax.vmap(of)(matrix_MDD)
    shape = len(written.OF), len(written.MATRICES)
    return {"matrix_energy": energy_M.reshape(shape), "matrix_p": p_M.reshape(shape)}


def of_bins(
    frame_DK: Array, points_PD: Array, gradient_PD: Array, keep_RP: Array, in_bin_BP: Array
) -> dict[str, Array]:
    """e and v of the points in each bin of log frequency; NaN where a resample has fewer than two."""

    def of(keep_P: Array) -> tuple[Array, Array]:
        enough = keep_P.sum() > 1
        both = tangent.energy(frame_DK, gradient_PD, keep_P), tangent.variance_share(frame_DK, points_PD, keep_P)
        return tuple(jnp.where(enough, one, jnp.nan) for one in both)

    energy_BR, variance_BR = jax.vmap(jax.vmap(of))(in_bin_BP[:, None] * keep_RP[None])
    return {"energy_in_bin": energy_BR, "variance_in_bin": variance_BR}


def of_local(read_now: Read, cloud_NPD: Array, tangents: TangentsConfig) -> dict[str, Array]:
    """e and v of the local tangents at the first points of each group, among those that proxies are fitted to."""
    share, at = tangents.local_points // tangents.groups, jnp.asarray(tangents.ranks) - 1
    keep_RP = leave_out(tangents.groups, tangents.local_points)

    def some(x_PD: Array) -> Array:
        return x_PD.reshape(tangents.groups, -1, x_PD.shape[1])[:, :share].reshape(-1, x_PD.shape[1])

    def of_layer(given: tuple[Array, Array, Array]) -> dict[str, Array]:
        points_PD, gradient_PD, among_PD = some(given[0]), some(given[1]), given[2]
        found = tangent.local_tangent(points_PD, gradient_PD, among_PD, tangents.neighbours, tangents.ranks[-1])
        inside_PA, share_PA = found.inside_PK[:, at], found.share_PK[:, at]
        square_P = jnp.square(gradient_PD).sum(axis=1)
        weight_GP = jnp.stack([square_P, (square_P > 0).astype(jnp.float32)])
        inside_GPA = jnp.stack([inside_PA, inside_PA / jnp.where(square_P > 0, square_P, 1.0)[:, None]])
        total_GR = weight_GP @ keep_RP.T
        return {
            "local_energy": jnp.einsum("rp,gpa->agr", keep_RP, inside_GPA) / total_GR[None],
            "local_variance": jnp.einsum("rp,gp,pa->agr", keep_RP, weight_GP, share_PA) / total_GR[None],
        }

    found = jax.lax.map(of_layer, (read_now.points_NPD, read_now.gradient_NPD, cloud_NPD))
    return {name: jnp.swapaxes(value, 0, 1) for name, value in found.items()}  # (rank, layer, rows, R)


def gradient_panel(read_now: Read, windows: Windows, tangents: TangentsConfig) -> dict[str, dict[str, Array]]:
    """Gradients as clouds through the panel's families."""
    if not tangents.families:
        return {}
    settings = MeasureConfig(
        points=tangents.points,
        batches=1,
        groups=tangents.groups,
        families=tangents.families,
        nulls=(),
        seed=tangents.seed,
    )
    context, share = windows.tokens_JWT.shape[2], tangents.points // tangents.groups
    group_P = np.arange(tangents.points) // share
    window_P = group_P * windows.tokens_JWT.shape[1] + windows.picks_JQ.reshape(-1) // context
    places = Places(window_P, windows.time_P)
    clouds = dict(zip(ROWS, (read_now.gradient_NPD, jax.vmap(unit)(read_now.gradient_NPD)), strict=True))
    samples = {"measured": Sample(clouds["raw"], places=places), "unit": Sample(clouds["unit"], places=places)}
    found = panel(samples, {}, settings, jax.random.key(tangents.seed))
    return {"raw": found["measured"], "unit": found["unit"]}
