"""Float64 NumPy twins of the mean cosine's parts and partition isotropy, pair by pair."""

import numpy as np

from tests.reference import float64


def mean_cosine_parts(cloud):
    """Divide each pair's <m, m>, and its other three products, by the two norms."""
    x = float64(cloud)
    norms = np.linalg.norm(x, axis=1)
    x, norms = x[norms > 0], norms[norms > 0]
    mean = x.mean(0)
    beyond = x - mean
    along = beyond @ mean
    rest = along[:, None] + along[None, :] + beyond @ beyond.T
    pairs = ~np.eye(len(x), dtype=bool)
    per_norms = 1 / np.outer(norms, norms)
    return (mean @ mean * per_norms)[pairs].mean(), (rest * per_norms)[pairs].mean()


def relative_drift(cloud):
    x = float64(cloud)
    return np.linalg.norm(x.mean(0)) / np.sqrt((x**2).sum(1).mean())


def log_partitions(cloud, directions):
    """ln Z of the columns of `directions` and of their opposites."""
    values = []
    for c in [*directions.T, *-directions.T]:
        score = float64(cloud) @ c
        values.append(score.max() + np.log(np.exp(score - score.max()).sum()))
    return np.array(values)


def directions(cloud):
    """The right singular vectors of the cloud itself, where the metric diagonalises X^T X."""
    return np.linalg.svd(float64(cloud), full_matrices=len(cloud) < cloud.shape[1])[2].T


def log_partition_isotropy(cloud, whole=None):
    """Of a cloud along its own directions, or along those of the whole that it is a part of."""
    values = log_partitions(cloud, directions(cloud if whole is None else whole))
    return values.min() - values.max()
