"""Known answers of what is meant by bell, growth and phases."""

import numpy as np
import pytest
import xarray as xr

from anisoscope.analysis.shapes import shapes, sink_head_share

# hidden states 1 to 11
OPT_125M = (0.978, 0.987, 0.995, 0.995, 0.995, 0.994, 0.992, 0.989, 0.983, 0.973, 0.959)


def table(steps=(0, 10, 100), **values) -> xr.Dataset:
    """Means over batches: each value (step, layer) or (step, block, head), halved without the first
    position.
    """
    variables = {}
    for name, array in values.items():
        array = np.array(array, dtype=float)
        dims = ("layer",) if array.ndim == 2 else ("block", "head")
        means = np.stack([array, array / 2], axis=1)
        others = np.full_like(means, 1e6)  # not to be read
        variables[name] = ("statistic", "step", "positions", *dims), np.array([means, others])
    labels = {"statistic": ["mean", "high"]}
    return xr.Dataset(
        variables, labels | {"step": list(steps), "positions": ["all", "without_first"]}
    )


def profile(*layers: float) -> xr.Dataset:
    return table((0,), anisotropy=[[9.0, *layers]])  # 9: an embedding that must not count


@pytest.mark.parametrize(
    ("layers", "bell", "middle", "unevenness"),
    [
        ((0.2, 0.6, 0.6, 0.2), 0.4, 0.4, 0.2),
        ((0.6, 0.2, 0.2, 0.6), -0.4, -0.4, 0.2),
        ((0.3, 0.3, 0.3, 0.3), 0.0, 0.0, 0.0),
        ((0.1, 0.2, 0.3, 0.4), -0.1, 0.0, np.std([0.1, 0.2, 0.3, 0.4])),
        ((0.1, 0.5, 0.3), 0.2, 0.3, np.std([0.1, 0.5, 0.3])),
        ((0.1, 0.5), np.nan, np.nan, 0.2),
        ((0.1, np.nan, 0.3), np.nan, np.nan, np.nan),
        (OPT_125M, 0.995 - 0.978, np.mean(OPT_125M[1:-1]) - (0.978 + 0.959) / 2, np.std(OPT_125M)),
    ],
)
def test_bell_and_unevenness(layers, bell, middle, unevenness):
    found = shapes(profile(*layers))
    np.testing.assert_allclose(found.bell_blocks, [bell, bell / 2], atol=1e-15)
    np.testing.assert_allclose(found.middle_less_ends, [middle, middle / 2], atol=1e-15)
    np.testing.assert_allclose(found.unevenness, [unevenness, unevenness / 2], atol=1e-15)


def test_a_peak_in_any_block_but_the_last_is_a_bell_where_the_embedding_is_an_end():
    """Decoders with learned positions: a peak in block 1 that the middle less the ends puts below
    0.
    """
    found = shapes(table((0,), anisotropy=[[0.14, 0.62, 0.48, 0.20, 0.25]])).sel(positions="all")
    assert found.bell_whole == pytest.approx(0.62 - 0.25)
    assert found.bell_blocks == pytest.approx(0.48 - 0.62)
    assert found.middle_less_ends == pytest.approx(-0.095)


def test_straightening_valley_and_linearity_are_of_the_last_checkpoint_and_of_blocks():
    last = {"turning_angle": [2.1, 2.0, 1.5, 1.8, 1.9], "window_entropy": [0.1, 2.0, 1.5, 1.8, 1.9]}
    last["linearity"] = [np.nan, 0.9, 0.8, 1.0, 0.9]
    found = shapes(table((0, 10), **{name: [[0] * 5, one] for name, one in last.items()})).sel(
        positions="all"
    )
    assert found.straightening_blocks == pytest.approx(2.0 - 1.9)
    assert found.straightening_whole == pytest.approx(2.1 - 1.9)
    assert found.entropy_valley == pytest.approx(1.5 - 1.9)
    assert found.last_linearity == pytest.approx(0.9)
    single = shapes(table((0, 10), turning_angle=[[0, 0], [2.1, 1.9]])).sel(positions="all")
    assert np.isnan(single.straightening_blocks)
    assert single.straightening_whole == pytest.approx(2.1 - 1.9)


