"""Predict how the curvature of a manifold changes a linear probe's gradient.

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

import math

import numpy as np

from anisoscope.config.curved_config import CurvedConfig

TARGETS = ("by direction", "constant")
WEIGHTINGS = ("none", "types")  # equal weight for every draw, or for every type drawn
TUBE = 2.0  # the torus's large radius over that of its tube
# slopes in ln t, by the law
SLOPES = {"tangent_norm": 1, "normal_norm": 2, "tangent_energy": 2, "normal_energy": 4}


def principal(manifold: str, curvature: float, dimension: int) -> np.ndarray:
    """Return the principal curvatures at the base point; for a torus, at its outer equator."""
    if manifold == "torus":
        return np.array([curvature, curvature / (1 + TUBE)])
    return np.full(dimension, curvature)


def predict_over_spread(
    config: CurvedConfig, manifold: str, curvature: float, target: str, spread: float
) -> dict[str, float]:
    """Return leading orders in the spread t; the constant target has no tangent part."""
    k, bent = config.dimension, principal(manifold, curvature, config.dimension)
    mean_radius = math.sqrt(2) * math.exp(math.lgamma((k + 1) / 2) - math.lgamma(k / 2))  # E |u|
    tangent = spread * mean_radius / math.sqrt(k) if target == "by direction" else 0.0
    # of the points: normal t^4/4 Var II(u, u) = t^4/2 sum of squares, tangent k t^2
    variance = spread**4 / 2 * np.square(bent).sum()
    share = variance / (variance + k * spread**2)
    return _energies(tangent, spread**2 / 2 * abs(bent.sum())) | {"normal_variance_share": share}


def predict_over_bias(
    config: CurvedConfig, manifold: str, curvature: float, weighting: str, bias: float
) -> dict[str, float]:
    """Return leading orders for types drawn by frequency, or for each expected type once."""
    k, spread = config.dimension, config.biased_spread
    bent = principal(manifold, curvature, k)
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
