"""Fit tangent proxies to activations, and test them on gradients against controls.

Proxies are semi-NMF concepts and principal directions. All functions are pure and un-jitted. Arrays
carry the letters of `models`; P points in J folds, R = 1 + J resamples, X frames (every fit of
every kind), U control frames, G kinds of rows (raw, then unit), M matrices, I bins of log
frequency, Q points of a fold, Y rounds of semi-NMF. A are restarts of semi-NMF, or ranks of a local
tangent.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from anisoscope.config.tangents_config import TangentsConfig
from anisoscope.engine.cloud_programs import Selection
from anisoscope.engine.measure_clouds import measure_clouds
from anisoscope.engine.sizes import lay_out
from anisoscope.metrics import tangent
from anisoscope.metrics.cloud import fold_weights, point_weights
from anisoscope.metrics.frequency import BINS
from anisoscope.metrics.quantity import MEASURED, Values
from anisoscope.metrics.resampling import TokenPositions
from anisoscope.sources.folds import cut_runs
from anisoscope.subspaces.tangent_gradients import Gradients, Rows, TangentWindows, short_rows
from anisoscope.subspaces.tangent_quantities import FITS, MATRICES, WEIGHT_CHANGES

LAST = 10  # last rounds of semi-NMF, over which progress is reported
Frames = dict[int, Array]  # by rank: orthonormal columns (…, kind, layer, D, rank)


class Fitted(NamedTuple):
    """Proxies of every rank and layer, and how well semi-NMF fits."""

    frames: Frames  # (kind, layer, D, rank)
    residual: Array  # (rank, layer): |A - Z C|^2 / |A|^2 of the best restart
    progress: Array  # (rank, layer): share of the residual that the last rounds removed
    spread: Array  # (rank, layer): largest minus least residual over restarts


class Tested(NamedTuple):
    """Results of the tests at one checkpoint."""

    values: dict[str, Array]  # frames on one axis: all kinds of each fit, in the order of FITS
    gradient_NPD: Array  # clouds for `gradient_panel`
    fitted: Fitted  # to the other windows


# Accelerators round the factors of float32 products to TF32 or bfloat16 by default.
@jax.default_matmul_precision("highest")
def fit_proxies(points_NPD: Array, tangents: TangentsConfig) -> Fitted:
    """Fit proxies of every rank to every layer; layers and restarts run one after another."""
    keys_A = jax.random.split(jax.random.key(tangents.seed), tangents.restarts)
    frames, measures = {}, []
    for rank in tangents.ranks:
        frames_NKDE, *rest = jax.lax.map(
            lambda x_PD, rank=rank: _fit_layer(x_PD, keys_A, rank, tangents.rounds), points_NPD
        )
        frames[rank] = jnp.swapaxes(frames_NKDE, 0, 1)
        measures.append(rest)
    return Fitted(frames, *(jnp.stack(parts) for parts in zip(*measures, strict=True)))


def _fit_layer(
    x_PD: Array, keys_A: Array, rank: int, rounds: int
) -> tuple[Array, Array, Array, Array]:
    factors_A = jax.lax.map(
        lambda key: tangent.semi_nmf(x_PD, tangent.initial_weights(x_PD, key, rank), rounds), keys_A
    )
    last_A = factors_A.residual_Y[:, -1]
    best = last_A.argmin()
    concept_ED, residual_Y = factors_A.concept_ED[best], factors_A.residual_Y[best]
    before = residual_Y[max(len(residual_Y) - 1 - LAST, 0)]
    frames = jnp.stack([tangent.orthonormal(concept_ED), tangent.principal_directions(x_PD, rank)])
    return frames, last_A[best], (before - last_A[best]) / before, last_A.max() - last_A.min()


def fit_and_test(
    cloud_NPD: Array,
    read: Gradients,
    windows: TangentWindows,
    basis_DD: np.ndarray,
    frames: dict[str, Frames],
    updates: dict[str, Rows],
    tangents: TangentsConfig,
) -> Tested:
    """Fit proxies to `cloud_NPD`, and test them and the proxies of other fits on `windows`.

    `basis_DD` are the columns in which states and gradients are expressed. `updates` are
    {"between": …, "step": …}, in the form of `Gradients.weights`.
    """
    fitted = fit_proxies(cloud_NPD, tangents)
    frames = frames | {"here": fitted.frames}
    matrices = {"gradient": read.weights} | updates
    matrix_NMDD = short_rows(matrices, basis_DD, len(cloud_NPD))
    by_rank = []
    for rank in tangents.ranks:
        fit_frames = jnp.stack([frames[name][rank] for name in FITS if name in frames])
        frames_NXDE = jnp.moveaxis(fit_frames, 2, 0)
        frames_NXDE = frames_NXDE.reshape(len(frames_NXDE), -1, *frames_NXDE.shape[3:])
        by_rank.append(_test_frames(read, frames_NXDE, matrix_NMDD, windows.bins_P, tangents))
    values = {name: jnp.stack([arrays[name] for arrays in by_rank]) for name in by_rank[0]}
    values |= describe_gradients(read, windows.bins_P, tangents)
    values |= local_energy(read, cloud_NPD, tangents)
    return Tested(values, read.gradient_NPD, fitted)


def describe_gradients(
    read: Gradients, bins_P: Array, tangents: TangentsConfig
) -> dict[str, Array]:
    """Describe gradients without any proxy: (…, R)."""
    weight_RJ = fold_weights(tangents.folds)
    weight_RJ = weight_RJ / weight_RJ.sum(axis=1, keepdims=True)

    def mean(x_J: Array) -> Array:
        """Average over the remaining folds, R last."""
        return jnp.moveaxis(jnp.tensordot(weight_RJ, x_J, 1), 0, -1)

    norm_NTR, square_NTR, total_NR = map(mean, (read.norm_JNT, read.square_JNT, read.total_JN))
    weight_IRP = _in_bins(bins_P)[:, None] * point_weights(tangents.folds, tangents.points)[None]
    weight_IRP = weight_IRP / weight_IRP.sum(axis=2, keepdims=True)
    norm_NP = jnp.linalg.norm(read.gradient_NPD, axis=2)
    return {
        "first_position_share": square_NTR[:, 0] / square_NTR.sum(axis=1),
        "first_position_norm": norm_NTR[:, 0] / jnp.median(norm_NTR, axis=1),
        "ones_share": mean(read.ones_JN) / total_NR,
        "radial_share": mean(read.radial_JN) / total_NR,
        "norm_in_bin": jnp.einsum("brp,np->nbr", weight_IRP, norm_NP),
        "loss_in_bin": jnp.einsum("brp,p->br", weight_IRP, read.loss_P),
    }


def _in_bins(bins_P: Array) -> Array:
    return bins_P[None] == jnp.arange(len(BINS))[:, None]


def _test_frames(
    read: Gradients,
    frames_NXDE: Array,
    matrix_NMDD: Array,
    bins_P: Array,
    tangents: TangentsConfig,
) -> dict[str, Array]:
    """Test every frame of one rank in every layer; layers run one after another."""
    keep_RP = point_weights(tangents.folds, tangents.points)
    in_bin_IP = _in_bins(bins_P)
    key = jax.random.key(tangents.seed)

    def test_layer(layer: tuple[Array, ...]) -> dict[str, Array]:
        points_PD, gradient_PD, matrix_MDD, frames_XDE = layer
        rows_GPD = jnp.stack([gradient_PD, unit_rows(gradient_PD)])

        def test_frame(frame_DE: Array) -> dict[str, Array]:
            others_UDE = tangent.random_frames(frame_DE, key, tangents.controls)
            values = _test_rows(frame_DE, others_UDE, points_PD, rows_GPD, keep_RP, key)
            return values | _test_matrices(frame_DE, others_UDE, matrix_MDD)

        # one after another: on a CPU, decompositions of many matrices at once can deadlock
        values = jax.lax.map(test_frame, frames_XDE)
        return values | jax.vmap(
            lambda frame_DE: energy_by_bin(frame_DE, points_PD, gradient_PD, keep_RP, in_bin_IP)
        )(frames_XDE)

    return jax.lax.map(test_layer, (read.points_NPD, read.gradient_NPD, matrix_NMDD, frames_NXDE))


def unit_rows(rows_PD: Array) -> Array:
    """Divide each row by its norm; 0 stays 0."""
    norm_P1 = jnp.linalg.norm(rows_PD, axis=1, keepdims=True)
    return jnp.where(norm_P1 > 0, rows_PD / jnp.where(norm_P1 > 0, norm_P1, 1.0), 0.0)


def _test_rows(
    frame_DE: Array,
    others_UDE: Array,
    points_PD: Array,
    rows_GPD: Array,
    keep_RP: Array,
    key: Array,
) -> dict[str, Array]:
    """Return a frame's energies, variance and controls, and IsoScore* of the complement."""

    def test_kind(rows_PD: Array) -> dict[str, Array]:
        energy_R = jax.vmap(lambda keep_P: tangent.energy_share(frame_DE, rows_PD, keep_P))(keep_RP)
        short_DD = jnp.linalg.qr(rows_PD, mode="r")  # the same second moments
        control_U = jax.vmap(lambda other_DE: tangent.energy_share(other_DE, short_DD))(others_UDE)
        covariance_RDD = jax.vmap(lambda keep_P: tangent.covariance(rows_PD, keep_P))(keep_RP)
        equal_UDE = tangent.equal_energy_frames(frame_DE, rows_PD.T @ rows_PD, key, len(others_UDE))
        empty = jnp.zeros((len(frame_DE), 0))

        def gain(other_DE: Array, covariance_DD: Array = covariance_RDD[0]) -> Array:
            """Return the gain of IsoScore* when a frame is removed."""
            whole = tangent.isoscore_outside(empty, covariance_DD)
            return tangent.isoscore_outside(other_DE, covariance_DD) - whole

        return {
            "energy": energy_R,
            "control_energy": control_U,
            "control_ratio": tangent.ratio(energy_R[0], control_U),
            "control_p": tangent.p_value(energy_R[0], control_U),
            "isoscore_gain": jax.vmap(lambda matrix_DD: gain(frame_DE, matrix_DD))(covariance_RDD),
            "isoscore_gain_normal": jax.vmap(gain)(others_UDE),
            "isoscore_gain_equal_energy": jax.vmap(gain)(equal_UDE),
        }

    share = jax.vmap(lambda keep_P: tangent.variance_share(frame_DE, points_PD, keep_P))
    return jax.lax.map(test_kind, rows_GPD) | {"variance": share(keep_RP)}


