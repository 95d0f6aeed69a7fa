import numpy as np
import pytest
import xarray as xr

from anisoscope.results import joined_files
from anisoscope.results.summary import summary
from anisoscope.utils.errors import RunError
from tests.results.made import table, values


@pytest.fixture
def raw():
    return table(values())


def test_a_table_survives_the_disk_and_nothing_half_written_stays(raw, tmp_path):
    joined_files.write(raw, tmp_path / "measurements" / "7.nc")
    again = joined_files.read_table(tmp_path / "measurements" / "7.nc")
    xr.testing.assert_identical(again.drop_attrs(), raw.drop_attrs())
    assert again.attrs["corpus"] == "letters"
    assert [p.name for p in (tmp_path / "measurements").iterdir()] == ["7.nc"]
    joined_files.write(again.isel(layer=[0, 1]), tmp_path / "part.nc")  # with a digest of its own
    assert joined_files.read_table(tmp_path / "part.nc").sizes["layer"] == 2


def test_a_flipped_byte_is_never_read_as_other_numbers(raw, tmp_path):
    path = tmp_path / "7.nc"
    joined_files.write(raw[["anisotropy", "twonn"]], path)
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


def test_equal_tables_are_equal_files(raw, tmp_path):
    for name in ("a", "b"):
        joined_files.write(summary(raw, None, ())[0], tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
