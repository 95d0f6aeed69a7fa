import contextlib

import numpy as np
import pytest
import xarray as xr

from panel import plateau
from panel.intervals import summarise
from panel.quantities import COORDINATES, QUANTITIES
from tables import results
from tables.summary import summary
from workdir.errors import RunError

S, G, J, LAYERS, BLOCKS, HEADS = 2, 3, 4, 4, 3, 2
SIZES = {"batch": G, "positions": S, "layer": LAYERS, "block": BLOCKS, "head": HEADS, "jackknife": 1 + J, "sections": 5}
SIZES |= {name: len(values) for name, values in COORDINATES.items()} | {"other_layer": LAYERS}
NAMES = ("anisotropy", "twonn", "duplicate_points", "query_drift", "coordinate_share", "gride", "cka_layers")
NULLS = ("gaussian", "shuffled", "untrained")
ATTRIBUTES = {"run": "decoder", "corpus": "letters"}


def arrays(seed=0):
    rng = np.random.default_rng(seed)
    names = (*NAMES, "anisotropy_gaussian", "anisotropy_shuffled", "query_drift_shuffled")
    shapes = {name: [SIZES[dim] for dim in quantity_of(name).raw_dims] for name in names}
    return {name: rng.random(shape).astype(np.float32) for name, shape in shapes.items()}


def quantity_of(name):
    return QUANTITIES[name.removesuffix("_gaussian").removesuffix("_shuffled")]


@pytest.fixture
def raw():
    return results.table(arrays(), 7, ATTRIBUTES)


@pytest.fixture
def untrained():
    return results.table(arrays(1), 0, ATTRIBUTES)


def test_a_raw_table_labels_every_replicate(raw):
    assert raw.anisotropy.dims == ("positions", "batch", "layer", "jackknife")
    assert raw.twonn.dims == ("positions", "batch", "layer", "sections")
    assert raw.duplicate_points.dims == ("positions", "batch", "layer")
    assert raw.coordinate_share.dims == ("positions", "batch", "layer", "top", "jackknife")
    assert raw.step == 7
    assert list(raw.positions.values) == ["all", "without_first"]
    assert list(raw.block.values) == [1, 2, 3]
    assert list(raw.top.values) == [1, 3, 10]
    np.testing.assert_allclose(raw.depth, [0, 1 / 3, 2 / 3, 1])
    one = raw.anisotropy_gaussian.sel(positions="without_first", batch=2, layer=3)
    np.testing.assert_array_equal(one, arrays()["anisotropy_gaussian"][2, 1, 3])


def test_a_summary_holds_values_moments_and_intervals(raw):
    table = summary(raw, None, ())
    assert table.anisotropy.dims == ("step", "positions", "batch", "layer")
    assert table.query_drift_mean.dims == ("step", "positions", "block", "head")
    assert not set(table.dims) & {"jackknife", "sections", "null"}
    values = arrays()["anisotropy"][:, 1, 2]
    one = table.sel(step=7, positions="without_first", layer=2)
    np.testing.assert_array_equal(one.anisotropy, values[:, 0])
    np.testing.assert_allclose(one.anisotropy_mean, values[:, 0].mean(), rtol=1e-6)
    np.testing.assert_allclose(one.anisotropy_std, values[:, 0].std(ddof=1), rtol=1e-6)
    found = summarise(values, "jackknife")
    np.testing.assert_allclose([one.anisotropy_low, one.anisotropy_high], [found.low, found.high])
    for name in NAMES:
        assert {"long_name", "units", "formula", "source", "resampling"} <= table[name].attrs.keys()
        assert (table[f"{name}_low"] < table[f"{name}_mean"]).all()
        assert (table[f"{name}_mean"] < table[f"{name}_high"]).all()


def test_counts_have_the_interval_of_the_batches(raw):
    one = summary(raw, None, ()).duplicate_points_low.values[0, 0, 0]
    np.testing.assert_allclose(one, summarise(arrays()["duplicate_points"][:, 0, :1], "").low)


