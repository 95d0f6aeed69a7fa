"""Float64 NumPy twins of metrics/frequency.py: type by type and point by point."""

import numpy as np

from tests.reference import float64


def frequent(types, least):
    types = np.asarray(types)
    there = [one for one in np.unique(types) if one >= 0 and (types == one).sum() >= least]
    return np.array([there.index(one) if one in there else len(types) // least for one in types])


def of_types(cloud, number, log_frequency, most, keep):
    """Distance, both correlations and the share between types, of the kept points."""
    cloud, log_frequency = float64(cloud), float64(log_frequency)
    members = [np.flatnonzero((number == one) & keep) for one in range(most)]
    members = [where for where in members if len(where) > 1]
    if not members:
        return np.full(4, np.nan)
    distances = [
        np.array([np.linalg.norm(cloud[i] - cloud[where[where != i]].mean(0)) for i in where])
        for where in members
    ]
    distances = [np.where(one < 1e-5 * np.sqrt(cloud.var(0).sum()), 0, one) for one in distances]
    logs = [log_frequency[where] for where in members]
    inside = np.concatenate(members)
    total = cloud[inside].var(0).sum()
    between = sum(
        len(where) * ((cloud[where].mean(0) - cloud[inside].mean(0)) ** 2).sum()
        for where in members
    )
    return np.array(
        [
            np.concatenate(distances).mean(),
            pearson(np.concatenate(distances), np.concatenate(logs), len(members)),
            pearson(
                np.array([one.mean() for one in distances]),
                np.array([one[0] for one in logs]),
                len(members),
            ),
            between / len(inside) / total
            if len(members) > 1 and total > 1e-10 * cloud.var(0).sum()
            else np.nan,
        ]
    )


def pearson(x, y, types):
    if types < 3 or np.ptp(x) <= 1e-9 * np.abs(x).max() or np.ptp(y) == 0:
        return np.nan
    return np.corrcoef(x, y)[0, 1]


def distances(cloud, number, most, keep):
    """Of each kept point to the mean of the others of its type; NaN of all other points."""
    cloud, found = float64(cloud), np.full(len(cloud), np.nan)
    for i in np.flatnonzero((number < most) & keep):
        others = (number == number[i]) & keep & (np.arange(len(cloud)) != i)
        found[i] = np.linalg.norm(cloud[i] - cloud[others].mean(0)) if others.any() else np.nan
    return np.where(found < 1e-5 * np.sqrt(cloud.var(0).sum()), 0, found)


def mean_by_bin(values, number, bins, keep):
    values = float64(values)
    parts = [values[(number == one) & keep & ~np.isnan(values)] for one in range(bins)]
    return np.array([part.mean() if len(part) else np.nan for part in parts])