def _test_matrices(frame_DE: Array, others_UDE: Array, matrix_MDD: Array) -> dict[str, Array]:
    """Return energies of the matrices at a layer, (of, matrix), and p against random frames."""

    def test_matrix(short_DD: Array) -> tuple[Array, Array]:
        own = tangent.energy_share(frame_DE, short_DD)
        control_U = jax.vmap(lambda other_DE: tangent.energy_share(other_DE, short_DD))(others_UDE)
        return own, tangent.p_value(own, control_U)

    energy_M, p_M = jax.vmap(test_matrix)(matrix_MDD)
    shape = len(WEIGHT_CHANGES), len(MATRICES)
    return {"matrix_energy": energy_M.reshape(shape), "matrix_p": p_M.reshape(shape)}


def energy_by_bin(
    frame_DE: Array, points_PD: Array, gradient_PD: Array, keep_RP: Array, in_bin_IP: Array
) -> dict[str, Array]:
    """Return e and v of the points in each bin; NaN where a resample has fewer than two."""

    def test_points(keep_P: Array) -> tuple[Array, Array]:
        enough = keep_P.sum() > 1
        energy = tangent.energy_share(frame_DE, gradient_PD, keep_P)
        variance = tangent.variance_share(frame_DE, points_PD, keep_P)
        return tuple(jnp.where(enough, value, jnp.nan) for value in (energy, variance))

    energy_IR, variance_IR = jax.vmap(jax.vmap(test_points))(in_bin_IP[:, None] * keep_RP[None])
    return {"energy_in_bin": energy_IR, "variance_in_bin": variance_IR}


