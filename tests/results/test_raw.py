"""The table of one checkpoint: its layout, what of it still holds, and how it is completed."""

import json

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from anisoscope.measurement.families.comparison_family import OF_PREVIOUS
from anisoscope.measurement.families.projection_family import VECTORS
from anisoscope.measurement.families.registry import FAMILIES, quantities
from anisoscope.results import joined_files, replicates_table
from tests.results.made import CLOUDS, G, table, values

FAMILY_OF_NAMES = ("spectrum", "dimension", "comparison")


@pytest.fixture
def old():
    return table(values())


def complete(seed=0, families=FAMILY_OF_NAMES, nulls=("gaussian", "shuffled")):
    """A table that holds all that is asked for."""
    return table(values(seed, clouds_of(families, nulls)))


def clouds_of(families, nulls):
    names = [name for family in families for name in FAMILIES[family].quantities]
    return {"measured": tuple(names)} | {
        null: tuple(name for name in names if null in replicates_table.nulls_of(name))
        for null in nulls
    }


def test_a_table_labels_every_value_of_every_cloud(old):
    assert old.anisotropy.dims == ("cloud", "positions", "batch", "layer", "jackknife")
    assert old.twonn.dims == ("cloud", "positions", "batch", "layer", "sections")
    assert old.duplicate_points.dims == ("cloud", "positions", "batch", "layer")
    assert old.coordinate_share.dims == ("cloud", "positions", "batch", "layer", "top", "jackknife")
    assert old.step == 7
    assert list(old["cloud"].values) == ["measured", "gaussian", "shuffled"]
    assert list(old.positions.values) == ["all", "without_first"]
    assert list(old.block.values) == [1, 2, 3]
    assert list(old.top.values) == [1, 3, 10]
    np.testing.assert_allclose(old.depth, [0, 1 / 3, 2 / 3, 1])
    for cloud, names in CLOUDS.items():
        for name in quantities():
            if name in old:
                one = old[name].sel(cloud=cloud, positions="without_first", batch=2)
                expected = values()[cloud][name][2, 1] if name in names else np.nan
                np.testing.assert_array_equal(
                    one, np.broadcast_to(expected, one.shape), err_msg=name
                )
                assert (cloud in replicates_table.clouds_of(old[name])) == (name in names)
    about = {"long_name", "units", "range", "formula", "source", "family", "resampling", "clouds"}
    assert all(old[name].attrs.keys() - {"symbol"} == about for name in old.data_vars)
    assert (old.duplicate_points.attrs["resampling"], old.twonn.attrs["resampling"]) == (
        "batches",
        "sections",
    )


def test_counts_become_numbers_that_may_be_missing():
    counts = np.arange(G * 2 * 4, dtype=np.int32).reshape(G, 2, 4) + 2**24
    one = table({"measured": {"duplicate_points": counts}, "shuffled": {}})
    np.testing.assert_array_equal(
        one.duplicate_points.sel(cloud="measured", positions="all"), counts[:, 0]
    )
    assert np.isnan(one.duplicate_points.sel(cloud="shuffled")).all()


def test_what_a_table_lacks_is_missing_in_every_cloud_that_can_have_it():
    """All of it, a quantity, a family, or a null model."""
    missed = replicates_table.missing(
        None, ("dimension", "comparison", "spectrum"), ("shuffled", "gaussian", "untrained")
    )
    clouds = {"twonn": ("measured", "gaussian", "shuffled"), "anisotropy": ("measured", "shuffled")}
    assert {name: missed[name] for name in (*clouds, "cka_layers")} == clouds | {
        "cka_layers": ("measured",)
    }
    asked = ("dimension", "scale", "comparison", "spectrum")
    assert replicates_table.families_of(missed, asked) == ("dimension", "comparison", "spectrum")
    without = complete().drop_vars("anisotropy")
    assert replicates_table.missing(without, FAMILY_OF_NAMES, ("shuffled",)) == {
        "anisotropy": ("measured", "shuffled")
    }
    missed = replicates_table.missing(
        complete(families=("spectrum",)), ("spectrum", "similarity"), ("shuffled",)
    )
    assert missed.keys() == FAMILIES["similarity"].quantities.keys()
    missed = replicates_table.missing(
        complete(nulls=("shuffled",)), FAMILY_OF_NAMES, ("shuffled", "gaussian")
    )
    assert missed == dict.fromkeys(FAMILIES["dimension"].quantities, ("gaussian",))


def vectors(seed):
    arrays = np.random.default_rng(seed).random((2, 3, 5, 4), np.float32)
    return {
        name: xr.DataArray(
            array,
            dims=("block", "vector", "component"),
            coords={"block": [1, 2, 3], "window": ("vector", np.arange(5))},
            attrs={"head": 0},
        )
        for name, array in zip(VECTORS, arrays, strict=True)
    }


def bits(dataset):
    """Of every variable, bit for bit."""
    return {
        name: dataset[name].astype(dataset[name].dtype.newbyteorder("=")).values.tobytes()
        for name in dataset
    }


