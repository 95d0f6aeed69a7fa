import numpy as np
import pytest

from analysis import results

S, G, LAYERS, BLOCKS, HEADS = 2, 3, 4, 3, 2


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return {
        "anisotropy": rng.random((S, G, LAYERS), np.float32),
        "duplicate_points": rng.integers(0, 9, (S, G, LAYERS), np.int32),
        "query_drift": rng.random((S, G, BLOCKS, HEADS), np.float32),
    }


def test_labels_values_and_moments(arrays):
    table = results.table(arrays, 7, {"corpus": "letters"})
    assert table.anisotropy.dims == ("step", "positions", "batch", "layer")
    assert table.query_drift.dims == ("step", "positions", "batch", "block", "head")
    assert list(table.positions.values) == ["all", "without_first"]
    assert list(table.block.values) == [1, 2, 3]
    np.testing.assert_allclose(table.depth, [0, 1 / 3, 2 / 3, 1])
    one = table.sel(step=7, positions="without_first", layer=2)
    np.testing.assert_array_equal(one.anisotropy, arrays["anisotropy"][1, :, 2])
    np.testing.assert_allclose(one.anisotropy_mean, arrays["anisotropy"][1, :, 2].mean(), rtol=1e-6)
    np.testing.assert_allclose(one.anisotropy_std, arrays["anisotropy"][1, :, 2].std(ddof=1), rtol=1e-6)
    for name in arrays:
        assert {"long_name", "units", "formula", "source"} <= table[name].attrs.keys()


def test_a_table_survives_the_disk_and_nothing_half_written_stays(arrays, tmp_path):
    table = results.table(arrays, 7, {"corpus": "letters", "steps": 10})
    results.write(table, tmp_path / "measurements" / "7.nc")
    again = results.read(tmp_path / "measurements" / "7.nc")
    np.testing.assert_array_equal(again.anisotropy, table.anisotropy)
    np.testing.assert_array_equal(again.duplicate_points, table.duplicate_points)
    assert again.attrs["corpus"] == "letters"
    assert [p.name for p in (tmp_path / "measurements").iterdir()] == ["7.nc"]


def test_equal_tables_are_equal_files(arrays, tmp_path):
    for name in ("a", "b"):
        results.write(results.table(arrays, 7, {}), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_one_batch_has_no_deviation(arrays):
    table = results.table({"anisotropy": arrays["anisotropy"][:, :1]}, 0, {})
    assert np.isnan(table.anisotropy_std).all()
    np.testing.assert_allclose(table.anisotropy_mean, table.anisotropy[:, :, 0])


def test_tidy_has_one_row_a_number(arrays):
    frame = results.tidy(results.table(arrays, 7, {"run": "decoder", "corpus": "letters"}))
    assert set(frame.run) == {"decoder"}
    assert set(frame.corpus) == {"letters"}
    assert len(frame) == S * (2 * LAYERS + BLOCKS * HEADS)
    row = frame[
        (frame.metric == "query_drift") & (frame.positions == "all") & (frame["layer"] == 3) & (frame["head"] == 1)
    ]
    np.testing.assert_allclose(row["mean"], arrays["query_drift"][0, :, 2, 1].mean(), rtol=1e-6)
    assert (row.step == 7).all()
    assert not frame.duplicated(["step", "positions", "metric", "layer", "head"]).any()
