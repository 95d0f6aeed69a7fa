"""The table of one checkpoint: its layout, what of it still holds, and how it is completed."""

import json

import numpy as np
import pytest
import xarray as xr

from anisoscope.metrics.registry import FAMILIES, null_models_for, quantities
from anisoscope.results import joined_files, replicates_table, step_files
from anisoscope.results.replicates_table import merge_families, missing_families
from anisoscope.utils.errors import RunError, UserError
from tests.results.made import CLOUDS, MADE_BY, table, values

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
        null: tuple(name for name in names if null in null_models_for(name)) for null in nulls
    }


def test_a_table_labels_every_value_of_every_cloud(old):
    shared = ("cloud", "positions", "batch", "layer")
    assert old.anisotropy.dims == (*shared, "jackknife")
    assert old.twonn.dims == (*shared, "sections")
    assert old.duplicate_points.dims == shared
    assert old.top_coordinate_variance_share.dims == (*shared, "top", "jackknife")
    assert old.step == 7
    assert list(old["cloud"].values) == ["measured", "gaussian", "shuffled"]
    assert list(old.positions.values) == ["all", "without_first_token"]
    assert (list(old.block.values), list(old.top.values)) == ([1, 2, 3], [1, 4, 16])
    np.testing.assert_allclose(old.depth, [0, 1 / 3, 2 / 3, 1])
    for cloud, names in CLOUDS.items():
        for name in (name for name in quantities() if name in old):
            found = old[name].sel(cloud=cloud, positions="without_first_token", batch=2)
            expected = (
                values()[cloud][name][2, 1] if name in names else np.full(found.shape, np.nan)
            )
            np.testing.assert_array_equal(found, expected, err_msg=name)
            assert (cloud in replicates_table.clouds_of(old[name])) == (name in names)


def test_a_family_is_missing_where_a_quantity_or_a_null_model_of_it_is():
    asked, nulls = ("dimension", "scale", "comparison", "spectrum"), ("shuffled", "gaussian")
    assert missing_families(None, asked, nulls) == asked
    assert missing_families(complete(), asked, (*nulls, "untrained")) == ("scale",)
    without = complete().drop_vars("anisotropy")
    assert missing_families(without, FAMILY_OF_NAMES, nulls) == ("spectrum",)
    shuffled = complete(nulls=("shuffled",))
    assert missing_families(shuffled, FAMILY_OF_NAMES, ("shuffled",)) == ()
    assert missing_families(shuffled, FAMILY_OF_NAMES, nulls) == ("dimension",)


def bits(dataset):
    """Of every variable, bit for bit."""
    return {
        name: dataset[name].astype(dataset[name].dtype.newbyteorder("=")).values.tobytes()
        for name in dataset
    }


def test_a_family_is_replaced_as_a_whole_and_the_rest_stays_bit_for_bit():
    old = complete(0, ("dimension", "spectrum"), ("shuffled",)).assign(previous_step=3)
    new = complete(1, ("spectrum", "dimension", "similarity"), ("gaussian", "shuffled"))
    whole = merge_families(old, new.assign(previous_step=4), ("dimension", "similarity"))
    assert list(whole["cloud"].values) == ["measured", "gaussian", "shuffled"]
    for name in (name for name in quantities() if name in whole):
        source = old if name in FAMILIES["spectrum"].quantities else new
        for cloud in source["cloud"].values:
            one, expected = (x[name].sel(cloud=cloud).values for x in (whole, source))
            assert one.tobytes() == expected.tobytes(), name
        assert whole[name].attrs == source[name].attrs
    assert np.isnan(whole.anisotropy.sel(cloud="gaussian")).all()
    assert whole.previous_step == 3  # of the comparisons that are kept
    assert missing_families(whole, ("spectrum", "dimension", "similarity"), ("shuffled",)) == ()
    assert merge_families(old, new.assign(previous_step=4), ("comparison",)).previous_step == 4


def test_a_table_that_was_completed_is_the_file_that_one_measured_at_once_would_be(tmp_path):
    families, nulls = ("dimension", "spectrum"), ("gaussian", "shuffled")
    digests = {"checkpoints": json.dumps({"3": "a", "7": "b"})}
    at_once = complete(0, families, nulls).assign_attrs(digests)
    step_files.write_step(tmp_path / "at once", None, at_once, families)
    found = None
    for asked, chosen in (("spectrum", nulls[1:]), ("dimension", nulls[1:]), ("dimension", nulls)):
        names = {*FAMILIES[asked].quantities}
        new = table(
            {
                cloud: {name: x for name, x in arrays.items() if name in names}
                for cloud, arrays in values(0, clouds_of(families, nulls)).items()
                if cloud in ("measured", *chosen)
            }
        ).assign_attrs(digests)
        step_files.write_step(tmp_path / "parts", found, new, (asked,))
        found = joined_files.read_table(tmp_path / "parts")
    assert missing_families(found, families, nulls) == ()
    assert (tmp_path / "parts").read_bytes() == (tmp_path / "at once").read_bytes()


@pytest.fixture
def folder(tmp_path):
    for step in (0, 4):
        joined_files.write_table(table(values(step), step), tmp_path / f"{step}.nc")
    return tmp_path


def read(folder, made_by=MADE_BY, step=4):
    return step_files.read_same_clouds(folder / f"{step}.nc", made_by)


def test_tables_of_other_clouds_are_refused_in_one_line(folder):
    assert read(folder).step == 4
    assert read(folder, step=2) is None
    for refuse in (read, step_files.check_folder):
        with pytest.raises(UserError, match=r"measure\.points=16 there, 24 now.*move ") as error:
            refuse(folder, MADE_BY | {"measure.points": 24})
        assert "\n" not in str(error.value)
        with pytest.raises(UserError, match="corpus_sha256='digest' there, 'another' now"):
            refuse(folder, MADE_BY | {"corpus_sha256": "another"})


def test_a_table_of_another_schema_is_refused(folder, monkeypatch):
    monkeypatch.setattr(joined_files, "SCHEMA", joined_files.SCHEMA + 1)
    with pytest.raises(RunError, match=r"0\.nc has schema \d+, and \d+ is read; delete it"):
        read(folder, step=0)


def test_a_table_survives_the_disk_and_nothing_half_written_stays(old, tmp_path):
    joined_files.write_table(old, tmp_path / "measurements" / "7.nc")
    again = joined_files.read_table(tmp_path / "measurements" / "7.nc")
    xr.testing.assert_identical(again.drop_attrs(), old.drop_attrs())
    assert again.attrs["corpus"] == "letters"
    assert [p.name for p in (tmp_path / "measurements").iterdir()] == ["7.nc"]
    joined_files.write_table(
        again.isel(layer=[0, 1]), tmp_path / "part.nc"
    )  # with a digest of its own
    assert joined_files.read_table(tmp_path / "part.nc").sizes["layer"] == 2


def test_a_flipped_byte_is_never_read_as_other_numbers(old, tmp_path):
    path = tmp_path / "7.nc"
    joined_files.write_table(old[["anisotropy", "twonn"]], path)
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    name = content.index(b"table_sha256")
    unnamed = range(name, name + 12)  # spelt otherwise, a table has no digest
    header = range(0, content.index(b"anisotropy"), 5)
    for place in (*unnamed, *header, *rng.integers(len(content), size=100)):
        path.write_bytes(
            content[:place] + bytes([content[place] ^ rng.integers(1, 256)]) + content[place + 1 :]
        )
        with pytest.raises(RunError, match=r"table .*7\.nc is damaged \(.*delete it"):
            joined_files.read_table(path)
