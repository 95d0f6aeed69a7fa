"""Float64 NumPy twins of metrics/alignment.py: every distance, and scipy's rotation."""

import numpy as np
from scipy.linalg import orthogonal_procrustes
from scipy.spatial.distance import pdist

from tests.reference import float64


def rsa(x, y):
    return np.corrcoef(*(pdist(float64(z) - float64(z)[0], "sqeuclidean") for z in (x, y)))[0, 1]


def procrustes(x, y):
    x, y = (float64(z) - float64(z).mean(0) for z in (x, y))
    width = max(x.shape[1], y.shape[1])
    x, y = (np.pad(z, ((0, 0), (0, width - z.shape[1]))) for z in (x, y))
    rotation, _ = orthogonal_procrustes(x, y)
    return (x @ rotation * y).sum() / np.linalg.norm(x) / np.linalg.norm(y)
