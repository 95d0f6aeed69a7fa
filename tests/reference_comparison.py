"""Float64 NumPy twins of the comparisons: all distances, sets, least squares."""

import numpy as np
from scipy.linalg import orthogonal_procrustes
from scipy.spatial.distance import cdist, pdist

from tests.reference import float64, originals


def linear_cka(x, y):
    """By the P x P Gram matrices, where the metric has D x E products."""
    gram_x, gram_y = (
        centered @ centered.T for centered in (float64(z) - float64(z).mean(0) for z in (x, y))
    )
    return (gram_x * gram_y).sum() / np.sqrt((gram_x**2).sum() * (gram_y**2).sum())


def hsic_unbiased(gram_x, gram_y):
    """HSIC_1 of two P x P Gram matrices, as Song et al. 2012 write it."""
    k_x, k_y = (gram - np.diag(np.diag(gram)) for gram in (gram_x, gram_y))
    points, ones = len(k_x), np.ones(len(k_x))
    apart = (ones @ k_x @ ones) * (ones @ k_y @ ones) / ((points - 1) * (points - 2))
    return (np.trace(k_x @ k_y) + apart - 2 / (points - 2) * ones @ k_x @ k_y @ ones) / (
        points * (points - 3)
    )


def linear_cka_unbiased(x, y):
    """HSIC_1 does not see where the origin lies; far from the cloud, float64 would lose digits."""
    gram_x, gram_y = (
        centered @ centered.T for centered in (float64(z) - float64(z)[0] for z in (x, y))
    )
    own = hsic_unbiased(gram_x, gram_x) * hsic_unbiased(gram_y, gram_y)
    return hsic_unbiased(gram_x, gram_y) / np.sqrt(own)


def neighborhoods(cloud, count):
    """Find the first copy of each point, and the set of its nearest others, by first copies."""
    x = float64(cloud)
    distance = cdist(x, x)
    first = originals(cloud)
    representatives = np.unique(first)
    sets = []
    for i in range(len(x)):
        others = representatives[representatives != first[i]]
        sets.append(set(others[np.argsort(distance[i, others])][:count]))
    return first, sets


def neighbor_overlap(a, b, count):
    (first_a, sets_a), (first_b, sets_b) = neighborhoods(a, count), neighborhoods(b, count)
    chosen = [i for i in range(len(a)) if first_a[i] == i and first_b[i] == i]
    return np.mean([len(sets_a[i] & sets_b[i]) / count for i in chosen])


def rsa(x, y):
    return np.corrcoef(*(pdist(float64(z) - float64(z)[0], "sqeuclidean") for z in (x, y)))[0, 1]


def procrustes(x, y):
    x, y = (float64(z) - float64(z).mean(0) for z in (x, y))
    width = max(x.shape[1], y.shape[1])
    x, y = (np.pad(z, ((0, 0), (0, width - z.shape[1]))) for z in (x, y))
    rotation, _ = orthogonal_procrustes(x, y)
    return (x @ rotation * y).sum() / np.linalg.norm(x) / np.linalg.norm(y)


def information_imbalance(a, b):
    """From a to b; neighbors in a and ranks in b among distinct points."""
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


def linearity(x, y):
    """The score, and adjusted for the rank of x."""
    x, y = (float64(z) - float64(z).mean(0) for z in (x, y))
    x, y = x / np.linalg.norm(x), y / np.linalg.norm(y)
    size = np.linalg.norm(x, axis=0)
    map_of, _, rank, _ = np.linalg.lstsq(x / np.where(size > 0, size, 1), y, rcond=1e-5)
    score = 1 - ((x / np.where(size > 0, size, 1) @ map_of - y) ** 2).sum()
    return score, 1 - (1 - score) * (len(x) - 1) / (len(x) - 1 - rank)
