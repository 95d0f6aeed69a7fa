"""Where the scatter between seeds comes from."""

import numpy as np
import pytest
import xarray as xr

from anisoscope.analysis.components import components, two_way


def crossed(values_WS: np.ndarray) -> xr.Dataset:
    weights, data = np.indices(values_WS.shape).reshape(2, -1)
    values = values_WS.ravel()
    # no number at step 0; the lower end of the interval is not to be read
    anisotropy = np.multiply.outer([[np.nan, 1], [np.nan, 2]], np.stack([values, 3 * values], 1))
    coords = {"train.seed": ("run", weights), "train.data_seed": ("run", 7 + data)}
    coords |= {"condition": ("run", ["one"] * len(values)), "positions": ["all"]}
    variables = {
        "test_bits": ("run", values),
        "middle_minus_ends": (("run", "positions"), 2 * values[:, None]),
        "anisotropy": (
            ("statistic", "step", "run", "positions", "layer"),
            anisotropy[:, :, :, None],
        ),
    }
    labels = {"statistic": ["mean", "low"], "step": [0, 5], "layer": [0, 1]}
    return xr.Dataset(variables, coords | labels)


def test_components_of_a_known_table():
    """y = 10 + a + b + e with e orthogonal to both: mean squares by hand."""
    a, b, e = (
        np.array([-1.0, 0, 1]),
        np.array([-2.0, 2]),
        np.array([[0.5, -0.5], [-1, 1], [0.5, -0.5]]),
    )
    found = two_way(10 + a[:, None] + b + e)
    residual = 3.0 / 2  # sum of e^2 / (2 x 1)
    assert found.mean == pytest.approx(10)
    assert found.residual == pytest.approx(residual)
    assert found.weights == pytest.approx((2 * 2 / 2 - residual) / 2)
    assert found.data == pytest.approx((3 * 8 / 1 - residual) / 3)
    assert (found.weights_freedom, found.data_freedom, found.residual_freedom) == (2, 1, 2)
    assert found.weights_share + found.data_share + found.residual_share == pytest.approx(1)
    assert found.data_share == pytest.approx(7.5 / (7.5 + 0.25 + 1.5))


def test_a_negative_estimate_is_reported_and_counts_as_none():
    found = two_way(np.array([[1.0, -1.0], [-1.0, 1.0]]))
    assert found.weights == found.data == pytest.approx(-2)
    assert (found.weights_share, found.data_share, found.residual_share) == (0, 0, 1)
    assert np.isnan(two_way(np.ones((2, 2))).residual_share)
    assert np.isnan(two_way(np.array([[1.0, np.nan], [1.0, 1.0]])).weights)


def test_components_of_each_condition_quantity_and_layer():
    values_WS = np.random.default_rng(5).normal(size=(2, 3))
    grid, expected = crossed(values_WS), two_way(values_WS)
    frame = components(grid)
    places = zip(frame["quantity"], frame["layer"].fillna(-1), strict=True)
    factors = {("test_bits", -1): 1, ("middle_minus_ends", -1): 2}
    factors |= {("anisotropy", 0): 1, ("anisotropy", 1): 3}
    rows = dict(zip(places, frame.itertuples(), strict=True))
    assert rows.keys() == factors.keys()
    for place, factor in factors.items():
        assert rows[place].weights == pytest.approx(factor**2 * expected.weights)
        assert rows[place].data == pytest.approx(factor**2 * expected.data)
        assert rows[place].weights_share == pytest.approx(expected.weights_share)
    lacking = components(grid.assign(anisotropy=np.nan * grid["anisotropy"]))
    assert {*lacking["quantity"]} == {"test_bits", "middle_minus_ends"}


def test_seeds_that_are_not_crossed_have_no_components():
    grid = crossed(np.random.default_rng(6).normal(size=(2, 2)))
    assert len(components(grid))
    # the last: four runs of two seeds each, and no grid
    for some in ([0, 1, 2], [0, 3], [0, 1], [0, 0, 3, 3]):
        assert components(grid.isel(run=some)).empty
