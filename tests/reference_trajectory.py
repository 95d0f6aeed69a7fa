"""Float64 NumPy twins of metrics/windows.py: window by window, token by token, by arccos."""

import numpy as np

from tests.reference import float64


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
