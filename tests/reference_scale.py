"""Plain NumPy float64 twins of metrics/scale.py, from the formulas: likelihoods maximised, loops over points."""

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import beta

from tests.reference import distinct_points, float64, sorted_distances, twonn


def distances(cloud):
    """Of every distinct point the sorted distances to all the others."""
    return sorted_distances(distinct_points(cloud))[:, :-1]


def gride(near, first):
    """By the likelihood itself, maximised over ln d; mu^d - 1 as mu^d (1 - mu^-d), lest it overflow."""
    n1, n2 = first, 2 * first
    mu = near[:, n2 - 1] / near[:, n1 - 1]

    def loss(log_d):
        d = np.exp(log_d)
        log_power = d * np.log(mu) + np.log(-np.expm1(-d * np.log(mu)))
        log_f = log_d + (n2 - n1 - 1) * log_power - ((n2 - 1) * d + 1) * np.log(mu) - np.log(beta(n2 - n1, n1))
        return -log_f.mean()

    return np.exp(minimize_scalar(loss, bounds=np.log([0.01, 1e4]), method="bounded", options={"xatol": 1e-9}).x)


def inverse_dimensions(near, count, divisor):
    """sum_{j<k} ln(T_k/T_j) / divisor, point by point."""
    return np.array([np.log(t[count - 1] / t[: count - 1]).sum() / divisor for t in near])


def levina_bickel(near, count=20):
    return 1 / inverse_dimensions(near, count, count - 1).mean()


def local_dimensions(near, count=20):
    return 1 / inverse_dimensions(near, count, count - 2)


def decimation(cloud, factor):
    points = len(cloud) // factor
    return np.mean([twonn(float64(cloud)[start::factor][:points]) for start in range(factor)])


def plateau(curve, tolerance=1.1):
    """Geometric mean, first and last; run by run, the first of the best."""
    best = (0, -np.inf), (np.nan, np.nan, np.nan)
    for first in range(len(curve)):
        for last in range(first + 2, len(curve)):
            run = curve[first : last + 1]
            if np.isfinite(run).all() and run.max() / run.min() <= tolerance:
                merit = len(run), -run.max() / run.min()
                if merit > best[0]:
                    best = merit, (np.exp(np.log(run).mean()), first, last)
    return best[1]