def test_a_sink_head_is_counted_over_all_heads_of_all_blocks_at_any_threshold():
    """One head of 16 is 1/16, not a quarter of its block."""
    first = table(
        (0,), attention_first=np.array([[[0.44, 0.1, 0.0, 0.0], *[[0.0] * 4] * 3]])
    ).attention_first
    values = first.sel(statistic="mean", positions="all")
    assert [sink_head_share(values, above).item() for above in (0.05, 0.3, 0.5)] == [
        2 / 16,
        1 / 16,
        0,
    ]


def test_growth_fall_and_phases():
    given = table(
        anisotropy=[[5, 0.1, 0.3], [5, 0.8, 0.8], [5, 0.4, 0.6]],
        mean_cosine=[[5, 0.1, 0.1], [5, 0.9, 0.9], [5, 0.2, 0.6]],
        drift=[[5, 1, 3], [5, 50, 50], [5, 4, 12]],
        twonn=[[5, 1, 3], [5, 8, 24], [5, 4, 4]],
        twonn_microscope=[[5, 8, 8], [5, 2, 2], [5, 1, 1]],
    )
    found = shapes(given).sel(positions="all")
    expected = {
        "growth": 0.3,
        "fall": 0.3,
        "cosine_growth": 0.3,
        "drift_growth": 2,
        "expansion": 3,
        "compression": 2,
    }
    expected |= {"expansion_microscope": 0, "compression_microscope": 3}
    for name, value in expected.items():
        assert found[name].item() == pytest.approx(value), name


def test_sharpness_is_over_blocks_and_heads_and_against_the_start():
    entropy, first = [[[4, 2], [4, 2]], [[1, 1], [2, 0]]], [[[0] * 2] * 2, [[1, 0]] * 2]
    found = shapes(table((0, 5), attention_entropy=entropy, attention_first=first))
    np.testing.assert_allclose(found.sharpening, [2, 1])
    np.testing.assert_allclose(found.sink, [0.5, 0.25])


def test_a_checkpoint_without_a_number_is_passed_over_but_first_and_last_are_not():
    dimensions = [[1, 2, 2], [1, np.nan, 64], [1, 8, 8], [1, 4, 4]]
    found = shapes(table((0, 1, 2, 3), twonn=dimensions)).sel(positions="all")
    assert (found.expansion.item(), found.compression.item()) == (2, 1)
    for step, lost, kept in ((0, "expansion", "compression"), (-1, "compression", "expansion")):
        broken = np.array(dimensions, dtype=float)
        broken[step, 1] = np.nan
        found = shapes(table((0, 1, 2, 3), twonn=broken)).sel(positions="all")
        assert np.isnan(found[lost])
        assert np.isfinite(found[kept])


def test_without_the_first_checkpoint_there_is_no_growth():
    found = shapes(table((1, 2), anisotropy=[[0, 0.1, 0.1]] * 2, drift=[[0, 1, 1]] * 2))
    assert np.isnan([found.growth, found.drift_growth]).all()
    np.testing.assert_allclose(found.fall, 0)
    assert np.isnan(shapes(table((0, 1), drift=[[0, 0, 0]] * 2)).drift_growth).all()  # 0 / 0


def test_levels_are_of_the_last_checkpoint_over_blocks_and_in_doublings_where_a_scale_is_their_own():
    given = table(
        anisotropy=[[9, 0, 0], [9, 0, 0], [9, 0.2, 0.4]],
        drift=[[9, 1, 1], [9, 1, 1], [9, 3, 5]],
        query_drift=[np.ones((2, 2))] * 2 + [[[1, 3], [5, 7]]],
    )
    found = shapes(given)
    np.testing.assert_allclose(found.last_anisotropy, [0.3, 0.15])
    np.testing.assert_allclose(found.last_drift, [2, 1])
    np.testing.assert_allclose(found.last_query_drift, [2, 1])
