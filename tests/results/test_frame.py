"""What is no table is refused in one line by all that read tables."""

import numpy as np
import pytest
import xarray as xr

import anisoscope

READERS = {
    "to_frame": anisoscope.to_frame,
    "to_latex": lambda table: anisoscope.to_latex(table, "anisotropy"),
    "report": anisoscope.report,
    "by_layer": anisoscope.plot.by_layer,
    "by_step": anisoscope.plot.by_step,
    "dimension_by_scale": anisoscope.plot.dimension_by_scale,
    "effective_ranks": anisoscope.plot.effective_ranks,
}


@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_table_is_refused(reader, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for wrong, words in (
        ("results.nc", "table is str; pass the whole Dataset"),
        (xr.Dataset({"anisotropy": ("layer", np.ones(3))}), "table is Dataset; pass the whole"),
    ):
        with pytest.raises(ValueError, match=words):
            READERS[reader](wrong)
    assert not [*tmp_path.iterdir()]
