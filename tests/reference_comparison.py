"""Plain NumPy float64 twins of the comparisons of clouds: whole P x P matrices, sets of neighbours."""

import numpy as np
from scipy.spatial.distance import cdist

from tests.reference import float64, originals


def linear_cka(x, y):
    """By the P x P Gram matrices, where the metric has D x E products."""
    gram_x, gram_y = (centred @ centred.T for centred in (float64(z) - float64(z).mean(0) for z in (x, y)))
    return (gram_x * gram_y).sum() / np.sqrt((gram_x**2).sum() * (gram_y**2).sum())


def hsic_unbiased(gram_x, gram_y):
    """HSIC_1 of two P x P Gram matrices, as Song et al. 2012 write it."""
    k_x, k_y = (gram - np.diag(np.diag(gram)) for gram in (gram_x, gram_y))
    points, ones = len(k_x), np.ones(len(k_x))
    apart = (ones @ k_x @ ones) * (ones @ k_y @ ones) / ((points - 1) * (points - 2))
    return (np.trace(k_x @ k_y) + apart - 2 / (points - 2) * ones @ k_x @ k_y @ ones) / (points * (points - 3))


def linear_cka_unbiased(x, y):
    """HSIC_1 does not see where the origin lies; far from the cloud, float64 would lose digits."""
    gram_x, gram_y = (centred @ centred.T for centred in (float64(z) - float64(z)[0] for z in (x, y)))
    own = hsic_unbiased(gram_x, gram_x) * hsic_unbiased(gram_y, gram_y)
    return hsic_unbiased(gram_x, gram_y) / np.sqrt(own)


def neighbourhoods(cloud, count):
    """The first of each point's copies, and the set of its nearest others, by the first of their copies."""
    x = float64(cloud)
    distance = cdist(x, x)
    first = originals(cloud)
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
