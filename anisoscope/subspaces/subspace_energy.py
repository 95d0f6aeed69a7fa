"""What is said of gradients on the windows: by themselves, in the proxies, and beside their
controls.

Arrays carry the letters of `models`; P points in J folds, R = 1 + J resamples, X frames (every fit
of every kind), U control frames, G kinds of rows (raw, then unit), M matrices, I bins of log
frequency, Q points of a fold; A goes from 1 to the rank of a local tangent.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.tangents_config import TangentsConfig
from anisoscope.data.unigrams import BINS
from anisoscope.measurement.panel import Sample, panel
from anisoscope.measurement.resampling import Places, leave_out
from anisoscope.metrics import tangent
from anisoscope.metrics.cloud import leave_out as folds_left
from anisoscope.subspaces import weight_gradients
from anisoscope.subspaces.gradient_inputs import Read, Windows

ROWS = ("raw", "unit")  # gradients as they are, and each over its norm


def of_gradients(read_now: Read, bins_P: Array, tangents: TangentsConfig) -> dict[str, Array]:
    """What is said of gradients without any proxy: (…, R)."""
    weight_RJ = folds_left(tangents.folds)
    weight_RJ = weight_RJ / weight_RJ.sum(axis=1, keepdims=True)

    def over(x_J: Array) -> Array:
        """Means over the folds that are left, R last."""
        return jnp.moveaxis(jnp.tensordot(weight_RJ, x_J, 1), 0, -1)

    norm_NTR, square_NTR, total_NR = (
        over(read_now.norm_JNT),
        over(read_now.square_JNT),
        over(read_now.total_JN),
    )
    weight_IRP = _in_bins(bins_P)[:, None] * leave_out(tangents.folds, tangents.points)[None]
    weight_IRP = weight_IRP / weight_IRP.sum(axis=2, keepdims=True)
    norm_NP = jnp.linalg.norm(read_now.gradient_NPD, axis=2)
    return {
        "first_position_share": square_NTR[:, 0] / square_NTR.sum(axis=1),
        "first_position_norm": norm_NTR[:, 0] / jnp.median(norm_NTR, axis=1),
        "ones_share": over(read_now.ones_JN) / total_NR,
        "radial_share": over(read_now.radial_JN) / total_NR,
        "norm_in_bin": jnp.einsum("brp,np->nbr", weight_IRP, norm_NP),
        "loss_in_bin": jnp.einsum("brp,p->br", weight_IRP, read_now.loss_P),
    }


def _in_bins(bins_P: Array) -> Array:
    return bins_P[None] == jnp.arange(len(BINS))[:, None]


def of_rank(
    read_now: Read,
    frames_NXDE: Array,
    matrix_NMDD: Array,
    bins_P: Array,
    tangents: TangentsConfig,
) -> dict[str, Array]:
    """Every frame of one rank in every layer; layers go one after another."""
    keep_RP = leave_out(tangents.folds, tangents.points)
    in_bin_IP = _in_bins(bins_P)
    key = jax.random.key(tangents.seed)

    def of_layer(given: tuple[Array, ...]) -> dict[str, Array]:
        points_PD, gradient_PD, matrix_MDD, frames_XDE = given
        rows_GPD = jnp.stack([gradient_PD, unit(gradient_PD)])

        def of(frame_DE: Array) -> dict[str, Array]:
            others_UDE = tangent.random_frames(frame_DE, key, tangents.controls)
            measures = of_frame(frame_DE, others_UDE, points_PD, rows_GPD, keep_RP, key)
            return measures | of_matrices(frame_DE, others_UDE, matrix_MDD)

        # one after another: on a CPU, decompositions of many matrices at once can wait for each
        # other for ever
        values = jax.lax.map(of, frames_XDE)
        binned = jax.vmap(
            lambda frame_DE: of_bins(frame_DE, points_PD, gradient_PD, keep_RP, in_bin_IP)
        )(frames_XDE)
        return values | binned

    return jax.lax.map(
        of_layer, (read_now.points_NPD, read_now.gradient_NPD, matrix_NMDD, frames_NXDE)
    )


def unit(rows_PD: Array) -> Array:
    """Each over its norm; 0 stays 0."""
    norm_P1 = jnp.linalg.norm(rows_PD, axis=1, keepdims=True)
    return jnp.where(norm_P1 > 0, rows_PD / jnp.where(norm_P1 > 0, norm_P1, 1.0), 0.0)


def of_frame(
    frame_DE: Array,
    others_UDE: Array,
    points_PD: Array,
    rows_GPD: Array,
    keep_RP: Array,
    key: Array,
) -> dict[str, Array]:
    """One frame in one layer: energies, what the activations explain, controls, and IsoScore* of
    what is left.
    """

    def of_rows(rows_PD: Array) -> dict[str, Array]:
        energy_R = jax.vmap(lambda keep_P: tangent.energy(frame_DE, rows_PD, keep_P))(keep_RP)
        # D rows of the same second moments, for many frames
        short_DD = jnp.linalg.qr(rows_PD, mode="r")
        control_U = jax.vmap(lambda other_DE: tangent.energy(other_DE, short_DD))(others_UDE)
        covariance_RDD = jax.vmap(lambda keep_P: tangent.covariance(rows_PD, keep_P))(keep_RP)
        alike_UDE = tangent.equal_energy_frames(frame_DE, rows_PD.T @ rows_PD, key, len(others_UDE))
        whole = jnp.zeros((len(frame_DE), 0))

        def left(other_DE: Array, covariance_DD: Array = covariance_RDD[0]) -> Array:
            """What removing a frame adds to IsoScore*."""
            return tangent.isoscore_outside(other_DE, covariance_DD) - tangent.isoscore_outside(
                whole, covariance_DD
            )

        return {
            "energy": energy_R,
            "control_energy": control_U,
            "control_ratio": tangent.ratio(energy_R[0], control_U),
            "control_p": tangent.p_value(energy_R[0], control_U),
            "isoscore_gain": jax.vmap(lambda covariance_DD: left(frame_DE, covariance_DD))(
                covariance_RDD
            ),
            "isoscore_gain_normal": jax.vmap(left)(others_UDE),
            "isoscore_gain_equal_energy": jax.vmap(left)(alike_UDE),
        }

    variance_R = jax.vmap(lambda keep_P: tangent.variance_share(frame_DE, points_PD, keep_P))(
        keep_RP
    )
    return jax.lax.map(of_rows, rows_GPD) | {"variance": variance_R}


def of_matrices(frame_DE: Array, others_UDE: Array, matrix_MDD: Array) -> dict[str, Array]:
    """Energies of gradients and updates of what reads or writes this layer, (of, matrix); p beside
    random frames.
    """

    def of(short_DD: Array) -> tuple[Array, Array]:
        own = tangent.energy(frame_DE, short_DD)
        control_U = jax.vmap(lambda other_DE: tangent.energy(other_DE, short_DD))(others_UDE)
        return own, tangent.p_value(own, control_U)

    energy_M, p_M = jax.vmap(of)(matrix_MDD)
    shape = len(weight_gradients.OF), len(weight_gradients.MATRICES)
    return {"matrix_energy": energy_M.reshape(shape), "matrix_p": p_M.reshape(shape)}


def of_bins(
    frame_DE: Array, points_PD: Array, gradient_PD: Array, keep_RP: Array, in_bin_IP: Array
) -> dict[str, Array]:
    """e and v of the points in each bin of log frequency; NaN where a resample has fewer than
    two.
    """

    def of(keep_P: Array) -> tuple[Array, Array]:
        enough = keep_P.sum() > 1
        both = (
            tangent.energy(frame_DE, gradient_PD, keep_P),
            tangent.variance_share(frame_DE, points_PD, keep_P),
        )
        return tuple(jnp.where(enough, one, jnp.nan) for one in both)

    energy_IR, variance_IR = jax.vmap(jax.vmap(of))(in_bin_IP[:, None] * keep_RP[None])
    return {"energy_in_bin": energy_IR, "variance_in_bin": variance_IR}


def of_local(read_now: Read, cloud_NPD: Array, tangents: TangentsConfig) -> dict[str, Array]:
    """e and v of the local tangents at the first points of each fold, among those that proxies are
    fitted to.
    """
    share, at = tangents.local_points // tangents.folds, jnp.asarray(tangents.ranks) - 1
    keep_RP = leave_out(tangents.folds, tangents.local_points)

    def some(x_PD: Array) -> Array:
        return x_PD.reshape(tangents.folds, -1, x_PD.shape[1])[:, :share].reshape(-1, x_PD.shape[1])

    def of_layer(given: tuple[Array, Array, Array]) -> dict[str, Array]:
        points_PD, gradient_PD, among_PD = some(given[0]), some(given[1]), given[2]
        local_tangents = tangent.local_tangent(
            points_PD, gradient_PD, among_PD, tangents.neighbours, tangents.ranks[-1]
        )
        inside_PA, share_PA = local_tangents.inside_PE[:, at], local_tangents.share_PE[:, at]
        square_P = jnp.square(gradient_PD).sum(axis=1)
        weight_GP = jnp.stack([square_P, (square_P > 0).astype(jnp.float32)])
        inside_GPA = jnp.stack(
            [inside_PA, inside_PA / jnp.where(square_P > 0, square_P, 1.0)[:, None]]
        )
        total_GR = weight_GP @ keep_RP.T
        return {
            "local_energy": jnp.einsum("rp,gpa->agr", keep_RP, inside_GPA) / total_GR[None],
            "local_variance": jnp.einsum("rp,gp,pa->agr", keep_RP, weight_GP, share_PA)
            / total_GR[None],
        }

    values = jax.lax.map(of_layer, (read_now.points_NPD, read_now.gradient_NPD, cloud_NPD))
    # (rank, layer, rows, R)
    return {name: jnp.swapaxes(value, 0, 1) for name, value in values.items()}


def gradient_panel(
    read_now: Read, windows: Windows, tangents: TangentsConfig
) -> dict[str, dict[str, Array]]:
    """Gradients as clouds through the panel's families."""
    if not tangents.families:
        return {}
    settings = MeasureConfig(
        points=tangents.points,
        batches=1,
        folds=tangents.folds,
        families=tangents.families,
        nulls=(),
        seed=tangents.seed,
    )
    context, share = windows.tokens_JWT.shape[2], tangents.points // tangents.folds
    fold_P = np.arange(tangents.points) // share
    window_P = fold_P * windows.tokens_JWT.shape[1] + windows.picks_JQ.reshape(-1) // context
    places = Places(window_P, windows.time_P)
    clouds = {"measured": read_now.gradient_NPD, "unit": jax.vmap(unit)(read_now.gradient_NPD)}
    samples = {name: Sample(cloud_NPD, places=places) for name, cloud_NPD in clouds.items()}
    panels = panel(samples, {}, settings, jax.random.key(tangents.seed))
    return {"raw": panels["measured"], "unit": panels["unit"]}