@settings(max_examples=8, deadline=None)
@given(st.data())
def test_merging_equal_tables_changes_no_byte(tmp_path_factory, data):
    """Whatever is said to be missing, and whether the tables were on the disk or not."""
    folder = tmp_path_factory.mktemp("merged")
    old = table(values(), checkpoints=json.dumps({"3": "a", "7": "b"}))
    old = old.assign(vectors(0)).assign(previous_step=np.int32(3))
    joined_files.write(replicates_table.merged(None, old, {}), folder / "old")
    there = joined_files.read_table(folder / "old")
    wanted = {name: replicates_table.clouds_of(old[name]) for name in CLOUDS["measured"]} | {
        name: ["measured"] for name in VECTORS
    }
    missed = {
        name: data.draw(
            st.sampled_from([tuple(clouds), tuple(clouds[1:]), tuple(clouds[-1:]), ()]), name
        )
        for name, clouds in wanted.items()
    }
    missed = {name: clouds for name, clouds in missed.items() if clouds}
    for one, other in ((old, old), (there, old), (there, there)):
        whole = replicates_table.merged(one, other, missed)
        assert bits(whole) == bits(old)
        assert whole.attrs == old.attrs
        joined_files.write(whole, folder / "new")
        assert (folder / "new").read_bytes() == (folder / "old").read_bytes()


def test_what_is_missing_is_taken_and_the_rest_stays_bit_for_bit():
    old = complete(0, ("dimension", "spectrum"), ("shuffled",))
    old = old.assign(previous_step=3)
    new = complete(1, ("spectrum", "dimension", "similarity"), ("gaussian", "shuffled"))
    missed = dict.fromkeys(FAMILIES["dimension"].quantities, ("gaussian",))
    missed |= dict.fromkeys(
        ("anisotropy", *FAMILIES["similarity"].quantities), ("measured", "shuffled")
    )
    whole = replicates_table.merged(old, new, missed)
    assert list(whole["cloud"].values) == ["measured", "gaussian", "shuffled"]
    for name in (name for name in quantities() if name in whole):
        for cloud in ("measured", "shuffled"):
            source = new if "measured" in missed.get(name, ()) else old
            one, expected = (table[name].sel(cloud=cloud).values for table in (whole, source))
            assert one.tobytes() == expected.tobytes(), name
    np.testing.assert_array_equal(
        whole.twonn.sel(cloud="gaussian"), new.twonn.sel(cloud="gaussian")
    )
    assert whole.twonn.attrs["clouds"] == "measured,gaussian,shuffled"
    assert np.isnan(whole.anisotropy.sel(cloud="gaussian")).all()
    assert whole.previous_step == 3
    assert (
        replicates_table.missing(
            whole, ("spectrum", "dimension", "similarity"), ("gaussian", "shuffled")
        )
        == {}
    )


def test_a_table_that_was_completed_is_the_file_that_one_measured_at_once_would_be(tmp_path):
    families, nulls = ("projection", "dimension", "spectrum"), ("gaussian", "shuffled")
    at_once = complete(0, families[1:], nulls).assign(vectors(0)).assign(previous_step=3)
    parts = (("spectrum",), ("shuffled",)), (("dimension",), ("shuffled",)), (("dimension",), nulls)
    found = None
    for wanted, chosen in parts:
        missed = replicates_table.missing(found, wanted, chosen)
        clouds = ["measured", *chosen]
        new = at_once[[name for name in at_once if name in missed]].sel(cloud=clouds)
        for name in new.data_vars:
            new[name].attrs["clouds"] = ",".join(
                cloud for cloud in clouds if cloud in replicates_table.clouds_of(at_once[name])
            )
        new = new.assign(at_once[["previous_step"]]) if wanted == ("spectrum",) else new
        found = replicates_table.merged(
            found, new.assign(at_once[sorted(VECTORS)]) if found is None else new, missed
        )
        joined_files.write(found, tmp_path / "parts")
        found = joined_files.read_table(tmp_path / "parts")
    assert replicates_table.missing(found, families, nulls) == {}
    joined_files.write(replicates_table.merged(None, at_once, {}), tmp_path / "at once")
    assert (tmp_path / "parts").read_bytes() == (tmp_path / "at once").read_bytes()


def test_a_value_and_its_null_model_are_beside_one_checkpoint():
    """The one before was deleted in between, so that another is now."""
    families = ("spectrum", "comparison")
    old, new = (complete(seed, families, nulls) for seed, nulls in ((0, ()), (1, ("permuted",))))
    names = sorted(name for name in OF_PREVIOUS)
    missed = dict.fromkeys(names, ("permuted",))
    for before, source in ((4, old), (2, new)):
        whole = replicates_table.merged(
            old.assign(previous_step=4), new.assign(previous_step=before), missed
        )
        for name in names:
            measured, null = (whole[name].sel(cloud=cloud) for cloud in ("measured", "permuted"))
            np.testing.assert_array_equal(measured, source[name].sel(cloud="measured"))
            np.testing.assert_array_equal(null, new[name].sel(cloud="permuted"))
        np.testing.assert_array_equal(
            whole.anisotropy.sel(cloud="measured"), old.anisotropy.sel(cloud="measured")
        )