def local_energy(read: Gradients, cloud_NPD: Array, tangents: TangentsConfig) -> dict[str, Array]:
    """Return e and v of local tangents at the first points of each fold, (rank, layer, G, R).

    A local tangent spans neighbors among the points that proxies are fitted to. Points whose
    neighbors vary in fewer directions do not count; NaN where no point does.
    """
    share, at = tangents.local_points // tangents.folds, jnp.asarray(tangents.ranks) - 1
    keep_RP = point_weights(tangents.folds, tangents.local_points)

    def first_points(x_PD: Array) -> Array:
        x_JQD = x_PD.reshape(tangents.folds, -1, x_PD.shape[1])
        return x_JQD[:, :share].reshape(-1, x_PD.shape[1])

    def test_layer(layer: tuple[Array, Array, Array]) -> dict[str, Array]:
        points_PD, gradient_PD, among_PD = first_points(layer[0]), first_points(layer[1]), layer[2]
        local_tangents = tangent.local_tangent(
            points_PD, gradient_PD, among_PD, tangents.neighbors, tangents.ranks[-1]
        )
        known_PA = local_tangents.known_PE[:, at]
        inside_PA, share_PA = local_tangents.inside_PE[:, at], local_tangents.share_PE[:, at]
        square_P = jnp.square(gradient_PD).sum(axis=1)
        weight_GP = jnp.stack([square_P, (square_P > 0).astype(jnp.float32)])
        unit_PA = inside_PA / jnp.where(square_P > 0, square_P, 1.0)[:, None]
        inside_GPA = jnp.stack([inside_PA, unit_PA])
        total_AGR = jnp.einsum("rp,gp,pa->agr", keep_RP, weight_GP, known_PA)
        energy_AGR = jnp.einsum("rp,gpa,pa->agr", keep_RP, inside_GPA, known_PA)
        variance_AGR = jnp.einsum("rp,gp,pa->agr", keep_RP, weight_GP, share_PA * known_PA)
        return {
            "local_energy": energy_AGR / total_AGR,
            "local_variance": variance_AGR / total_AGR,
        }

    values = jax.lax.map(test_layer, (read.points_NPD, read.gradient_NPD, cloud_NPD))
    return {name: jnp.swapaxes(value, 0, 1) for name, value in values.items()}


@jax.enable_x64(False)
def gradient_panel(
    gradient_NPD: np.ndarray, windows: TangentWindows, tangents: TangentsConfig
) -> dict[str, Values]:
    """Measure gradients as clouds, {rows: {quantity: (layer, …, R)}}."""
    if not tangents.families:
        return {}
    context = windows.tokens_JWT.shape[2]
    folds = cut_runs(np.arange(tangents.points), tangents.folds)
    window_P = folds.fold_P * windows.tokens_JWT.shape[1] + np.ravel(windows.picks_JQ) // context
    layout = lay_out(folds, TokenPositions(window_P, np.asarray(windows.time_P)), exact=True)
    clouds = {"raw": gradient_NPD, "unit": np.asarray(jax.vmap(unit_rows)(gradient_NPD))}

    def measure(x_NPD: np.ndarray) -> Values:
        selection, key = Selection(tangents.families, ()), jax.random.key(tangents.seed)
        numbers = range(len(x_NPD))
        found = measure_clouds(x_NPD, layout, folds, selection, key, numbers, lambda takes: None)
        return found.values[MEASURED]

    return {rows: measure(x_NPD) for rows, x_NPD in clouds.items()}
