import jax
import numpy as np
import pytest

from anisoscope.metrics import imbalance
from anisoscope.metrics.comparison import select_nearest
from anisoscope.metrics.neighbors import nearest_neighbors
from tests import reference_comparison as reference
from tests.metrics.clouds import CLOUDS, gaussian, with_copies

GENERATOR = np.random.default_rng(0)


@jax.jit
def directed(a, b):
    near = select_nearest(nearest_neighbors(a, 10))
    return imbalance.information_imbalance(near.index_PC[None, :, 0], near.first_P[None], b)[0]


def found(a, b):
    """One shape for all widths: columns of zeros change no distance."""
    return directed(*(np.pad(x, ((0, 0), (0, 64 - x.shape[1]))) for x in (a, b)))


def relative(cloud, width=9):
    """Some of a cloud, and noise: another width."""
    x = np.asarray(cloud, np.float64) - np.mean(cloud, axis=0)
    x = x @ np.random.default_rng(2).normal(size=(x.shape[1], width))
    return (x + 0.5 * x.std() * GENERATOR.normal(size=x.shape)).astype(np.float32)


@pytest.mark.parametrize("name", CLOUDS)
def test_agrees_with_float64_in_both_directions(name):
    cloud, other = CLOUDS[name], relative(CLOUDS[name])
    for a, b in ((cloud, other), (other, cloud)):
        expected = reference.information_imbalance(a, b)
        assert 0.02 < expected < 0.99
        np.testing.assert_allclose(found(a, b), expected, rtol=2e-3)


def test_the_whole_tells_a_part_and_not_the_other_way():
    x = gaussian(width=6)
    whole, part = x, x[:, :2]
    assert found(whole, part) < 0.7 * found(part, whole)


def test_copies_of_either_count_once():
    x = with_copies(gaussian())
    y = with_copies(relative(x))
    np.testing.assert_allclose(found(x, y), reference.information_imbalance(x, y), rtol=2e-3)
    np.testing.assert_allclose(found(x, x), 2 / len(np.unique(x, axis=0)), rtol=1e-6)


@pytest.mark.slow
def test_layers_are_compared_in_both_directions_and_nan_is_told():
    clouds = np.stack([gaussian(), relative(gaussian(), 64), gaussian(seed=3)])
    near = jax.vmap(lambda cloud: select_nearest(nearest_neighbors(cloud, 10)))(clouds)
    table = imbalance.layers_imbalance(near, clouds)
    for a, b in np.ndindex(3, 3):
        np.testing.assert_allclose(table[a, b], found(clouds[a], clouds[b]), rtol=1e-5)
    clouds[1, 0, 0] = np.nan
    assert np.isnan(found(clouds[0], clouds[1]))
