"""Tables that earlier versions wrote: files.read gives them under the names of today."""

import dataclasses
import json

import numpy as np
import pytest
import xarray as xr

from anisoscope.config.experiment import Config
from anisoscope.measurement.tables import files, measurements
from anisoscope.measurement.tables.raw import LAYOUT
from anisoscope.utils.errors import UserError
from tests.measurement.tables.made import as_before
from tests.plot.tables import make_run

MADE_BY = {"measure.points": 16, "measure.groups": 2, "measure.seed": 0, "corpus_sha256": "a"}
OF_VECTORS = {"sha256": "b", "folds": 2, "seed": 0, "layers": [], "groups": "sentence", "positions": ""}


def reread(tmp_path, attrs):
    files.write(xr.Dataset({"anisotropy": ("layer", [0.5, 0.25])}, attrs=attrs), tmp_path / "0.nc")
    return files.read_table(tmp_path / "0.nc").attrs


def earlier_config():
    values = dataclasses.asdict(Config())
    for group, now, before in (("measure", "folds", "groups"), ("measure", "hook_points", "sites")):
        values[group][before] = values[group].pop(now)
    values["tangents"]["groups"] = values["tangents"].pop("folds")
    return values


@pytest.mark.parametrize(
    ("attrs", "expected"),
    [
        (
            {"run": "a, values", "groups": 2, "site": "values", "site_in_words": "of all heads"},
            {"run": "a, values", "folds": 2, "hook_point": "values", "hook_point_in_words": "of all heads"},
        ),
        ({"folds": "2 of 8 points, whole", "groups": 2}, {"folds_in_words": "2 of 8 points, whole", "folds": 2}),
    ],
    ids=("of a run", "of vectors"),
)
def test_attributes_have_the_names_of_today(tmp_path, attrs, expected):
    assert list(reread(tmp_path, attrs).items()) == list(expected.items())


def test_settings_in_json_have_the_names_of_today(tmp_path):
    before = {"config": json.dumps(earlier_config()), "made_by": json.dumps(MADE_BY | {"tangents.groups": 8})}
    attrs = {name: json.loads(text) for name, text in reread(tmp_path, before).items()}
    assert attrs["config"] == json.loads(json.dumps(dataclasses.asdict(Config())))
    assert attrs["made_by"] == {name.replace("groups", "folds"): value for name, value in MADE_BY.items()} | {
        "tangents.folds": 8
    }
    of_vectors = json.loads(reread(tmp_path, {"made_by": json.dumps(OF_VECTORS), "groups": 2})["made_by"])
    assert of_vectors == {{"groups": "clusters"}.get(name, name): value for name, value in OF_VECTORS.items()}


@pytest.mark.parametrize("text", ['{"measure": {"folds": 2}}', '{"runs":["a", "b"]}'])
def test_a_table_of_today_is_left_as_it_is(tmp_path, text):
    attrs = {"config": text, "made_by": text, "folds": 2, "hook_point": "values"}
    assert reread(tmp_path, attrs) == attrs


def test_tables_of_before_are_of_the_same_clouds_and_of_their_hook_point(tmp_path):
    attrs = {"made_by": json.dumps(MADE_BY), "groups": 2, "site": "values", "layout": LAYOUT}
    reread(tmp_path, attrs)
    today = {name.replace("groups", "folds"): value for name, value in MADE_BY.items()}
    measurements.check_folder(tmp_path, today)
    assert measurements.read_step(tmp_path / "0.nc", "values").attrs["folds"] == 2
    with pytest.raises(UserError, match=r"measure\.folds=2 there, 4 now"):
        measurements.check_folder(tmp_path, today | {"measure.folds": 4})


def test_value_and_excess_are_apart_that_stood_along_one_dimension(tmp_path):
    """Of everything that is measured, of averages, and of what has no null model or no interval."""
    today = make_run(steps=(0, 8), layers=2, heads=2).results
    before = as_before(today)
    assert before["anisotropy"].dims == ("step", "less", "statistic", "positions", "layer")
    assert before["less"].values.tolist() == ["nothing", "gaussian", "shuffled", "untrained", "permuted"]
    files.write(before, tmp_path / "results.nc")
    found = files.read_table(tmp_path / "results.nc")
    assert set(found.data_vars) == set(today.data_vars)
    assert {"query_drift_over_heads_excess", "cka_layers_excess"} <= set(found.data_vars)
    for name, array in today.data_vars.items():
        assert found[name].dims == array.dims, name
        np.testing.assert_array_equal(found[name], array, err_msg=name)
        assert found[name].attrs == array.attrs, name
    for name, labels in today.coords.items():
        np.testing.assert_array_equal(found[name], labels, err_msg=name)
        assert found[name].attrs == labels.attrs, name
    assert found.attrs == today.attrs


def test_before_too_there_were_tables_beside_no_null_model(tmp_path):
    """And of one matrix, as of `measure`."""
    table = xr.Dataset({"drift": (("less", "statistic"), [[1.0, 2.0]])}, {"less": ["nothing"]})
    files.write(table, tmp_path / "results.nc")
    found = files.read_table(tmp_path / "results.nc")
    assert found.drift.dims == ("statistic",)
    assert found.drift.values.tolist() == [1.0, 2.0]
    assert set(found.data_vars) == {"drift"}
    assert "less" not in found.coords
