"""Points of curved manifolds and a linear probe's gradient on them: one compiled program for all seeds and settings.

Arrays carry the letters of `models`, and S settings (a spread each, or a bias), M types, K tangent coordinates, Y
targets, W weightings.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from anisoscope.config.curved import CurvedConfig
from anisoscope.tangents.curved.theory import TUBE

Values = dict[str, Array]


class Draw(NamedTuple):
    """What a seed fixes for one manifold and curvature, in float32."""

    v_SMK: np.ndarray  # t u, in pairs u and -u
    y_SYM: np.ndarray
    weight_SWM: np.ndarray  # of every type, adding up to 1
    turn_DD: np.ndarray  # its first columns are the tangent space, the next one the normal


def draw(config: CurvedConfig, *seeds: int) -> Draw:
    """Each spread and each bias has points, target and draws of its own: their errors are independent."""
    rng = np.random.default_rng(seeds)
    spreads = np.array([*config.spreads, *[config.biased_spread] * len(config.biases)])
    half_SMK = rng.normal(size=(len(spreads), config.types // 2, config.dimension))
    u_SMK = np.concatenate([half_SMK, -half_SMK], axis=1)
    towards_SK = rng.normal(size=(len(spreads), config.dimension))
    towards_SK /= np.linalg.norm(towards_SK, axis=1, keepdims=True)
    cosine_SM = np.einsum("smk,sk->sm", u_SMK / np.linalg.norm(u_SMK, axis=2, keepdims=True), towards_SK)
    y_SYM = np.stack([1 + config.dimension**0.5 * cosine_SM, -np.ones_like(cosine_SM)], axis=1)
    count_SM = np.ones_like(cosine_SM)  # where spreads are compared, every point once
    for number, bias in enumerate(config.biases, len(config.spreads)):
        log_M = -bias * np.square(u_SMK[number]).sum(axis=1) / 2
        frequency_M = np.exp(log_M - log_M.max())  # in many dimensions all of them would underflow
        count_SM[number] = rng.multinomial(config.draws, frequency_M / frequency_M.sum())
    weight_SWM = np.stack([count_SM, count_SM > 0], axis=1)
    weight_SWM = weight_SWM / weight_SWM.sum(axis=2, keepdims=True)
    turn_DD = np.linalg.qr(rng.normal(size=(config.width, config.width)))[0]
    return Draw(*map(np.float32, (spreads[:, None, None] * u_SMK, y_SYM, weight_SWM, turn_DD)))


def measure(config: CurvedConfig) -> dict[str, np.ndarray]:
    """Every quantity, an array of AXES in float32; settings are the spreads, then the biases."""
    curvatures, cells = np.float32(config.curvatures), range(len(config.curvatures))

    @jax.jit
    def program(draws: list[Draw]) -> Values:
        found = [
            jax.vmap(functools.partial(of_cell, SURFACES[manifold]))(drawn, curvatures)
            for manifold, drawn in zip(config.manifolds, draws, strict=True)
        ]
        return jax.tree.map(lambda *of_manifolds: jnp.stack(of_manifolds), *found)

    def of_seed(seed: int) -> Values:
        """One seed after another: so much memory is that of one."""
        drawn = [[draw(config, seed, number, cell) for cell in cells] for number in range(len(config.manifolds))]
        return program([jax.tree.map(lambda *leaves: np.stack(leaves), *each) for each in drawn])

    seeds = range(config.seed, config.seed + config.seeds)
    return jax.tree.map(lambda *leaves: np.stack(leaves), *map(jax.device_get, map(of_seed, seeds)))


def of_cell(surface: Callable[[Array, Array], tuple[Array, Array]], one: Draw, curvature: Array) -> Values:
    """Of one manifold and curvature, arrays (S, W, Y)."""

    def of_setting(v_MK: Array, y_YM: Array, weight_WM: Array) -> Values:
        return gradients(one.turn_DD, surface(v_MK, curvature), y_YM, weight_WM)

    return jax.vmap(of_setting)(one.v_SMK, one.y_SYM, one.weight_SWM)


# Accelerators round the factors of float32 products to TF32 or bfloat16 unless told not to.
@jax.default_matmul_precision("highest")
def gradients(turn_DD: Array, surface: tuple[Array, Array], y_YM: Array, weight_WM: Array) -> Values:
    """Arrays (W, Y): dL/dW of L = E[(W x - y)^2] / 2 at W = 0, in the tangent space and normal to it; and variances."""
    tangent_MK, normal_M = surface
    basis_DK = turn_DD[:, : tangent_MK.shape[1]]
    x_MD = tangent_MK @ basis_DK.T + normal_M[:, None] * turn_DD[:, tangent_MK.shape[1]][None]

    def of_weights(weight_M: Array) -> Values:
        def loss(probe_D: Array, y_M: Array) -> Array:
            return 0.5 * (weight_M * jnp.square(x_MD @ probe_D - y_M)).sum()

        gradient_YD = jax.vmap(jax.grad(loss), (None, 0))(jnp.zeros(len(turn_DD)), y_YM)
        inside_YD = gradient_YD @ basis_DK @ basis_DK.T
        centred_MD = x_MD - (weight_M @ x_MD)[None]
        within_MD = centred_MD @ basis_DK @ basis_DK.T
        in_tangent, in_normal = (
            weight_M @ jnp.square(part).sum(axis=1) for part in (within_MD, centred_MD - within_MD)
        )
        share = in_normal / (in_normal + in_tangent)
        return {
            "tangent_norm": jnp.linalg.norm(inside_YD, axis=1),
            "normal_norm": jnp.linalg.norm(gradient_YD - inside_YD, axis=1),
            "normal_variance_share": jnp.full(len(y_YM), share),
        }

    return jax.vmap(of_weights)(weight_WM)


def paraboloid(v_MK: Array, curvature: Array) -> tuple[Array, Array]:
    """Tangent coordinates and height of points over v."""
    return v_MK, curvature * jnp.square(v_MK).sum(axis=1) / 2


def sphere(v_MK: Array, curvature: Array) -> tuple[Array, Array]:
    """At the end of the geodesic that begins as v. 1 - cos by the sine of the half angle, which loses no digits."""
    angle_M = curvature * jnp.sqrt(jnp.square(v_MK).sum(axis=1))
    return v_MK * jnp.sinc(angle_M / jnp.pi)[:, None], 2 * jnp.square(jnp.sin(angle_M / 2)) / curvature


def torus(v_MK: Array, curvature: Array) -> tuple[Array, Array]:
    """At angles v_1 / (R + r) and v_2 / r from the outer equator; r = 1/curvature, R = 2 r."""
    tube = 1 / curvature
    outer = (1 + TUBE) * tube
    around_M, across_M = v_MK[:, 0] / outer, v_MK[:, 1] / tube
    fall_around_M, fall_across_M = (2 * jnp.square(jnp.sin(angle_M / 2)) for angle_M in (around_M, across_M))
    radius_M = outer - tube * fall_across_M
    tangent_MK = jnp.stack([radius_M * jnp.sin(around_M), tube * jnp.sin(across_M)], axis=1)
    return tangent_MK, tube * fall_across_M * jnp.cos(around_M) + outer * fall_around_M


SURFACES = {"paraboloid": paraboloid, "sphere": sphere, "torus": torus}
AXES = ("seed", "manifold", "curvature", "setting", "weighting", "target")  # of what is measured
