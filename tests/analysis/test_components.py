"""Where the scatter between seeds comes from."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from anisoscope.analysis.components import components, two_way

DRAWS = 1600


def crossed(values_WS: np.ndarray) -> xr.Dataset:
    grid = list(np.ndindex(values_WS.shape))
    coords = {
        "train.seed": ("run", [w for w, _ in grid]),
        "train.data_seed": ("run", [7 + s for _, s in grid]),
    }
    coords |= {
        "condition": ("run", ["one"] * len(grid)),
        "positions": ["all"],
        "step": [0, 5],
        "layer": [0, 1],
    }
    anisotropy = np.stack([np.full(len(grid), np.nan), values_WS.ravel()])[..., None, None] * [
        1.0,
        3.0,
    ]
    variables = {
        "test_bits": ("run", values_WS.ravel()),
        "middle_less_ends": (("run", "positions"), 2 * values_WS.ravel()[:, None]),
    }
    both = np.stack([anisotropy, 2 * anisotropy])  # the lower end of the interval is not to be read
    variables["anisotropy"] = ("statistic", "step", "run", "positions", "layer"), both
    return xr.Dataset(variables, coords | {"statistic": ["mean", "low"]})


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


def test_the_estimates_are_unbiased():
    """Mean over draws within 4 of its own standard errors, for every component, one of them 0."""
    rng, truth = np.random.default_rng(4), np.array([2.0, 0.0, 1.0])
    found = []
    for _ in range(DRAWS):
        a, b, e = (
            rng.normal(size=shape) * v**0.5
            for shape, v in zip(((3, 1), (1, 2), (3, 2)), truth, strict=True)
        )
        found.append(two_way(a + b + e)[1:4])
    error = np.std(found, axis=0) / len(found) ** 0.5
    assert (np.abs(np.mean(found, axis=0) - truth) < 4 * error).all()
    assert (np.min(found, axis=0)[:2] < 0).all()


def test_components_of_each_condition_quantity_and_layer():
    values_WS = np.random.default_rng(5).normal(size=(2, 3))
    frame = components(crossed(values_WS))
    rows = {
        (row.quantity, None if pd.isna(row.layer) else row.layer): row
        for row in frame.itertuples(index=False)
    }
    factors = {
        ("test_bits", None): 1,
        ("middle_less_ends", None): 2,
        ("anisotropy", 0): 1,
        ("anisotropy", 1): 3,
    }
    assert set(rows) == set(factors)
    expected = two_way(values_WS)
    for key, factor in factors.items():
        assert rows[key].weights == pytest.approx(factor**2 * expected.weights)
        assert rows[key].data == pytest.approx(factor**2 * expected.data)
        assert rows[key].weights_share == pytest.approx(expected.weights_share)


def test_layers_without_a_number_at_any_step_have_no_rows():
    grid = crossed(np.random.default_rng(5).normal(size=(2, 3)))
    known = grid.assign_coords(condition=("run", ["known"] * 6), run=np.arange(6))
    lacking = grid.assign(anisotropy=np.nan * grid["anisotropy"], run=np.arange(6, 12))
    frame = components(xr.concat([lacking, known], "run"))
    assert set(frame[frame.condition == "one"].quantity) == {"test_bits", "middle_less_ends"}
    assert set(frame[frame.condition == "known"].quantity) == {
        "test_bits",
        "middle_less_ends",
        "anisotropy",
    }


def test_seeds_that_are_not_crossed_have_no_components():
    grid = crossed(np.random.default_rng(6).normal(size=(2, 2)))
    assert len(components(grid))
    # the last: four runs of two seeds each, and no grid
    for some in ([0, 1, 2], [0, 3], [0, 1], [0, 0, 3, 3]):
        assert components(grid.isel(run=some)).empty
