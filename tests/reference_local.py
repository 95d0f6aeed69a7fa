"""NumPy float64 twin of what is read off neighborhoods: every distance, singular values."""

import numpy as np
from scipy.spatial.distance import cdist

from tests.reference import float64, originals


def neighborhoods(cloud, count):
    """Each distinct point and its nearest others, about their mean: (points, count + 1, width)."""
    x = float64(cloud)[np.unique(originals(cloud))]
    near = np.argsort(cdist(x, x), axis=1)[:, : count + 1]
    return x[near] - x[near].mean(axis=1, keepdims=True)


def local_isotropy(cloud, count):
    square = np.linalg.svd(neighborhoods(cloud, count), compute_uv=False) ** 2
    share = square / square.sum(axis=1, keepdims=True)
    return share.max(axis=1).mean(), (1 / (share**2).sum(axis=1)).mean()