def test_the_excess_is_that_of_each_replicate_over_its_null_model(raw, untrained):
    table = summary(raw, untrained, NULLS).sel(step=7, positions="all", layer=1)
    own, other = arrays(), {"untrained": arrays(1)["anisotropy"]}
    other |= {null: own[f"anisotropy_{null}"] for null in ("gaussian", "shuffled")}
    for null in NULLS:
        value, model = own["anisotropy"][:, 0, 1].astype(float), other[null][:, 0, 1]
        one, found = table.sel(null=null), summarise(value - model, "jackknife")
        np.testing.assert_allclose(one.anisotropy_null, model[:, 0].mean(), rtol=1e-6)
        np.testing.assert_allclose(one.anisotropy_excess, found.mean)
        np.testing.assert_allclose(one.anisotropy_excess, one.anisotropy_mean - one.anisotropy_null, rtol=1e-5)
        np.testing.assert_allclose([one.anisotropy_excess_low, one.anisotropy_excess_high], [found.low, found.high])


def test_what_a_null_model_does_not_have_is_nan_and_what_none_has_is_left_out(raw, untrained):
    table = summary(raw, untrained, NULLS)
    assert np.isnan(table.query_drift_excess.sel(null="gaussian")).all()
    assert np.isfinite(table.query_drift_excess.sel(null=["shuffled", "untrained"])).all()
    assert "cka_layers_excess" not in table
    assert "twonn_excess" not in summary(raw, None, NULLS)


@pytest.mark.parametrize(
    ("curve", "value", "first", "last"),
    [
        ([9, 6, 4, 4.1, 4.2, 4, 2], (4 * 4.1 * 4.2 * 4) ** 0.25, 4, 32),
        ([64, 32, 16, 8, 4, 2, 1], np.nan, np.nan, np.nan),
    ],
)
def test_the_plateau_is_that_of_the_mean_curve_read_off_every_replicate(curve, value, first, last):
    noise = np.random.default_rng(0).normal(scale=0.3, size=(G, S, LAYERS, 7, 5))
    noise[..., 0] -= noise[..., 0].mean(0, keepdims=True)  # single batches have other plateaus, or none
    raw = results.table({"gride": (np.array(curve)[:, None] + noise).astype(np.float32)}, 0, ATTRIBUTES)
    table = summary(raw, None, ()).isel(step=0, positions=0, layer=0)
    np.testing.assert_allclose(table.plateau_mean, value, rtol=1e-2)  # geometric mean of noisy batches
    np.testing.assert_array_equal([table.plateau_first, table.plateau_last], [first, last])
    if np.isfinite(value):
        inside = [curve.index(4), 3, 4, 5]
        found = summarise(np.exp(np.log((np.array(curve)[:, None] + noise)[:, 0, 0, inside]).mean(1)), "sections")
        np.testing.assert_allclose(table.plateau_mean, found.mean, rtol=1e-5)


def bounds(curve, noise_GRK):
    gride_GRSLK = (np.array(curve) + noise_GRK)[:, :, None, None]
    return (float(end[0, 0]) for end in plateau.interval(gride_GRSLK)), gride_GRSLK


def test_the_interval_of_a_plateau_holds_the_choice_of_its_scales():
    """Of 4, 4.2, 4.39, 4.62 the first three or the last three agree within 10 %, as chance has it."""
    noise_GRK = 0.05 * np.random.default_rng(1).normal(size=(G, 5, 7))
    noise_GRK[:, 0] = 0
    (low, high), gride_GRSLK = bounds([4, 4.2, 4.39, 4.62, 9, 18, 36], noise_GRK)
    assert low < (4 * 4.2 * 4.39) ** (1 / 3) < (4.2 * 4.39 * 4.62) ** (1 / 3) < high
    (low,), (high,) = plateau.interval(gride_GRSLK, gride_GRSLK - 3)  # the same noise: the excess is sure
    assert low == pytest.approx(3, abs=0.03)
    assert high == pytest.approx(3, abs=0.03)
    (low, high), _ = bounds([64, 32, 16, 8, 4, 2, 1], noise_GRK)
    assert np.isnan([low, high]).all()
    (low, high), gride_GRSLK = bounds([9, 6, 4, 4.1, 4.2, 4, 2], noise_GRK)  # the choice is sure
    found = summarise(np.exp(np.log(gride_GRSLK[:, :, 0, 0, 2:6]).mean(2)), "sections")
    np.testing.assert_allclose([low, high], [found.low, found.high], atol=0.15 * (found.high - found.mean))


