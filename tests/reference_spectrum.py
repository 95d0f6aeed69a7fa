"""Float64 NumPy twins of spectra and coordinates: singular values, brute force."""

from itertools import permutations

import numpy as np

from tests.reference import float64


def eigenvalues(cloud, resolution=1e-9):
    """By singular values, where the metric diagonalises a covariance."""
    x = float64(cloud)
    values = np.linalg.svd(x - x.mean(0), compute_uv=False) ** 2 / len(x)
    return np.where(values < resolution * values[0], 0.0, values)


def perplexity(shares):
    shares = shares[shares > 0]
    return np.exp(-(shares * np.log(shares)).sum())


def anisotropy(cloud):
    return eigenvalues(cloud)[0] / eigenvalues(cloud).sum()


def anisotropy_uncentered(cloud):
    squares = np.linalg.svd(float64(cloud), compute_uv=False) ** 2
    return squares[0] / squares.sum()


def participation_ratio(cloud):
    values = eigenvalues(cloud)
    return values.sum() ** 2 / np.square(values).sum()


def participation_ratio_corrected(cloud):
    """Means over quadruples of different points, from moments of the Gram matrix."""
    x = float64(cloud)
    n = len(x)
    gram = (x - x.mean(0)) @ (x - x.mean(0)).T
    total, fourth, square = np.trace(gram), np.square(np.diag(gram)).sum(), np.square(gram).sum()
    top = (n**2 - 3 * n + 1) * total**2 - n * (n - 1) * fourth + 2 * square
    bottom = total**2 - n * (n - 1) * fourth + (n - 1) * (n - 2) * square
    return top / bottom


def participation_ratio_over_quadruples(cloud):
    x = float64(cloud)
    top, bottom = 0.0, 0.0
    for i, j, k, m in permutations(range(len(x)), 4):
        a, b = x[i] - x[j], x[k] - x[m]
        top += (a @ a) * (b @ b)
        bottom += (a @ b) ** 2
    return top / bottom


def effective_rank(cloud):
    values = eigenvalues(cloud)
    return perplexity(values / values.sum())


def rankme(cloud):
    values = np.linalg.svd(float64(cloud), compute_uv=False)
    return perplexity(values / values.sum() + 1e-7)


def rankme_centered(cloud):
    roots = np.sqrt(eigenvalues(cloud))
    return perplexity(roots / roots.sum() + 1e-7)


def stable_rank(cloud):
    x = float64(cloud)
    x = x - x.mean(0)
    return (np.linalg.norm(x) / np.linalg.norm(x, 2)) ** 2


def isoscore(cloud):
    """The paper's algorithm: variances of principal components, scaled, against the ones."""
    x = float64(cloud)
    width = x.shape[1]
    variances = np.zeros(width)
    variances[: min(x.shape)] = eigenvalues(cloud)
    scaled = np.sqrt(width) * variances / np.linalg.norm(variances)
    defect = np.linalg.norm(scaled - 1) / np.sqrt(2 * (width - np.sqrt(width)))
    used = (width - defect**2 * (width - np.sqrt(width))) ** 2 / width**2
    return (width * used - 1) / (width - 1)


def isoscore_star(cloud):
    """Take the weight of Ledoit and Wolf 2004 as a mean over points of |x x^T - C|^2."""
    x = float64(cloud)
    points, width = x.shape
    x = x - x.mean(0)
    covariance = x.T @ x / points
    even = np.trace(covariance) / width * np.eye(width)
    noise = sum(np.square(np.outer(row, row) - covariance).sum() for row in x) / points**2
    weight = min(1.0, noise / np.square(covariance - even).sum())
    shrunk = (1 - weight) * covariance + weight * even
    return (np.trace(shrunk) ** 2 / np.square(shrunk).sum() - 1) / (width - 1)


def alpha_req(cloud, first=4, last=100):
    """Exponent and R^2 by numpy's own least squares, which wants the roots of the weights."""
    values = eigenvalues(cloud)
    rank = np.arange(1, len(values) + 1)
    used = (rank >= first) & (rank <= last) & (values > 0)
    if used.sum() < 3:
        return np.nan, np.nan
    x, y, weight = np.log(rank[used]), np.log(values[used]), 1 / rank[used]
    slope, intercept = np.polyfit(x, y, 1, w=np.sqrt(weight))
    residual = weight @ np.square(y - slope * x - intercept)
    return -slope, 1 - residual / (weight @ np.square(y - np.average(y, weights=weight)))


def top_coordinate_variance_share(cloud, top):
    variances = np.sort(float64(cloud).var(0))[::-1]
    return variances[:top].sum() / variances.sum() if top <= len(variances) else np.nan


def coordinate_kurtosis(cloud):
    variances = float64(cloud).var(0)
    return np.square(variances).mean() / variances.mean() ** 2


def activation_kurtosis(cloud):
    x = float64(cloud)
    x = (x - x.mean(0))[:, x.std(0) > 0]
    return (np.mean(x**4, 0) / np.mean(x**2, 0) ** 2).mean()


def coordinate_peaks(cloud):
    """Each point's largest coordinate over its lower median one, in size."""
    sizes = np.sort(np.abs(float64(cloud)), axis=1)
    return sizes[:, -1] / sizes[:, (sizes.shape[1] - 1) // 2]
