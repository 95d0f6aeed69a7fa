"""Float64 NumPy twins of what reads neighbors: likelihoods, distances, singular values."""

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq, minimize_scalar
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import cdist
from scipy.special import beta

from tests.reference import distinct_points, float64, originals, sorted_distances, twonn


def distances(cloud):
    """Of every distinct point the sorted distances to all the others."""
    return sorted_distances(distinct_points(cloud))[:, :-1]


def gride(near, first):
    """Maximize the likelihood over ln d; mu^d - 1 as mu^d (1 - mu^-d), lest it overflow."""
    n1, n2 = first, 2 * first
    mu = near[:, n2 - 1] / near[:, n1 - 1]

    def loss(log_d):
        d = np.exp(log_d)
        log_power = d * np.log(mu) + np.log(-np.expm1(-d * np.log(mu)))
        log_f = (
            log_d
            + (n2 - n1 - 1) * log_power
            - ((n2 - 1) * d + 1) * np.log(mu)
            - np.log(beta(n2 - n1, n1))
        )
        return -log_f.mean()

    return np.exp(
        minimize_scalar(
            loss, bounds=np.log([0.01, 1e4]), method="bounded", options={"xatol": 1e-9}
        ).x
    )


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


def correlation_dimension(cloud):
    distance = np.sort(cdist(*[_distinct(cloud)] * 2), axis=1)[:, 1:]
    near, far = np.median(distance[:, 9]), np.median(distance[:, 19])
    counts = [(distance < radius * (1 - 2e-6)).mean() for radius in (near, far)]
    return np.log(counts[1] / counts[0]) / np.log(far / near)


def ph_dimension(cloud):
    clouds = [_distinct(np.asarray(cloud)[::factor]) for factor in (8, 4, 2, 1)]
    lengths = [minimum_spanning_tree(cdist(x, x)).sum() for x in clouds]
    return 1 / (1 - np.polyfit(np.log([len(x) for x in clouds]), np.log(lengths), 1)[0])


def marchenko_pastur_median(ratio):
    low, high = (1 - ratio**0.5) ** 2, (1 + ratio**0.5) ** 2

    def mass(end):
        return quad(lambda x: np.sqrt((high - x) * (x - low)) / (2 * np.pi * ratio * x), low, end)[
            0
        ]

    return brentq(lambda x: mass(x) - 0.5, low, high)


def _distinct(cloud):
    x = float64(cloud)
    return x[np.sort(np.unique(x, axis=0, return_index=True)[1])]


def _centered_neighborhoods(cloud, count):
    """Each distinct point and its nearest others, about their mean: (points, count + 1, width)."""
    x = float64(cloud)[np.unique(originals(cloud))]
    near = np.argsort(cdist(x, x), axis=1)[:, : count + 1]
    return x[near] - x[near].mean(axis=1, keepdims=True)


def local_isotropy(cloud, count):
    square = np.linalg.svd(_centered_neighborhoods(cloud, count), compute_uv=False) ** 2
    share = square / square.sum(axis=1, keepdims=True)
    return share.max(axis=1).mean(), (1 / (share**2).sum(axis=1)).mean()
