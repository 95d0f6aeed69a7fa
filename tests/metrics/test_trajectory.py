import jax
import numpy as np
import pytest

from anisoscope.metrics import trajectory
from tests import reference_trajectory as reference
from tests.metrics.clouds import CLOUDS, POINTS, gaussian

GENERATOR = np.random.default_rng(0)
PLACES = GENERATOR.permutation(900)[:POINTS]  # two of three positions of windows of 60
WINDOW, TIME = PLACES // 60, PLACES % 60
turns = jax.jit(trajectory.turns)


@pytest.mark.parametrize("name", CLOUDS)
def test_agrees_with_float64_in_any_order_and_with_gaps(name):
    found, expected = (
        turns(CLOUDS[name], WINDOW, TIME),
        reference.turning_angles(CLOUDS[name], WINDOW, TIME),
    )
    assert set(np.flatnonzero(found.valid_P)) == set(expected)
    assert 100 < len(expected) < POINTS
    for point, angle in expected.items():
        np.testing.assert_allclose(
            found.angle_P[point], angle, rtol=1e-3, err_msg=f"{name}, {point}"
        )


def test_of_paths_whose_angles_are_known():
    every, place = np.zeros(POINTS, int), np.arange(POINTS)
    line = place[:, None] * GENERATOR.normal(size=64)
    # on a circle each step turns by 0.3
    turning = np.stack([np.cos(0.3 * place), np.sin(0.3 * place)], axis=1)
    there_and_back = (place % 2)[:, None] * np.ones(3)
    for path, angle in ((line, 0), (turning, 0.3), (there_and_back, np.pi)):
        found = turns(path.astype(np.float32), every, place)
        assert np.asarray(found.valid_P).sum() == POINTS - 2
        np.testing.assert_allclose(np.asarray(found.angle_P)[1:-1], angle, atol=2e-3)
    steps = gaussian(width=256)
    walk, points = (turns(path, every, place) for path in (steps.cumsum(axis=0), steps))
    np.testing.assert_allclose(np.mean(walk.angle_P[1:-1]), np.pi / 2, atol=0.01)
    np.testing.assert_allclose(np.mean(points.angle_P[1:-1]), 2 * np.pi / 3, atol=0.01)
    for found in (walk, points):  # which a random walk of the same steps does not have
        np.testing.assert_allclose(np.mean(found.walk_P[1:-1]), np.pi / 2, atol=0.01)


def test_a_stretch_holds_the_points_from_its_first_position_to_the_next():
    value = GENERATOR.normal(size=POINTS).astype(np.float32)
    weight = np.float32(GENERATOR.random(POINTS) < 0.5)
    found = trajectory.mean_by_stretch(value, weight, TIME)
    for number, first in enumerate(trajectory.STRETCHES):
        end = [*trajectory.STRETCHES, np.inf][number + 1]
        kept = (first <= TIME) & (end > TIME) & (weight > 0)
        np.testing.assert_allclose(
            found[number], value[kept].mean() if kept.any() else np.nan, rtol=1e-4
        )