def test_a_scale_that_sections_lack_moves_no_interval_of_a_plateau_elsewhere():
    noise_GRK = 0.02 * np.random.default_rng(3).normal(size=(G, 5, 7))
    (low, high), _ = bounds([9, 6, 4, 4.1, 4.2, 3, 1], noise_GRK)
    noise_GRK[:, 1:, 5:] = np.nan  # too few points for the two largest
    again, _ = bounds([9, 6, 4, 4.1, 4.2, 3, 1], noise_GRK)
    np.testing.assert_allclose(list(again), [low, high], rtol=1e-3)
    assert low < (4 * 4.1 * 4.2) ** (1 / 3) < high


def test_the_interval_of_a_plateau_without_replicates_is_that_of_the_batches():
    curve_K = np.array([9, 6, 4, 4.1, 4.2, 4, 2])
    noise_G1K = 0.02 * np.random.default_rng(2).normal(size=(G, 1, 7))
    (low, high), gride_GRSLK = bounds(curve_K, noise_G1K)
    found = summarise(np.exp(np.log(gride_GRSLK[:, :, 0, 0, 2:6]).mean(2)), "sections")
    np.testing.assert_allclose([low, high], [found.low, found.high], atol=0.15 * (found.high - found.mean))
    assert np.isnan(plateau.interval(gride_GRSLK[:1])).all()
    moved = found._replace(mean=found.high + 1)
    assert plateau.with_choice(moved, gride_GRSLK).high == moved.mean


def curves(curve, replicates=5):
    """A table whose every replicate of every batch is this curve."""
    values = np.broadcast_to(np.array(curve, np.float32)[:, None], (G, S, LAYERS, 7, replicates))
    return {"gride": values.copy()}


def test_the_untrained_plateau_is_read_on_the_same_scales():
    raw = results.table(curves([30, 20, 15, 5, 5, 5, 5]), 7, ATTRIBUTES)
    untrained = results.table(curves([10, 10, 10, 10, 20, 30, 40]), 0, ATTRIBUTES)  # its own plateau is elsewhere
    table = summary(raw, untrained, ("untrained",)).isel(step=0, positions=0, layer=0, null=0)
    np.testing.assert_array_equal([table.plateau_first, table.plateau_last], [8, 64])
    np.testing.assert_allclose(table.plateau_null, (10 * 20 * 30 * 40) ** 0.25, rtol=1e-6)
    np.testing.assert_allclose(table.plateau_excess, 5 - (10 * 20 * 30 * 40) ** 0.25, rtol=1e-6)


def test_a_plateau_is_not_read_where_a_section_or_a_batch_has_no_value():
    arrays = curves([30, 20, 15, 5, 5, 5, 5])
    arrays["gride"][:, :, 0, -1, 1:] = np.nan  # sections too small for the largest scale
    arrays["gride"][1, :, 1, -1] = np.nan  # a batch too small
    table = summary(results.table(arrays, 7, ATTRIBUTES), None, ()).isel(step=0, positions=0)
    assert table.plateau_mean.values[0] == pytest.approx(5)
    assert np.isnan(table.plateau_low.values[0])
    assert table.plateau_last.values[1] == 32  # of the scales that all batches have
    np.testing.assert_allclose(table.plateau_mean.values[1:], 5, rtol=1e-6)


def test_no_quantity_is_named_like_a_statistic_of_another():
    suffixes = ("mean", "std", "low", "high", "null", "excess", "excess_low", "excess_high", "gaussian", "shuffled")
    assert not {f"{name}_{suffix}" for name in QUANTITIES for suffix in suffixes} & QUANTITIES.keys()


