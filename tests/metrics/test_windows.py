import jax
import numpy as np
import pytest

from anisoscope.metrics import windows
from tests import reference_leading
from tests.metrics.clouds import EVERY, POINTS

WINDOW = np.random.default_rng(0).permutation(np.repeat([3, 7, 8, 40], [1, POINTS - 101, 80, 20]))
entropy = jax.jit(windows.prompt_entropy)


def twin(cloud, window):
    """Of each point's window, in float64."""
    entropies = np.empty(len(cloud))
    for one in np.unique(window):
        entropies[window == one] = reference_leading.entropy(cloud[window == one])
    return entropies


@pytest.mark.parametrize("name", EVERY)
def test_agrees_with_float64_in_windows_of_any_size(name):
    """Of one vector, of fewer vectors than dimensions and of more, and of more than are decomposed
    at once.
    """
    entropies, first = entropy(EVERY[name], WINDOW)
    np.testing.assert_allclose(entropies, twin(EVERY[name], WINDOW), rtol=1e-4, atol=1e-5)
    assert np.unique(WINDOW[np.asarray(first)]).size == np.asarray(first).sum() == 4


def test_is_the_logarithm_of_the_number_of_equal_directions_and_nothing_for_one():
    cloud = np.zeros((POINTS, 64), np.float32)
    cloud[np.arange(POINTS), np.arange(POINTS) % 16] = 5.0
    every = np.zeros(POINTS, int)
    sizes = np.bincount(np.arange(POINTS) % 16) / POINTS
    np.testing.assert_allclose(entropy(cloud, every)[0], -(sizes * np.log(sizes)).sum(), rtol=1e-5)
    np.testing.assert_allclose(entropy(np.ones_like(cloud), every)[0], 0, atol=1e-5)
    assert np.isnan(entropy(np.zeros_like(cloud), WINDOW)[0]).all()
    cloud[3] *= 1e4  # one massive vector hides all others
    assert entropy(cloud, every)[0][0] < 1e-3
