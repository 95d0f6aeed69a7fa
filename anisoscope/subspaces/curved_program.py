"""Compute a linear probe's gradient on points of curved manifolds, in one compiled program.

Arrays carry the letters of `models`, and S settings (one per spread, or per bias), V types, E
tangent coordinates, Y targets, X weightings.

The predictions are leading orders in the spread t about a base point.

A point is x = t u + (t^2 / 2) II(u, u) + O(t^3) about the base point, u normal in the tangent space
of dimension k, II the second fundamental form. The probe W = 0 has the error e = -y, and the
gradient E[e x]. Its parts inside the tangent space and normal to it are

    |tangent| = t |E[y u]|,    |normal| = (t^2 / 2) |E[y II(u, u)]|.

Two targets. "by direction": y = 1 + sqrt(k) <a, u/|u|>, |a| = 1, a bounded error that depends on
the direction: E[y u] = a E|u| / sqrt(k), and of the even part E[y II(u, u)] = tr II E|u|^2 / k. So
norms follow t and t^2, energies t^2 and t^4. "constant": y = -1: E[y u] = 0 by symmetry whatever t
is, and all of the gradient is normal: bounds of order t and t^2 do not bound a ratio. The law is a
reconstruction after Bernas et al. 2026; the counter-example is this project's.

Frequency. A type at t u is drawn in proportion to exp(-b |u|^2 / 2): the draws are normal with
spread t / sqrt(1 + b).
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from anisoscope.config.untrained_config import CurvedConfig

TARGETS = ("by direction", "constant")
WEIGHTINGS = ("none", "types")  # equal weight for every draw, or for every type drawn
TUBE = 2.0  # the torus's large radius over that of its tube
# slopes in ln t, by the law
SLOPES = {"tangent_norm": 1, "normal_norm": 2, "tangent_energy": 2, "normal_energy": 4}
Values = dict[str, Array]
Surface = Callable[[Array, Array], tuple[Array, Array]]


class ManifoldDraw(NamedTuple):
    """What a seed fixes for one manifold and curvature, in float32."""

    v_SVE: np.ndarray  # points t u, in pairs u and -u
    y_SYV: np.ndarray
    weight_SXV: np.ndarray  # weights of the types, which sum to 1
    turn_DD: np.ndarray  # first columns: the tangent space; next column: the normal


def draw_manifold(config: CurvedConfig, *seeds: int) -> ManifoldDraw:
    """Draw points and targets of one manifold and curvature.

    Each spread and each bias has separate points, targets and draws, so their errors are
    independent.
    """
    rng = np.random.default_rng(seeds)
    spreads = np.array([*config.spreads, *[config.biased_spread] * len(config.biases)])
    half_SVE = rng.normal(size=(len(spreads), config.types // 2, config.dimension))
    u_SVE = np.concatenate([half_SVE, -half_SVE], axis=1)
    towards_SE = rng.normal(size=(len(spreads), config.dimension))
    towards_SE /= np.linalg.norm(towards_SE, axis=1, keepdims=True)
    unit_SVE = u_SVE / np.linalg.norm(u_SVE, axis=2, keepdims=True)
    cosine_SV = np.einsum("smk,sk->sm", unit_SVE, towards_SE)
    y_SYV = np.stack([1 + config.dimension**0.5 * cosine_SV, -np.ones_like(cosine_SV)], axis=1)
    count_SV = np.ones_like(cosine_SV)  # comparing spreads counts every point once
    for number, bias in enumerate(config.biases, len(config.spreads)):
        log_V = -bias * np.square(u_SVE[number]).sum(axis=1) / 2
        frequency_V = np.exp(log_V - log_V.max())  # avoids underflow in many dimensions
        count_SV[number] = rng.multinomial(config.draws, frequency_V / frequency_V.sum())
    weight_SXV = np.stack([count_SV, count_SV > 0], axis=1)
    weight_SXV = weight_SXV / weight_SXV.sum(axis=2, keepdims=True)
    turn_DD = np.linalg.qr(rng.normal(size=(config.width, config.width)))[0]
    return ManifoldDraw(
        *map(np.float32, (spreads[:, None, None] * u_SVE, y_SYV, weight_SXV, turn_DD))
    )


def energies(config: CurvedConfig) -> dict[str, np.ndarray]:
    """Measure every quantity, an array of CURVED_AXES; settings are the spreads, then the biases."""
    curvatures = np.float32(config.curvatures)

    @jax.jit
    def program(draws: list[ManifoldDraw]) -> Values:
        values = [
            jax.vmap(functools.partial(measure_cell, SURFACES[manifold]))(cell_draws, curvatures)
            for manifold, cell_draws in zip(config.manifolds, draws, strict=True)
        ]
        return jax.tree.map(lambda *manifolds: jnp.stack(manifolds), *values)

    by_seed = []  # one seed after another: it takes the memory of one seed
    for seed in range(config.seed, config.seed + config.seeds):
        draws = [
            _stack([draw_manifold(config, seed, number, cell) for cell in range(len(curvatures))])
            for number in range(len(config.manifolds))
        ]
        by_seed.append(jax.device_get(program(draws)))
    return _stack(by_seed)


def _stack(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def measure_cell(surface: Surface, sample: ManifoldDraw, curvature: Array) -> Values:
    """Measure one manifold and curvature, arrays (S, X, Y)."""
    surface_S = jax.vmap(surface, (0, None))(sample.v_SVE, curvature)
    measure = jax.vmap(measure_weighting, (None, None, None, 0))
    measure = jax.vmap(measure, (None, 0, 0, 0))
    return measure(sample.turn_DD, surface_S, sample.y_SYV, sample.weight_SXV)


# Accelerators round the factors of float32 products to TF32 or bfloat16 by default.
@jax.default_matmul_precision("highest")
def measure_weighting(
    turn_DD: Array, surface: tuple[Array, Array], y_YV: Array, weight_V: Array
) -> Values:
    """Measure dL/dW of L = E[(W x - y)^2] / 2 at W = 0, arrays (Y,).

    The gradient is split into parts in the tangent space and normal to it. The share of the points'
    variance that is normal is measured too.
    """
    tangent_VE, normal_V = surface
    basis_DE = turn_DD[:, : tangent_VE.shape[1]]
    x_VD = tangent_VE @ basis_DE.T + normal_V[:, None] * turn_DD[:, tangent_VE.shape[1]][None]

    def loss(probe_D: Array, y_V: Array) -> Array:
        return 0.5 * (weight_V * jnp.square(x_VD @ probe_D - y_V)).sum()

    gradient_YD = jax.vmap(jax.grad(loss), (None, 0))(jnp.zeros(len(turn_DD)), y_YV)
    inside_YD = gradient_YD @ basis_DE @ basis_DE.T
    centered_VD = x_VD - (weight_V @ x_VD)[None]
    within_VD = centered_VD @ basis_DE @ basis_DE.T
    in_tangent, in_normal = (
        weight_V @ jnp.square(part).sum(axis=1) for part in (within_VD, centered_VD - within_VD)
    )
    return {
        "tangent_norm": jnp.linalg.norm(inside_YD, axis=1),
        "normal_norm": jnp.linalg.norm(gradient_YD - inside_YD, axis=1),
        "normal_variance_share": jnp.full(len(y_YV), in_normal / (in_normal + in_tangent)),
    }


def paraboloid(v_VE: Array, curvature: Array) -> tuple[Array, Array]:
    """Return tangent coordinates and height of points over v."""
    return v_VE, curvature * jnp.square(v_VE).sum(axis=1) / 2


def sphere(v_VE: Array, curvature: Array) -> tuple[Array, Array]:
    """Return the end of the geodesic that begins as v; 1 - cos is computed from the half angle."""
    angle_V = curvature * jnp.sqrt(jnp.square(v_VE).sum(axis=1))
    height_V = 2 * jnp.square(jnp.sin(angle_V / 2)) / curvature
    return v_VE * jnp.sinc(angle_V / jnp.pi)[:, None], height_V


def torus(v_VE: Array, curvature: Array) -> tuple[Array, Array]:
    """Return the point at angles v_1 / (R + r) and v_2 / r from the outer equator.

    The radii are r = 1/curvature and R = 2 r.
    """
    tube = 1 / curvature
    outer = (1 + TUBE) * tube
    around_V, across_V = v_VE[:, 0] / outer, v_VE[:, 1] / tube
    fall_around_V, fall_across_V = (
        2 * jnp.square(jnp.sin(angle_V / 2)) for angle_V in (around_V, across_V)
    )
    radius_V = outer - tube * fall_across_V
    tangent_VE = jnp.stack([radius_V * jnp.sin(around_V), tube * jnp.sin(across_V)], axis=1)
    return tangent_VE, tube * fall_across_V * jnp.cos(around_V) + outer * fall_around_V


SURFACES = {"paraboloid": paraboloid, "sphere": sphere, "torus": torus}
# axes of the measured arrays
CURVED_AXES = ("seed", "manifold", "curvature", "setting", "weighting", "target")


def principal_curvatures(manifold: str, curvature: float, dimension: int) -> np.ndarray:
    """Return the principal curvatures at the base point; for a torus, at its outer equator."""
    if manifold == "torus":
        return np.array([curvature, curvature / (1 + TUBE)])
    return np.full(dimension, curvature)


def predict_over_spread(
    config: CurvedConfig, manifold: str, curvature: float, target: str, spread: float
) -> dict[str, float]:
    """Return leading orders in the spread t; the constant target has no tangent part."""
    k, bent = config.dimension, principal_curvatures(manifold, curvature, config.dimension)
    mean_radius = math.sqrt(2) * math.exp(math.lgamma((k + 1) / 2) - math.lgamma(k / 2))  # E |u|
    tangent = spread * mean_radius / math.sqrt(k) if target == "by direction" else 0.0
    # variances of the points: normal t^4/4 Var II(u, u) = t^4/2 sum of squares, tangent k t^2
    variance = spread**4 / 2 * np.square(bent).sum()
    share = variance / (variance + k * spread**2)
    return _energies(tangent, spread**2 / 2 * abs(bent.sum())) | {"normal_variance_share": share}


def predict_over_bias(
    config: CurvedConfig, manifold: str, curvature: float, weighting: str, bias: float
) -> dict[str, float]:
    """Return leading orders for types drawn by frequency, or for each expected type once."""
    k, spread = config.dimension, config.biased_spread
    bent = principal_curvatures(manifold, curvature, k)
    radius_R = np.linspace(0, math.sqrt(k) + 12, 20_001)[
        1:
    ]  # |u|, for integrals without a closed form
    # log of the relative frequency of a type, 1 on average
    log_frequency_R = k / 2 * math.log1p(bias) - bias * radius_R**2 / 2
    if weighting == "types":  # probability that a type is drawn at all
        with np.errstate(over="ignore", divide="ignore"):  # probabilities of 1 or 0
            often_R = np.exp(log_frequency_R + math.log(config.draws / config.types))
            log_frequency_R = np.log(-np.expm1(-often_R))
    log_weight_R = log_frequency_R + (k - 1) * np.log(radius_R) - radius_R**2 / 2
    weight_R = np.exp(log_weight_R - log_weight_R.max())
    first, second, fourth = (np.average(radius_R**power, weights=weight_R) for power in (1, 2, 4))
    normal = spread**2 / 2 * abs(bent.sum()) * second / k
    # E of the form squared, over |u|^4
    products = (2 * np.square(bent).sum() + bent.sum() ** 2) / (k * (k + 2))
    variance = spread**4 / 4 * (products * fourth - (bent.sum() * second / k) ** 2)
    share = variance / (variance + spread**2 * second)
    return _energies(spread * first / math.sqrt(k), normal) | {"normal_variance_share": share}


def _energies(tangent: float, normal: float) -> dict[str, float]:
    return {
        "tangent_norm": tangent,
        "normal_norm": normal,
        "tangent_energy": tangent**2,
        "normal_energy": normal**2,
        "normal_share": normal**2 / (tangent**2 + normal**2),
    }
