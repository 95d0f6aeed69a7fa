"""Float64 NumPy twin of metrics/imbalance.py: whole matrices of distances, and sorting."""

import numpy as np
from scipy.spatial.distance import cdist

from tests.reference import float64


def information_imbalance(a, b):
    """From a to b; neighbours in a and ranks in b among distinct points."""
    (from_a, first_a), (from_b, first_b) = (_distances(x) for x in (a, b))
    distinct_a, distinct_b = np.unique(first_a), np.unique(first_b)
    ranks = []
    for i in range(len(from_a)):
        if first_a[i] == i and first_b[i] == i:
            others = distinct_a[distinct_a != i]
            nearest = others[from_a[i, others].argmin()]
            others = distinct_b[distinct_b != i]
            ranks.append(1 + (from_b[i, others] < from_b[i, nearest]).sum())
    return 2 / len(distinct_b) * np.mean(ranks)


def _distances(cloud):
    x = float64(cloud)
    distance = cdist(x, x)
    return distance, (distance == 0).argmax(axis=1)
