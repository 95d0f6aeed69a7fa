"""Known answers of what is meant by bell, growth and phases."""

import numpy as np
import pytest
import xarray as xr

from anisoscope.analysis.shapes import SHAPES, read_curve, shapes, sink_head_share
from anisoscope.metrics.attention import SINK_FROM

# hidden states 1 to 11
OPT_125M = (0.978, 0.987, 0.995, 0.995, 0.995, 0.994, 0.992, 0.989, 0.983, 0.973, 0.959)


def table(**values) -> xr.Dataset:
    """Means over batches: each value (step, layer) or (step, block, head), halved without the first token.

    Steps are 0, 10, 100 …
    """
    variables = {}
    for name, array in values.items():
        array = np.array(array, dtype=float)
        dims = ("layer",) if array.ndim == 2 else ("block", "head")
        means = np.stack([array, array / 2], axis=1)
        others = np.full_like(means, 1e6)  # not to be read
        variables[name] = ("statistic", "step", "positions", *dims), np.array([means, others])
    labels = {"statistic": ["mean", "high"], "positions": ["all", "without_first_token"]}
    return xr.Dataset(variables, labels | {"step": [0, 10, 100][: len(array)]})


def read(**values) -> xr.Dataset:
    return shapes(table(**values)).sel(positions="all")


@pytest.mark.parametrize(
    ("layers", "bell", "middle", "std_over_layers"),
    [
        ((0.2, 0.6, 0.6, 0.2), 0.4, 0.4, 0.2),
        ((0.6, 0.2, 0.2, 0.6), -0.4, -0.4, 0.2),
        ((0.3, 0.3, 0.3, 0.3), 0.0, 0.0, 0.0),
        ((0.1, 0.2, 0.3, 0.4), -0.1, 0.0, np.std([0.1, 0.2, 0.3, 0.4])),
        ((0.1, 0.5, 0.3), 0.2, 0.3, np.std([0.1, 0.5, 0.3])),
        ((0.1, 0.5), np.nan, np.nan, 0.2),
        ((0.1,), np.nan, np.nan, np.nan),
        ((0.1, np.nan, 0.3), np.nan, np.nan, np.nan),
        (OPT_125M, 0.995 - 0.978, np.mean(OPT_125M[1:-1]) - (0.978 + 0.959) / 2, np.std(OPT_125M)),
    ],
)
def test_bell_and_std_over_layers(layers, bell, middle, std_over_layers):
    found = shapes(table(anisotropy=[[9.0, *layers]]))  # 9: an embedding that must not count
    expected = {
        "bell_blocks": bell,
        "middle_minus_ends": middle,
        "std_over_layers": std_over_layers,
    }
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], [value, value / 2], atol=1e-15, err_msg=name)


def test_a_peak_in_any_block_but_the_last_is_a_bell_where_the_embedding_is_an_end():
    """Decoders with learned positions: a peak in block 1 that the middle less the ends puts below
    0.
    """
    found = read(anisotropy=[[0.14, 0.62, 0.48, 0.20, 0.25]])
    assert found.bell_with_embedding == pytest.approx(0.62 - 0.25)
    assert found.bell_blocks == pytest.approx(0.48 - 0.62)
    assert found.middle_minus_ends == pytest.approx(-0.095)


def test_straightening_valley_and_linearity_are_of_the_last_checkpoint_and_of_blocks():
    found = read(
        curvature=[[0] * 5, [2.1, 2.0, 1.5, 1.8, 1.9]],
        prompt_entropy=[[0] * 5, [0.1, 2.0, 1.5, 1.8, 1.9]],
        linearity=[[0] * 5, [np.nan, 0.9, 0.8, 1.0, 0.9]],
    )
    assert found.straightening_blocks == pytest.approx(2.0 - 1.9)
    assert found.straightening_from_embedding == pytest.approx(2.1 - 1.9)
    assert found.entropy_valley == pytest.approx(1.5 - 1.9)
    assert found.last_linearity == pytest.approx(0.9)
    single = read(curvature=[[0, 0], [2.1, 1.9]])
    assert np.isnan(single.straightening_blocks)
    assert single.straightening_from_embedding == pytest.approx(2.1 - 1.9)


