"""The curvature and the entropy of windows, beside their float64 twins."""

import jax
import numpy as np
import pytest

from anisoscope.metrics import windows
from tests import reference_leading
from tests.metrics.clouds import CLOUDS, EVERY, POINTS, filled, gaussian

GENERATOR = np.random.default_rng(0)
WINDOW = GENERATOR.permutation(np.repeat([3, 7, 8, 40], [1, POINTS - 101, 80, 20]))
PLACES = GENERATOR.permutation(900)[:POINTS]  # two of three positions of windows of 60
TIME = PLACES % 60
entropy, turns = jax.jit(windows.prompt_entropy), jax.jit(windows.turns)


@pytest.mark.parametrize("name", EVERY)
def test_entropy_agrees_with_float64_in_windows_of_any_size(name):
    """Of one vector, of fewer vectors than dimensions, and of more than are decomposed at once."""
    expected = np.empty(POINTS)
    for window in np.unique(WINDOW):
        expected[window == WINDOW] = reference_leading.entropy(EVERY[name][window == WINDOW])
    entropies, first = entropy(EVERY[name], WINDOW)
    np.testing.assert_allclose(entropies, expected, rtol=1e-4, atol=1e-5)
    assert np.unique(WINDOW[np.asarray(first)]).size == np.asarray(first).sum() == 4


def test_entropy_is_the_logarithm_of_the_number_of_equal_directions():
    cloud, every = np.zeros((POINTS, 64), np.float32), np.zeros(POINTS, int)
    cloud[np.arange(POINTS), np.arange(POINTS) % 16] = 5.0
    sizes = np.bincount(np.arange(POINTS) % 16) / POINTS
    np.testing.assert_allclose(entropy(cloud, every)[0], -(sizes * np.log(sizes)).sum(), rtol=1e-5)
    np.testing.assert_allclose(entropy(np.ones_like(cloud), every)[0], 0, atol=1e-5)
    assert np.isnan(entropy(np.zeros_like(cloud), WINDOW)[0]).all()


@pytest.mark.parametrize("name", CLOUDS)
def test_curvature_agrees_with_float64_in_any_order_and_with_gaps(name):
    found = turns(CLOUDS[name], PLACES // 60, TIME)
    expected = reference_leading.turning_angles(CLOUDS[name], PLACES // 60, TIME)
    assert set(np.flatnonzero(found.valid_P)) == set(expected)
    assert 100 < len(expected) < POINTS
    angles = np.asarray(found.angle_P)[list(expected)]
    np.testing.assert_allclose(angles, list(expected.values()), rtol=1e-3)


def test_curvature_of_paths_whose_angles_are_known():
    every, place = np.zeros(POINTS, int), np.arange(POINTS)
    line = place[:, None] * GENERATOR.normal(size=64)
    # on a circle each step turns by 0.3
    turning = np.stack([np.cos(0.3 * place), np.sin(0.3 * place)], axis=1)
    there_and_back = (place % 2)[:, None] * np.ones(3)
    for path, angle in ((line, 0), (turning, 0.3), (there_and_back, np.pi)):
        found = turns(filled(path), every, place)
        assert np.asarray(found.valid_P).sum() == POINTS - 2
        np.testing.assert_allclose(np.asarray(found.angle_P)[1:-1], angle, atol=2e-3)
    steps = gaussian()
    for path, angle in ((steps.cumsum(axis=0), np.pi / 2), (steps, 2 * np.pi / 3)):
        found = turns(path, every, place)
        np.testing.assert_allclose(np.mean(found.angle_P[1:-1]), angle, atol=0.01)
        # the random walk of the same steps
        np.testing.assert_allclose(np.mean(found.walk_P[1:-1]), np.pi / 2, atol=0.01)


def test_a_stretch_holds_the_points_from_its_first_position_to_the_next():
    value = GENERATOR.normal(size=POINTS).astype(np.float32)
    weight = np.float32(GENERATOR.random(POINTS) < 0.5)
    found = windows.mean_by_stretch(value, weight, TIME)
    for number, first in enumerate(windows.STRETCHES):
        end = [*windows.STRETCHES, np.inf][number + 1]
        kept = (first <= TIME) & (end > TIME) & (weight > 0)
        expected = value[kept].mean() if kept.any() else np.nan
        np.testing.assert_allclose(found[number], expected, rtol=1e-4)
