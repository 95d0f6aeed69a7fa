"""Tables that earlier versions wrote: files.read gives them under the names of today."""

import dataclasses
import json

import pytest
import xarray as xr

from anisoscope.config.experiment import Config
from anisoscope.measurement.tables import files, measurements
from anisoscope.measurement.tables.raw import LAYOUT
from anisoscope.utils.errors import UserError

MADE_BY = {"measure.points": 16, "measure.groups": 2, "measure.seed": 0, "corpus_sha256": "a"}
OF_VECTORS = {"sha256": "b", "folds": 2, "seed": 0, "layers": [], "groups": "sentence", "positions": ""}


def reread(tmp_path, attrs):
    files.write(xr.Dataset({"anisotropy": ("layer", [0.5, 0.25])}, attrs=attrs), tmp_path / "0.nc")
    return files.read(tmp_path / "0.nc").attrs


def earlier_config():
    values = dataclasses.asdict(Config())
    for group, now, before in (("measure", "folds", "groups"), ("measure", "hook_points", "sites")):
        values[group][before] = values[group].pop(now)
    values["tangents"]["groups"] = values["tangents"].pop("folds")
    return values


def test_attributes_have_the_names_of_today(tmp_path):
    attrs = reread(tmp_path, {"run": "a, values", "groups": 2, "site": "values", "site_in_words": "of all heads"})
    expected = {"run": "a, values", "folds": 2, "hook_point": "values", "hook_point_in_words": "of all heads"}
    assert list(attrs.items()) == list(expected.items())


def test_of_vectors_the_number_of_folds_is_told_from_their_words(tmp_path):
    attrs = reread(tmp_path, {"folds": "2 of 8 points, whole clusters, of 4", "groups": 2})
    assert attrs == {"folds_in_words": "2 of 8 points, whole clusters, of 4", "folds": 2}


def test_settings_in_json_have_the_names_of_today(tmp_path):
    before = {"config": json.dumps(earlier_config()), "made_by": json.dumps(MADE_BY | {"tangents.groups": 8})}
    attrs = reread(tmp_path, before)
    assert json.loads(attrs["config"]) == json.loads(json.dumps(dataclasses.asdict(Config())))
    made_by = json.loads(attrs["made_by"])
    assert made_by.pop("measure.folds") == 2
    assert made_by.pop("tangents.folds") == 8
    assert made_by == {name: value for name, value in MADE_BY.items() if name != "measure.groups"}


def test_labels_of_vectors_are_clusters(tmp_path):
    made_by = json.loads(reread(tmp_path, {"made_by": json.dumps(OF_VECTORS), "groups": 2})["made_by"])
    assert made_by == {name: value for name, value in OF_VECTORS.items() if name != "groups"} | {"clusters": "sentence"}


@pytest.mark.parametrize("text", ['{"measure": {"folds": 2}}', '{"runs":["a", "b"]}'])
def test_a_table_of_today_is_left_as_it_is(tmp_path, text):
    attrs = {"config": text, "made_by": text, "folds": 2, "hook_point": "values"}
    assert reread(tmp_path, attrs) == attrs


def test_tables_of_before_are_of_the_same_clouds_and_of_their_hook_point(tmp_path):
    attrs = {"made_by": json.dumps(MADE_BY), "groups": 2, "site": "values", "layout": LAYOUT}
    reread(tmp_path, attrs)
    today = {name.replace("groups", "folds"): value for name, value in MADE_BY.items()}
    measurements.check(tmp_path, today)
    assert measurements.read(tmp_path / "0.nc", "values").attrs["folds"] == 2
    with pytest.raises(UserError, match=r"measure\.folds=2 there, 4 now"):
        measurements.check(tmp_path, today | {"measure.folds": 4})
