"""Hubs and the spectra of neighborhoods."""

import jax
import numpy as np
import pytest
from scipy import stats

from anisoscope import measure
from anisoscope.metrics.neighborhoods import COUNT, NEAREST, hubs, local_isotropy, occurrences
from tests.metrics.clouds import EVERY, POINTS, SHAPE, filled, find, gaussian, rotation
from tests.reference_comparison import neighborhoods
from tests.reference_scale import local_isotropy as local_twin

NEIGHBORS = 24
read_hubs, isotropy = jax.jit(hubs), jax.jit(local_isotropy, static_argnums=2)


def read(cloud):
    return isotropy(cloud, find(cloud, NEIGHBORS), COUNT)


def hub_twin(cloud):
    """By sets of neighbors in float64."""
    first, sets = neighborhoods(cloud, NEAREST)
    distinct = np.unique(first)
    count = np.array([sum(one in sets[other] for other in distinct) for one in distinct])
    return stats.skew(count), (count == 0).mean(), count.max() / NEAREST


@pytest.mark.parametrize("name", ["gaussian", "mean 1000 x spread", "rogue coordinate", "copies"])
def test_agrees_with_float64(name):
    cloud = EVERY[name]
    found = read_hubs(find(cloud, NEIGHBORS))
    np.testing.assert_allclose(found, hub_twin(cloud), rtol=0.02, atol=2e-3)
    np.testing.assert_allclose(read(cloud), local_twin(cloud, COUNT), rtol=1e-4)


def test_a_point_amid_a_sphere_is_a_hub_and_few_dimensions_have_none():
    sphere = gaussian(POINTS, 64)
    sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
    sphere[0] = 0
    count = np.asarray(occurrences(find(sphere, NEIGHBORS)))
    assert count[0] == POINTS - 1
    assert count.sum() == NEAREST * POINTS
    flat = read_hubs(find(filled(gaussian(POINTS, 2)), NEIGHBORS))
    assert abs(flat.skewness) < 0.5
    assert flat.never < 0.01
    assert flat.most < 3


def test_lines_have_one_direction_and_far_simplices_are_isotropic_up_close():
    line = filled(np.sort(gaussian(601, 1), axis=0)) @ rotation(SHAPE[1])
    np.testing.assert_allclose(read(line.astype(np.float32)), 1, rtol=1e-5)
    # each of count + 1 corners, as far from one another: count equal eigenvalues
    simplices = np.concatenate(
        [np.eye(COUNT + 1) + 100 * place * np.eye(COUNT + 1)[0] for place in range(28)]
    )
    np.testing.assert_allclose(read(filled(simplices)), [1 / COUNT, COUNT], rtol=1e-3)


@pytest.mark.parametrize("power", [-60, 50])
def test_squares_beyond_float32_do_not_matter(power):
    cloud, found = gaussian(), find(gaussian(), NEIGHBORS)
    scaled = found._replace(distance_PC=np.ldexp(found.distance_PC, power))
    np.testing.assert_allclose(
        isotropy(np.ldexp(cloud, power), scaled, COUNT), read(cloud), rtol=1e-5
    )


def test_too_few_points_are_nan_and_too_few_neighbors_are_refused():
    few = filled(gaussian(COUNT, 3))
    assert np.isnan(read(few)).all()
    with pytest.raises(ValueError, match="20 neighbors are needed"):
        jax.eval_shape(lambda x: local_isotropy(x, find(x, 2)), few)


@pytest.mark.slow
def test_a_bent_cloud_exceeds_its_gaussian_null_model_and_a_stretched_one_does_not():
    stretched, bent = gaussian(512, 16) * np.float32(0.7) ** np.arange(16), gaussian(512, 16)
    angle = np.linspace(0, 3, 512)
    bent = 0.02 * bent + np.pad(np.stack([np.cos(angle), np.sin(angle)], 1), ((0, 0), (0, 14)))
    table = measure([stretched, bent], families="local", nulls="gaussian", folds=4)
    excess = table.local_participation_ratio_excess.sel(null="gaussian")
    low, high = (excess.sel(statistic=end).values for end in ("low", "high"))
    assert low[0] < 0 < high[0]
    assert low[1] > 1
