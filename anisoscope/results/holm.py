"""Holm's correction of p-values for several tests."""

import numpy as np
import pandas as pd


def holm(p: pd.Series) -> pd.Series:
    """Correct p-values for as many tests as there are numbers, after Holm."""
    known = p.dropna()
    return pd.Series(holm_of(known.to_numpy(float), len(known)), known.index, dtype=float).reindex(
        p.index
    )


def holm_of(p: np.ndarray, at_once: int) -> np.ndarray:
    """Correct p-values if at most `at_once` hypotheses can be true at once (Shaffer 1986).

    A NaN counts as a test.
    """
    order = np.argsort(np.where(np.isnan(p), 1.0, p), kind="stable")
    times = np.minimum(np.arange(len(p), 0, -1), at_once)
    corrected = np.empty(len(p))
    corrected[order] = np.maximum.accumulate(np.nan_to_num(p[order], nan=1.0) * times).clip(max=1.0)
    return np.where(np.isnan(p), np.nan, corrected)
