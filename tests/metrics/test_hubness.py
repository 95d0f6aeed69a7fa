import jax
import numpy as np
import pytest
from scipy import stats

from anisoscope.metrics import hubness
from tests.metrics.clouds import CLOUDS, POINTS, filled, find, gaussian, rotation
from tests.reference_comparison import neighborhoods

NEIGHBORS = 12
hubs = jax.jit(hubness.hubs)


def twin(cloud):
    """By sets of neighbors in float64."""
    first, sets = neighborhoods(cloud, hubness.COUNT)
    distinct = np.unique(first)
    count = np.array([sum(one in sets[other] for other in distinct) for one in distinct])
    return stats.skew(count), (count == 0).mean(), count.max() / hubness.COUNT


@pytest.mark.parametrize("name", ["gaussian", "copies", "rogue coordinate", "mean 1000 x spread"])
def test_agrees_with_sets_of_neighbors_in_float64(name):
    np.testing.assert_allclose(
        hubs(find(CLOUDS[name], NEIGHBORS)), twin(CLOUDS[name]), rtol=0.02, atol=2e-3
    )


def test_many_dimensions_have_hubs_and_few_have_none():
    flat, wide = (
        hubs(find(cloud, NEIGHBORS)) for cloud in (filled(gaussian(POINTS, 2)), gaussian())
    )
    assert abs(flat.skewness) < 0.5 < 1 < wide.skewness
    assert flat.never < 0.01 < 0.05 < wide.never
    assert flat.most < 3 < wide.most


def test_a_point_amid_a_sphere_is_everybodys_neighbor():
    sphere = gaussian(POINTS, 64)
    sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
    sphere[0] = 0
    count = np.asarray(hubness.occurrences(find(sphere, NEIGHBORS)))
    assert count[0] == POINTS - 1
    assert count.sum() == hubness.COUNT * POINTS
    turned = find((3 * sphere @ rotation(64)).astype(np.float32), NEIGHBORS)
    np.testing.assert_allclose(hubs(turned).most, (POINTS - 1) / hubness.COUNT)