def test_a_sink_head_is_counted_over_all_heads_of_all_blocks_at_any_threshold():
    """One head of 16 is 1/16, not a quarter of its block."""
    first = table(attention_first_token=[[[0.44, 0.1, 0.0, 0.0], *[[0.0] * 4] * 3]])
    curve = read_curve(first, "attention_first_token")
    found = [16 * sink_head_share(curve, above)[0] for above in (0.05, 0.1, 0.3, 0.5)]
    assert found == [2, 1, 1, 0]  # 0.1 is not above 0.1
    assert f"above {SINK_FROM:g}" in SHAPES["sink_head_share"].formula


@pytest.mark.parametrize(
    ("quantity", "values", "expected"),
    [
        (
            "anisotropy",
            [[5, 0.1, 0.3], [5, 0.8, 0.8], [5, 0.4, 0.6]],
            {"growth": 0.3, "drop_from_peak": 0.3},
        ),
        ("anisotropy", [[9, 0, 0], [9, 0.2, 0.4]], {"last_anisotropy": 0.3}),
        ("mean_cosine", [[5, 0.1, 0.1], [5, 0.9, 0.9], [5, 0.2, 0.6]], {"cosine_growth": 0.3}),
        ("drift", [[5, 1, 3], [5, 50, 50], [5, 4, 12]], {"drift_growth": 2}),
        ("drift", [[9, 1, 1], [9, 3, 5]], {"last_drift": 2}),
        ("drift", [[0, 0, 0]] * 2, {"drift_growth": np.nan}),  # 0 / 0
        ("query_drift", [np.ones((2, 2)), [[1, 3], [5, 7]]], {"last_query_drift": 2}),
        ("twonn", [[5, 1, 3], [5, 8, 24], [5, 4, 4]], {"expansion": 3, "compression": 2}),
        (
            "twonn_microscope",
            [[5, 8, 8], [5, 2, 2], [5, 1, 1]],
            {"expansion_microscope": 0, "compression_microscope": 3},
        ),
        ("attention_entropy", [[[4, 2], [4, 2]], [[1, 1], [2, 0]]], {"entropy_decrease": 2}),
        # whatever the signs of heads
        ("query_key_alignment", [[[0.1, -0.1]], [[-0.5, 0.3]]], {"alignment_growth": 0.3}),
        ("attention_first_token", [[[0] * 2] * 2, [[1, 0]] * 2], {"sink": 0.5, "sink_token": 0.5}),
        ("norm_ratio", [[99, 2, 11, 3]], {"largest_norm_ratio": 11}),
        # of a checkpoint without a number in the middle, at the begin, at the end
        ("twonn", [[1, 2, 2], [1, np.nan, 64], [1, 4, 4]], {"expansion": 1, "compression": 0}),
        ("twonn", [[1, np.nan, 2], [1, 8, 8], [1, 4, 4]], {"expansion": np.nan, "compression": 1}),
        ("twonn", [[1, 2, 2], [1, 8, 8], [1, np.nan, 4]], {"expansion": 2, "compression": np.nan}),
    ],
)
def test_growth_phases_and_levels(quantity, values, expected):
    found = read(**{quantity: values})
    for name, value in expected.items():
        assert found[name].item() == pytest.approx(value, nan_ok=True), name


def test_without_the_first_checkpoint_there_is_no_growth():
    values = table(anisotropy=[[0, 0.1, 0.1]] * 2, drift=[[0, 1, 1]] * 2)
    found = shapes(values.assign_coords(step=[1, 2]))
    assert np.isnan([found.growth, found.drift_growth]).all()
    np.testing.assert_allclose(found.drop_from_peak, 0)


def test_the_order_of_steps_in_a_table_does_not_matter():
    values = table(anisotropy=[[0, 0.1, 0.1], [0, 0.4, 0.4], [0, 0.3, 0.3]])
    xr.testing.assert_identical(shapes(values.isel(step=[2, 0, 1])), shapes(values))
