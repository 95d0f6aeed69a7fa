"""Float64 NumPy twins of the metrics, from the formulas: all distances, loops over rows."""

import numpy as np
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist


def float64(array):
    """The float64 values of any array, bfloat16 included."""
    return np.asarray(array).astype(np.float64)


def sorted_distances(x):
    """Of every point the distances to all others, ascending, and inf last for the point itself."""
    distances = cdist(x, x)
    np.fill_diagonal(distances, np.inf)
    return np.sort(distances, axis=1)


def two_distances(x):
    """Each point's distances to its two nearest others, copies included."""
    return sorted_distances(x)[:, :2].T


def originals(cloud):
    """Find first copies: equal, or at the end of a chain of steps below 2e-6 of the norms."""
    x = float64(cloud)
    norms = np.linalg.norm(x, axis=1)
    distances = cdist(x, x)
    joined = (distances == 0) | (distances < 2e-6 * np.minimum(norms[:, None], norms))
    _, label = connected_components(joined, directed=False)
    return np.unique(label, return_index=True)[1][label]


def distinct_points(cloud):
    return float64(cloud)[np.unique(originals(cloud))]


def distinct_distances(cloud, count):
    """Compute distances to the nearest distinct points; inf where there are fewer."""
    first, own = np.unique(originals(cloud), return_inverse=True)
    nearest = sorted_distances(float64(cloud)[first])[:, :count]
    return np.pad(nearest, ((0, 0), (0, count - nearest.shape[1])), constant_values=np.inf)[own]


def log_ratios(cloud):
    r1, r2 = two_distances(distinct_points(cloud))
    return np.sort(np.log(r2 / r1))


def twonn_dropped(cloud):
    return len(distinct_points(cloud)) - len(log_ratios(cloud))


def twonn(cloud, fraction=0.9):
    x = log_ratios(cloud)
    kept = int(fraction * len(x))
    y = -np.log(1 - np.arange(1, kept + 1) / len(x))
    return (x[:kept] @ y) / (x[:kept] @ x[:kept])


def twonn_mle(cloud):
    x = log_ratios(cloud)
    return (len(x) - 1) / x.sum()


def twonn_bayes(cloud):
    """Mean and deviation of Gamma(2 + n, 5 + sum)."""
    x = log_ratios(cloud)
    return (2 + len(x)) / (5 + x.sum()), np.sqrt(2 + len(x)) / (5 + x.sum())


def duplicate_points(cloud):
    return len(cloud) - len(distinct_points(cloud))


def twonn_microscope(cloud):
    """Dimension, useless points, dropped points."""
    x = float64(cloud)
    x = x - x.mean(0)
    unit = np.linalg.norm(x, axis=1).mean()
    r1, r2 = two_distances(x / unit)
    useless = r1 < 1e-8
    mu = np.ones(len(x))
    mu[~useless] = r2[~useless] / r1[~useless]
    dropped = int((mu <= 1 + 1e-8).sum())
    mu = np.sort(mu)[dropped:]
    empirical = (dropped + np.arange(1, len(mu) + 1)) / (len(mu) + dropped)
    kept = max(min(len(mu) // 5, len(mu) - 1), 0)
    if kept == 0:
        return np.nan, int(useless.sum()), dropped
    x, y = np.log(mu[:kept]), -np.log(1 - empirical[:kept])
    return (x @ y) / (x @ x), int(useless.sum()), dropped


def directions(cloud):
    x = float64(cloud)
    norms = np.linalg.norm(x, axis=1)
    return x[norms > 0] / norms[norms > 0, None]


def mean_cosine(cloud):
    unit = directions(cloud)
    cosines = unit @ unit.T
    return cosines[~np.eye(len(unit), dtype=bool)].mean()


def cross_cosine(a, b):
    return (directions(a) @ directions(b).T).mean()


def cosine(u, v):
    u, v = float64(u), float64(v)
    return u @ v / np.sqrt((u @ u) * (v @ v))


def drift(cloud):
    return np.linalg.norm(float64(cloud).mean(0))


def fluctuation(cloud):
    x = float64(cloud)
    return np.sqrt(np.mean([(row - x.mean(0)) @ (row - x.mean(0)) for row in x]))


def mean_norm(cloud):
    return np.linalg.norm(float64(cloud), axis=1).mean()


def attention_statistics(q, k, visible):
    """Compute the fields of AttentionStatistics in their order, row by row."""
    scores, variances, entropies, largest, smallest = [], [], [], [], []
    received = [[] for _ in range(q.shape[1])]
    for q_window, k_window in zip(float64(q), float64(k), strict=True):
        for i, query in enumerate(q_window):
            row = k_window[visible[i]] @ query / np.sqrt(len(query))
            scores.extend(row)
            if len(row) < 2:
                continue
            p = np.exp(row - row.max())
            p = p / p.sum()
            variances.append(row.var())
            entropies.append(-(p[p > 0] * np.log(p[p > 0])).sum())
            largest.append(p.max())
            smallest.append(p.min())
            for j, weight in zip(np.flatnonzero(visible[i]), p, strict=True):
                received[j].append(weight)
    first = np.mean(received[0]) if received[0] else np.nan
    most = max(np.mean(weights) for weights in received if weights)
    sharpness = [np.mean(values) for values in (entropies, largest, smallest)]
    return np.array(
        [np.mean(scores), np.std(scores), np.sqrt(np.mean(variances)), *sharpness, first, most]
    )


def scores_and_means(q, k, visible, q_cloud, k_cloud):
    """The score of the means of two clouds, and its share of the scores of the visible pairs."""
    of_means = float64(q_cloud).mean(0) @ float64(k_cloud).mean(0) / np.sqrt(q.shape[-1])
    scores = np.concatenate(
        [
            (a @ b.T / np.sqrt(q.shape[-1]))[visible]
            for a, b in zip(float64(q), float64(k), strict=True)
        ]
    )
    return of_means, of_means**2 / (of_means**2 + np.mean((scores - of_means) ** 2))
