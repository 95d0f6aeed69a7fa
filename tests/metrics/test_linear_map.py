import jax
import numpy as np
import pytest

from anisoscope.metrics import linear_map as metric
from tests import reference_comparison as reference
from tests.metrics.clouds import EVERY, POINTS, gaussian, rotation

GENERATOR = np.random.default_rng(0)
AT_THE_THRESHOLD = {"zoo: mean 1000 spreads"}  # directions of rounding, of which some count
MAP = GENERATOR.normal(size=(64, 7))
linearity = jax.jit(metric.linearity)


def bent(cloud):
    """What is linear in a cloud, what is not, and noise."""
    x = np.asarray(cloud, np.float64)
    x = (x - x.mean(0)) @ MAP
    x = x / x.std()
    return (x + x**2 / 2 + 0.3 * GENERATOR.normal(size=x.shape)).astype(np.float32)


@pytest.mark.parametrize("name", sorted(EVERY.keys() - AT_THE_THRESHOLD))
def test_agrees_with_least_squares_in_float64(name):
    y = bent(EVERY[name])
    found, expected = linearity(EVERY[name], y), reference.linearity(EVERY[name], y)
    assert 0.05 < expected[0] < 0.98
    np.testing.assert_allclose([found.score[0], found.adjusted[0]], expected, atol=2e-4)


def test_what_is_linear_scores_1_and_what_is_unrelated_nothing_beyond_chance():
    x = gaussian()
    np.testing.assert_allclose(
        linearity(x, (3 * x @ MAP + 5).astype(np.float32)).score, 1, atol=1e-5
    )
    found = linearity(x, gaussian(width=300, seed=9))
    np.testing.assert_allclose(found.score, 64 / (POINTS - 1), rtol=0.03)
    np.testing.assert_allclose(found.adjusted, 0, atol=0.01)
    # constant columns, and dependent ones, are no directions
    half = np.concatenate([x, np.zeros_like(x)], axis=1)
    both = np.concatenate([x, x @ rotation(64)], axis=1).astype(np.float32)
    for wide in (half, both):
        np.testing.assert_allclose(
            linearity(wide, bent(x[:, :64])).score, linearity(x, bent(x)).score, atol=0.05
        )
        np.testing.assert_allclose(metric.basis(wide).rank, 64)


def test_any_linear_map_of_either_and_a_shift_change_nothing():
    x, y = gaussian(), bent(gaussian())
    mixed = (x @ (rotation(64, 1) * 1.1 ** np.arange(64)) + 7).astype(np.float32)
    np.testing.assert_allclose(
        linearity(mixed, 1e-12 * y @ rotation(7, 2)).score, linearity(x, y).score, atol=1e-4
    )


def test_replicates_are_near_the_fits_without_their_points_and_bad_input_is_told():
    x, y = gaussian(), bent(gaussian())
    keep = np.ones((2, POINTS), np.float32)
    keep[1, :60] = 0
    without = linearity(x[60:], y[60:]).adjusted
    moved = abs(float(without[0] - linearity(x, y).adjusted[0]))
    np.testing.assert_allclose(
        linearity(x, y, keep).score[1], linearity(x[60:], y[60:]).score[0], atol=0.02 + moved
    )
    x[3, 3] = np.nan
    assert np.isnan(linearity(x, y)).all()
    assert np.isnan(linearity(np.ones_like(y), y)).all()
    assert np.isnan(linearity(y, np.ones_like(y))).all()
