"""Float64 NumPy twins of metrics/estimators.py: every distance, and scipy's tree."""

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import cdist

from tests.reference import float64


def correlation_dimension(cloud):
    distance = np.sort(cdist(*[_distinct(cloud)] * 2), axis=1)[:, 1:]
    near, far = np.median(distance[:, 9]), np.median(distance[:, 19])
    return np.log((distance < far).mean() / (distance < near).mean()) / np.log(far / near)


def tree_dimension(cloud):
    clouds = [_distinct(np.asarray(cloud)[::factor]) for factor in (8, 4, 2, 1)]
    lengths = [minimum_spanning_tree(cdist(x, x)).sum() for x in clouds]
    return 1 / (1 - np.polyfit(np.log([len(x) for x in clouds]), np.log(lengths), 1)[0])


def marchenko_pastur_median(ratio):
    low, high = (1 - ratio**0.5) ** 2, (1 + ratio**0.5) ** 2

    def mass(end):
        return quad(lambda x: np.sqrt((high - x) * (x - low)) / (2 * np.pi * ratio * x), low, end)[0]

    return brentq(lambda x: mass(x) - 0.5, low, high)


def _distinct(cloud):
    x = float64(cloud)
    return x[np.sort(np.unique(x, axis=0, return_index=True)[1])]
