"""Float64 NumPy twins of metrics/tangent.py: projectors, bases of complements, loops."""

import numpy as np
from scipy.linalg import null_space

from tests.reference import float64


def semi_nmf(points, start, rounds):
    """Factors and residuals of each round, entry by entry as Ding, Li and Jordan print them."""
    a, z = float64(points), float64(start)
    c = np.linalg.pinv(z) @ a
    residuals = []
    for _ in range(rounds):
        cross, gram = a @ c.T, c @ c.T
        cross_up, cross_down = (abs(cross) + cross) / 2, (abs(cross) - cross) / 2
        gram_up, gram_down = (abs(gram) + gram) / 2, (abs(gram) - gram) / 2
        z = z * np.sqrt((cross_up + z @ gram_down) / (cross_down + z @ gram_up))
        c = np.linalg.pinv(z) @ a
        residuals.append(np.linalg.norm(a - z @ c) ** 2 / np.linalg.norm(a) ** 2)
    return z, c, np.array(residuals)


def projector(frame):
    frame = float64(frame)
    return frame @ np.linalg.pinv(frame)


def principal(points, rank):
    x = float64(points)
    return np.linalg.svd(x - x.mean(0), full_matrices=False)[2][:rank].T


def energy(frame, gradient):
    g = float64(gradient)
    return np.linalg.norm(g @ projector(frame)) ** 2 / np.linalg.norm(g) ** 2


def variance_share(frame, points):
    x = float64(points)
    return np.trace(projector(frame) @ np.cov(x.T)) / np.trace(np.cov(x.T))


def p_value(own, controls):
    return sum(np.append(controls, own) >= own) / (len(controls) + 1)


def isoscore_outside(frame, points):
    """Of coordinates in a basis of the complement, by singular values."""
    x = float64(points)
    basis = null_space(float64(frame).T) if frame.shape[1] else np.eye(x.shape[1])
    values = np.linalg.svd((x - x.mean(0)) @ basis, compute_uv=False) ** 2
    return (values.sum() ** 2 / (values**2).sum() - 1) / (basis.shape[1] - 1)


def local_tangent(points, gradient, among, neighbors, rank):
    x, g, others = float64(points), float64(gradient), float64(among)
    covariance = np.cov(x.T)
    inside, share = [], []
    for point, own in zip(x, g, strict=True):
        near = others[np.argsort(((others - point) ** 2).sum(1))[:neighbors]]
        frame = principal(near, rank)
        inside.append(((frame.T @ own) ** 2).sum())
        share.append(np.trace(frame.T @ covariance @ frame) / np.trace(covariance))
    return np.array(inside), np.array(share)
