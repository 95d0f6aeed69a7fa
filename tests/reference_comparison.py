"""Plain NumPy float64 twins of the comparisons of clouds: whole P x P matrices, sets of neighbours."""

import numpy as np
from scipy.spatial.distance import cdist

from tests.reference import float64


def linear_cka(x, y):
    """By the P x P Gram matrices, where the metric has D x E products."""
    gram_x, gram_y = (centred @ centred.T for centred in (float64(z) - float64(z).mean(0) for z in (x, y)))
    return (gram_x * gram_y).sum() / np.sqrt((gram_x**2).sum() * (gram_y**2).sum())


def neighbourhoods(cloud, count):
    """The first of each point's copies, and the set of its nearest others, by the first of their copies."""
    x = float64(cloud)
    distance = cdist(x, x)
    first = (distance == 0).argmax(axis=1)
    representatives = np.unique(first)
    sets = []
    for i in range(len(x)):
        others = representatives[representatives != first[i]]
        sets.append(set(others[np.argsort(distance[i, others])][:count]))
    return first, sets


def neighbourhood_overlap(a, b, count):
    (first_a, sets_a), (first_b, sets_b) = neighbourhoods(a, count), neighbourhoods(b, count)
    chosen = [i for i in range(len(a)) if first_a[i] == i and first_b[i] == i]
    return np.mean([len(sets_a[i] & sets_b[i]) / count for i in chosen])
