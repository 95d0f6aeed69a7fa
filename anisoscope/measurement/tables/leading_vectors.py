"""leading_vectors.csv: the longest vectors of every layer and step, by window, position and token.

Of the first batch, all positions of its windows, whichever of them make up the clouds. No intervals: they are maxima.
"""

import pathlib
from collections.abc import Callable

import numpy as np
import pandas as pd
import xarray as xr

from anisoscope.measurement.families.leading import LONGEST, VECTORS
from anisoscope.measurement.tables import files
from anisoscope.utils.files import remove

NAME = "leading_vectors.csv"
TOKEN = "leading_token"


def labelled(vectors: dict[str, np.ndarray], tokens_WT: np.ndarray) -> dict[str, xr.DataArray]:
    """Variables of the table of one checkpoint; none where the family was not measured."""
    kept = {name: np.asarray(vectors[name]) for name in VECTORS if name in vectors}
    if not kept:
        return {}
    index_NC = kept["leading_index"].astype(np.int32)
    kept |= {"leading_index": index_NC, TOKEN: np.asarray(tokens_WT).ravel()[index_NC].astype(np.int32)}
    about = {
        "formula": f"of the {LONGEST} longest vectors of the first batch, all positions",
        "context": tokens_WT.shape[1],
    }
    return {name: xr.DataArray(values, dims=("layer", "rank"), attrs=about) for name, values in kept.items()}


def write(
    run: pathlib.Path,
    raw: dict[int, xr.Dataset],
    words: Callable[[np.ndarray], list[str]],
) -> None:
    """One row per vector of every table that holds some; where none does, no file. `words` names tokens."""
    held = {step: table for step, table in raw.items() if TOKEN in table}
    if not held:
        remove(run / NAME)
    else:
        files.write_csv(pd.concat([_rows(step, table, words) for step, table in held.items()]), run / NAME)


def _rows(step: int, table: xr.Dataset, words: Callable[[np.ndarray], list[str]]) -> pd.DataFrame:
    layer_NC, rank_NC = np.indices(table[TOKEN].shape)
    window_NC, position_NC = np.divmod(table["leading_index"].values, table[TOKEN].attrs["context"])
    token_C = table[TOKEN].values.ravel()
    columns = {
        "layer": layer_NC,
        "rank": rank_NC + 1,
        "window": window_NC,
        "position": position_NC,
        "token_id": token_C,
        "norm": table["leading_norm"].values,
        "norm_over_median": table["leading_over_median"].values,
        "share_of_first_direction": table["leading_share"].values,
    }
    frame = pd.DataFrame({name: np.ravel(values) for name, values in columns.items()})
    frame.insert(4, "token", words(token_C))
    frame.insert(0, "step", step)
    return frame
