"""Measure how high each layer of a decoder stands, with and without its massive vectors.

    .venv/bin/python -m findings.scripts.bell_heights FOLDER NAME …

Reads the arrays of findings/scripts/read_states.py and writes heights.csv in findings/tables/massive_vectors, a
row for each model, text, length of windows and layer; findings/claims/massive_vectors.py has its columns in
words. Intervals are jackknifes over folds of whole windows. Rows of models named here are replaced.
"""

import pathlib
import sys
from typing import Any

import numpy as np
import pandas as pd

from findings.claims.massive_vectors import TABLES
from findings.scripts.cloud_moments import leading_shares, make_part, massive, with_interval
from findings.scripts.shared_tables import replace_models


def describe_layer(x_WTD: np.ndarray) -> dict[str, Any]:
    """Return the leading shares of a layer, and the distance and norm of its massive vectors."""
    cloud_PD = x_WTD.reshape(-1, x_WTD.shape[-1]).astype(np.float64)
    long_P = massive(cloud_PD)
    massive_WT = long_P.reshape(x_WTD.shape[:2])
    later_WT = np.ones_like(massive_WT)
    later_WT[:, 0] = False
    columns = {"vectors": long_P.size, "massive": long_P.sum()}
    columns |= {"massive_first": massive_WT[:, 0].sum(), "f": long_P.mean()}
    columns |= {"r": np.nan, "d": np.nan}
    if long_P.any():
        long, rest = cloud_PD[long_P], cloud_PD[~long_P]
        columns["r"] = np.sqrt(np.square(long).sum(1).mean() / np.square(rest).sum(1).mean())
        gap_D, scatter = long.mean(0) - rest.mean(0), rest.var(0).sum()
        columns["d"] = np.sqrt(np.square(gap_D).sum() / scatter)
    left = {"anisotropy": later_WT | True, "without_first": later_WT, "rest": ~massive_WT}
    for name, left_WT in left.items():
        shares_R = leading_shares(make_part(x_WTD, left_WT))
        columns |= zip((name, f"{name}_low", f"{name}_high"), with_interval(shares_R), strict=True)
    return columns


def main(root: str, *names: str) -> None:
    TABLES.mkdir(exist_ok=True)
    for name in names:
        frames = []
        for path in sorted(pathlib.Path(root, name).glob("*_*.npy")):
            text, length = path.stem.rsplit("_", 1)
            layers = np.load(path, mmap_mode="r")
            rows = pd.DataFrame([describe_layer(np.asarray(x_WTD)) for x_WTD in layers])
            labels = {"model": name, "text": text, "length": int(length)}
            frames.append(pd.DataFrame(labels | {"layer": range(len(rows))}).join(rows))
            print(path, flush=True)
        replace_models(TABLES / "heights.csv", pd.concat(frames))


if __name__ == "__main__":
    main(*sys.argv[1:])
