"""Holm's correction of p for several tests that are read together."""

import numpy as np
import pandas as pd


def holm(p: pd.Series) -> pd.Series:
    """Corrected for as many tests as there are numbers: the least times all of them, the next times one less …"""
    known = p.dropna().sort_values()
    corrected = (known * np.arange(len(known), 0, -1)).cummax().clip(upper=1.0)
    return corrected.reindex(p.index)
