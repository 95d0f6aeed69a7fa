"""leading_vectors.csv holds what the tables hold, and goes with them."""

import numpy as np
import pandas as pd
import xarray as xr

from anisoscope.measurement.families.leading import VECTORS
from anisoscope.measurement.tables import leading_vectors


def words(tokens):
    return [chr(97 + token) for token in tokens]


def test_rows_name_window_position_and_token(tmp_path):
    vectors = {name: np.array([[2.0, 1.0]], np.float32) for name in VECTORS} | {"leading_index": np.array([[4, 2]])}
    table = xr.Dataset(leading_vectors.labelled(vectors, np.arange(6).reshape(2, 3)))
    leading_vectors.write(tmp_path, {8: table, 16: xr.Dataset()}, words)
    frame = pd.read_csv(tmp_path / leading_vectors.NAME)
    assert frame[["step", "layer", "rank", "window", "position", "token"]].values.tolist() == [
        [8, 0, 1, 1, 1, "e"],
        [8, 0, 2, 0, 2, "c"],
    ]


def test_no_file_is_left_of_vectors_that_no_table_holds(tmp_path):
    (tmp_path / leading_vectors.NAME).write_text("of earlier tables")
    leading_vectors.write(tmp_path, {8: xr.Dataset()}, words)
    assert not (tmp_path / leading_vectors.NAME).exists()
