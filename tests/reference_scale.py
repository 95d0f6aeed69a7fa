"""Plain NumPy float64 twins of metrics/scale.py, from the formulas: likelihoods maximised, loops over points."""

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import beta

from tests.reference import float64, is_rounding, twonn


def distances(cloud):
    """Of every distinct point whose nearest is apart by more than rounding, the sorted distances to all the others."""
    x = float64(cloud)
    x = x[np.sort(np.unique(x, axis=0, return_index=True)[1])]
    found = np.array([np.sort(np.linalg.norm(np.delete(x, i, axis=0) - row, axis=1)) for i, row in enumerate(x)])
    return found[~is_rounding(found[:, 0], x)]


def gride(sorted_distances, first):
    """By the likelihood itself, maximised over ln d; mu^d - 1 as mu^d (1 - mu^-d), lest it overflow."""
    n1, n2 = first, 2 * first
    mu = sorted_distances[:, n2 - 1] / sorted_distances[:, n1 - 1]

    def loss(log_d):
        d = np.exp(log_d)
        log_power = d * np.log(mu) + np.log(-np.expm1(-d * np.log(mu)))
        log_f = log_d + (n2 - n1 - 1) * log_power - ((n2 - 1) * d + 1) * np.log(mu) - np.log(beta(n2 - n1, n1))
        return -log_f.mean()

    return np.exp(minimize_scalar(loss, bounds=np.log([0.01, 1e4]), method="bounded", options={"xatol": 1e-9}).x)


def inverse_dimensions(sorted_distances, count, divisor):
    """sum_{j<k} ln(T_k/T_j) / divisor, point by point."""
    return np.array([sum(np.log(t[count - 1] / t[j]) for j in range(count - 1)) / divisor for t in sorted_distances])


def levina_bickel(sorted_distances, count=20):
    return 1 / inverse_dimensions(sorted_distances, count, count - 1).mean()


def local_dimensions(sorted_distances, count=20):
    return 1 / inverse_dimensions(sorted_distances, count, count - 2)


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
