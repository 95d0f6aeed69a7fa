"""Float64 NumPy twins of metrics/leading.py and windows.py: sums over points, arccos."""

import numpy as np

from tests.reference import float64


def share_between(cloud, member):
    """Move every point to the mean of its side, and compare the scatter."""
    cloud, member = float64(cloud), np.asarray(member, bool)
    if member.all() or not member.any():
        return 0.0
    moved = np.where(member[:, None], cloud[member].mean(0), cloud[~member].mean(0))
    return moved.var(0).sum() / cloud.var(0).sum()


def share_by_norm(cloud, member):
    cloud, member = float64(cloud), np.asarray(member, bool)
    if not member.any():
        return 0.0
    r2 = (cloud[member] ** 2).sum(1).mean() / (cloud[~member] ** 2).sum(1).mean()
    f = member.mean()
    return f * r2 / (1 + f * r2)


def longest(cloud, count):
    chosen = np.zeros(len(cloud), bool)
    chosen[np.argsort(-np.linalg.norm(np.float32(cloud), axis=1), kind="stable")[:count]] = True
    return chosen


def longest_of_each(cloud, window):
    chosen = np.zeros(len(cloud), bool)
    for one in np.unique(window):
        inside = np.flatnonzero(window == one)
        chosen[inside[longest(np.asarray(cloud)[inside], 1)]] = True
    return chosen


def norm_ratio(cloud):
    norms = np.sort(np.linalg.norm(float64(cloud), axis=1))
    return norms[-1] / norms[(len(norms) - 1) // 2]


def entropy(cloud):
    """Of the spectrum of one window's vectors, not centered."""
    share = np.square(np.linalg.svd(float64(cloud), compute_uv=False))
    share = share[share > 0] / share.sum()
    return -(share * np.log(share)).sum()


def between(score, label):
    """Epsilon squared: how much of the variance lies between labels, less what chance gives."""
    kinds = np.unique(label)
    if not 1 < len(kinds) < len(score):
        return np.nan
    moved = np.array([score[label == one].mean() for one in label])
    return 1 - (1 - moved.var() / score.var()) * (len(score) - 1) / (len(score) - len(kinds))


def first_direction(cloud, left, keeps, label=None):
    """Share, kurtosis and `between` of each choice, along the first direction of all left."""
    cloud, left = float64(cloud), np.asarray(left, bool)
    mean = cloud[left].mean(0)
    direction = np.linalg.svd(cloud[left] - mean, full_matrices=False)[2][0]
    label = np.zeros(len(cloud), int) if label is None else np.asarray(label)
    found = []
    for keep in keeps:
        kept = left & np.asarray(keep, bool)
        part = cloud[kept]
        score = (part - part.mean(0)) @ direction
        kurtosis = (score**4).mean() / score.var() ** 2
        found.append((score.var() / part.var(0).sum(), kurtosis, between(score, label[kept])))
    return np.array(found).T


def angle(v, w):
    return np.arccos(np.clip(v @ w / (np.linalg.norm(v) * np.linalg.norm(w)), -1, 1))


def turning_angles(cloud, window, time):
    """{point: angle} of those that have both neighbors, apart from them."""
    x = float64(cloud)
    at = {(w, t): p for p, (w, t) in enumerate(zip(window, time, strict=True))}
    found = {}
    for (w, t), p in at.items():
        if t >= 0 and (w, t - 1) in at and (w, t + 1) in at:
            v, u = x[p] - x[at[w, t - 1]], x[at[w, t + 1]] - x[p]
            if v.any() and u.any():
                found[p] = angle(v, u)
    return found
