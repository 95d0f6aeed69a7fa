import jax
import numpy as np
import pytest

from anisoscope import measure
from anisoscope.metrics.local_spectrum import COUNT, local_isotropy
from tests import reference_local as reference
from tests.metrics.clouds import EVERY, SHAPE, filled, find, gaussian, rotation

NEIGHBORS = 24
isotropy = jax.jit(local_isotropy, static_argnums=2)


def read(cloud):
    return isotropy(cloud, find(cloud, NEIGHBORS), COUNT)


@pytest.mark.parametrize(
    "name", ["gaussian", "mean 1000 x spread", "rogue coordinate", "copies", "curve"]
)
def test_agrees_with_every_distance_in_float64(name):
    expected = reference.local_isotropy(EVERY[name], COUNT)
    np.testing.assert_allclose(read(EVERY[name]), expected, rtol=1e-4)


def test_points_on_a_line_have_one_direction():
    line = filled(np.sort(gaussian(601, 1), axis=0)) @ rotation(SHAPE[1])
    np.testing.assert_allclose(read(line.astype(np.float32)), 1, rtol=1e-5)


def test_far_simplices_along_a_line_are_isotropic_up_close():
    """Each of count + 1 corners, as far from one another: count equal eigenvalues."""
    simplices = np.concatenate(
        [np.eye(COUNT + 1) + 100 * place * np.eye(COUNT + 1)[0] for place in range(28)]
    )
    cloud = filled(simplices)
    np.testing.assert_allclose(read(cloud), [1 / COUNT, COUNT], rtol=1e-3)
    centered = np.float64(cloud) - np.float64(cloud).mean(0)
    square = np.linalg.svd(centered, compute_uv=False) ** 2
    assert square[0] / square.sum() > 0.99


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
        local_isotropy(few, find(few, 2))


def test_a_bent_cloud_exceeds_its_gaussian_null_model_and_a_stretched_one_does_not():
    stretched, bent = gaussian(512, 16) * np.float32(0.7) ** np.arange(16), gaussian(512, 16)
    angle = np.linspace(0, 3, 512)
    bent = 0.02 * bent + np.pad(np.stack([np.cos(angle), np.sin(angle)], 1), ((0, 0), (0, 14)))
    table = measure([stretched, bent], families="local", nulls="gaussian", folds=4)
    low, high = (
        table.local_participation_ratio_excess.sel(null="gaussian", statistic=end).values
        for end in ("low", "high")
    )
    assert low[0] < 0 < high[0]
    assert low[1] > 1
