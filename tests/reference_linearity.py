"""Float64 NumPy twin of metrics/linearity.py: by least squares."""

import numpy as np

from tests.reference import float64


def linearity(x, y):
    """The score, and adjusted for the rank of x."""
    x, y = (float64(z) - float64(z).mean(0) for z in (x, y))
    x, y = x / np.linalg.norm(x), y / np.linalg.norm(y)
    size = np.linalg.norm(x, axis=0)
    map_of, _, rank, _ = np.linalg.lstsq(x / np.where(size > 0, size, 1), y, rcond=1e-5)
    score = 1 - ((x / np.where(size > 0, size, 1) @ map_of - y) ** 2).sum()
    return score, 1 - (1 - score) * (len(x) - 1) / (len(x) - 1 - rank)
