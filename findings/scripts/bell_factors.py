"""Measure which part of a decoder's bell is what: a full factorial, and Shapley's shares.

    .venv/bin/python -m findings.scripts.bell_factors FOLDER NAME …

Reads the arrays of findings/scripts/read_states.py and writes, in findings/tables/massive_vectors, factors.csv
(the leading share of each layer without each set of factors) and shares.csv (Shapley's shares by layer,
and of the mean over inner layers). findings/claims/massive_vectors.py says what the factors are. Intervals are
jackknifes over folds of whole windows. Rows of models named here are replaced.
"""

import itertools
import math
import pathlib
import sys

import numpy as np
import pandas as pd

from findings.claims.massive_vectors import REFERENCE, TABLES
from findings.scripts.cloud_moments import leading_shares, make_part, with_interval
from findings.scripts.shared_tables import replace_models

FACTORS = ("first", "coordinates", "mean", "gain")
TOPS = (1, 4, 16)  # coordinates taken away
DIGITS = 6  # of the tables, which are long
STARTS = {"about 0": frozenset(), "about the mean": frozenset({"mean"})}
Values = dict[frozenset, np.ndarray]  # set of factors that are taken away -> replicates


def read_values(x_WTD: np.ndarray, gain_D: np.ndarray) -> dict[int, Values]:
    """Return the leading share of a layer's second moment without each set of factors, by TOPS."""
    order_D = np.argsort(-np.square(x_WTD.astype(np.float64)).sum((0, 1)))
    values: dict[int, Values] = {top: {} for top in TOPS}
    left_WT = np.ones(x_WTD.shape[:2], bool)
    for first in (False, True):
        left_WT[:, 0] = not first
        part = make_part(x_WTD, left_WT)
        for mean, gain in itertools.product((False, True), repeat=2):
            scale = gain_D if gain else 1.0
            names = {"first": first, "mean": mean, "gain": gain}
            removed = frozenset(name for name, is_removed in names.items() if is_removed)
            whole = leading_shares(part, (), mean, scale)
            for top, own in values.items():
                left = leading_shares(part, order_D[:top], mean, scale)
                own |= {removed: whole, removed | {"coordinates"}: left}
    return values


def shapley(values: Values, factors: tuple[str, ...], base: frozenset = frozenset()) -> dict:
    """Return Shapley's share of each factor in v(base) - v(base and all factors)."""
    shares, count = {}, len(factors)
    for factor in factors:
        others, shares[factor] = [name for name in factors if name != factor], 0.0
        for size in range(count):
            weight = math.factorial(size) * math.factorial(count - 1 - size) / math.factorial(count)
            for chosen in itertools.combinations(others, size):
                before = base | {*chosen}
                shares[factor] += weight * (values[before] - values[before | {factor}])
    return shares


def describe(values: Values, base: frozenset = frozenset()) -> list[dict]:
    """Return rows of shares of the height without any factor but those of `base`, and what is left."""
    factors, rows = tuple(name for name in FACTORS if name not in base), []
    whole = values[base]
    shares = shapley(values, factors, base)
    shares["left"] = values[frozenset(FACTORS)]
    for factor, share in shares.items():
        alone = whole - values[base | {factor}] if factor in factors else share
        found = {"share": share / whole, "alone": alone / whole}
        row = {"factor": factor, "height": whole[0]}
        for name, values_R in found.items():
            row |= zip(
                (name, f"{name}_low", f"{name}_high"), with_interval(values_R, -9, 9), strict=True
            )
        rows.append(row)
    return rows


def inner_mean(layers: list[Values]) -> Values:
    """Average over inner layers: from block 1 to the last but one."""
    inner = layers[1:-1]
    return {key: np.mean([values[key] for values in inner], axis=0) for key in inner[0]}


def tables_of(layers: list[Values]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows of factors.csv and shares.csv of one model, text and number of coordinates."""
    values = [
        {"layer": layer, "without": " ".join(name for name in FACTORS if name in removed)}
        | dict(zip(("value", "low", "high"), with_interval(values_R), strict=True))
        for layer, own in enumerate(layers)
        for removed, values_R in own.items()
    ]
    named = {**dict(enumerate(layers)), "inner": inner_mean(layers)}
    shares = [
        {"layer": layer, "start": start} | row
        for layer, own in named.items()
        for start, base in STARTS.items()
        if layer == "inner" or not base
        for row in describe(own, base)
    ]
    return pd.DataFrame(values), pd.DataFrame(shares)


def main(root: str, *names: str) -> None:
    TABLES.mkdir(exist_ok=True)
    for name in names:
        frames: tuple[list, list] = ([], [])
        gain_D = np.load(pathlib.Path(root, name, "scale.npy")).astype(np.float64)
        for path in sorted(pathlib.Path(root, name).glob(f"*_{REFERENCE}.npy")):
            layers = [read_values(np.asarray(x), gain_D) for x in np.load(path, mmap_mode="r")]
            for top in TOPS:
                made = tables_of([values[top] for values in layers])
                labels = {"model": name, "text": path.stem.rsplit("_", 1)[0], "coordinates": top}
                for frame, kept in zip(made, frames, strict=True):
                    kept.append(pd.DataFrame(labels, frame.index).join(frame))
            print(path, flush=True)
        for file, kept in zip(("factors", "shares"), frames, strict=True):
            replace_models(TABLES / f"{file}.csv", pd.concat(kept).round(DIGITS))


if __name__ == "__main__":
    main(*sys.argv[1:])