def test_a_table_survives_the_disk_and_nothing_half_written_stays(raw, tmp_path):
    results.write(raw, tmp_path / "measurements" / "7.nc")
    again = results.read(tmp_path / "measurements" / "7.nc")
    xr.testing.assert_identical(again.drop_attrs(), raw.drop_attrs())
    assert again.attrs["corpus"] == "letters"
    assert [p.name for p in (tmp_path / "measurements").iterdir()] == ["7.nc"]


def test_a_flipped_byte_is_never_read_as_other_numbers(raw, tmp_path):
    path = tmp_path / "7.nc"
    results.write(raw[["anisotropy", "twonn"]], path)
    content, whole = path.read_bytes(), results.read(path)
    rng = np.random.default_rng(0)
    name = content.index(b"table_sha256")
    unchecked = range(name, name + 12)  # spelt otherwise, a table has no digest; nothing else has changed in it
    header = range(0, content.index(b"anisotropy"), 5)
    for place in (*unchecked, *header, *rng.integers(len(content), size=100)):
        path.write_bytes(content[:place] + bytes([content[place] ^ rng.integers(1, 256)]) + content[place + 1 :])
        if place not in unchecked:
            with pytest.raises(RunError, match=r"table .*7\.nc is damaged \(.*move it away"):
                results.read(path)
        else:
            with contextlib.suppress(RunError):
                xr.testing.assert_equal(results.read(path), whole)


def test_a_changed_attribute_is_damage_and_a_table_of_old_has_no_digest(raw, tmp_path):
    path = tmp_path / "7.nc"
    results.write(raw, path)
    path.write_bytes(path.read_bytes().replace(b"letters", b"lettres"))
    with pytest.raises(RunError, match="has changed since it was written"):
        results.read(path)
    raw.to_netcdf(path, engine="scipy", format="NETCDF3_64BIT")
    xr.testing.assert_equal(results.read(path), raw)


def test_a_table_that_was_read_is_written_with_its_own_digest(raw, tmp_path):
    results.write(raw, tmp_path / "7.nc")
    results.write(results.read(tmp_path / "7.nc").isel(layer=[0, 1]), tmp_path / "part.nc")
    assert results.read(tmp_path / "part.nc").sizes["layer"] == 2


def test_equal_tables_are_equal_files(raw, tmp_path):
    for name in ("a", "b"):
        results.write(summary(raw, None, ()), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_one_batch_has_no_deviation_but_an_interval():
    table = summary(results.table({"anisotropy": arrays()["anisotropy"][:1]}, 0, {}), None, ())
    assert np.isnan(table.anisotropy_std).all()
    assert np.isfinite(table.anisotropy_low).all()
    np.testing.assert_allclose(table.anisotropy_mean, table.anisotropy[:, :, 0])


def test_tidy_has_one_row_a_number(raw, untrained):
    table = summary(raw, untrained, NULLS)
    frame = results.tidy(table)
    assert set(frame.run) == {"decoder"}
    assert set(frame.corpus) == {"letters"}
    further = 3 * LAYERS + 7 * LAYERS + LAYERS**2
    assert len(frame) == S * (4 * LAYERS + BLOCKS * HEADS + further)  # with the plateau
    assert not frame.duplicated(["step", "positions", "metric", "layer", "head", "axis", "at"]).any()
    row = frame[
        (frame.metric == "query_drift") & (frame.positions == "all") & (frame["layer"] == 3) & (frame["head"] == 1)
    ]
    one = table.sel(positions="all", block=3, head=1)
    np.testing.assert_allclose(row["mean"], one.query_drift_mean)
    np.testing.assert_allclose(row.excess_shuffled_low, one.query_drift_excess_low.sel(null="shuffled"))
    row = frame[(frame.metric == "coordinate_share") & (frame.positions == "all") & (frame["layer"] == 2)]
    row = row[(row.axis == "top") & (row["at"] == 3)]
    np.testing.assert_allclose(row.high, table.coordinate_share_high.sel(positions="all", layer=2, top=3))
    assert (row.step == 7).all()
