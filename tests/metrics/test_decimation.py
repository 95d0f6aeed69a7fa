"""`scale.decimation`: the dimension of every f-th point."""

import jax
import numpy as np
import pytest

from anisoscope.metrics import scale
from anisoscope.metrics.dimension import twonn
from tests import reference_scale as reference
from tests.metrics.clouds import FEW, POINTS, TOO_FEW, WIDTH, ZOO, find, gaussian

FEWER = (31, 5)

decimation = jax.jit(scale.decimation)


def decimated(cloud):
    return np.asarray(decimation(cloud, find(cloud, FEW)))


@pytest.mark.parametrize("name", ZOO)
def test_decimation_agrees_with_the_float64_twin(name):
    cloud = ZOO[name].draw(np.random.default_rng(4), POINTS).astype(np.float32)
    expected = [reference.decimation(cloud, factor) for factor in scale.FACTORS]
    np.testing.assert_allclose(decimated(cloud), expected, rtol=1e-4)


def test_decimation_stays_at_the_dimension_and_leaves_noise_behind():
    """A sheet of noise at half the distance of neighbours, in 64 dimensions; without it, 2 at every
    factor.
    """
    random = np.random.default_rng(0)
    sheet = np.pad(random.uniform(size=(POINTS, 2)), ((0, 0), (0, WIDTH - 2)))
    noisy = sheet + random.normal(0, 0.0019, sheet.shape)
    np.testing.assert_allclose(decimated(sheet.astype(np.float32)), 2, rtol=0.1)
    curve = decimated(noisy.astype(np.float32))
    assert curve[0] > 4
    assert curve[-1] == pytest.approx(2, rel=0.2)


def test_decimation_ends_where_subsets_have_fewer_than_three_points():
    cloud = gaussian(*FEWER)
    curve = decimated(cloud)
    assert np.isfinite(curve).tolist() == [True, True, False]
    assert curve[0] == jax.jit(twonn)(find(cloud, FEW))
    one_subset_of_copies = cloud.copy()
    one_subset_of_copies[::4] = cloud[0]
    assert np.isfinite(decimated(one_subset_of_copies)).tolist() == [True, False, False]


@pytest.mark.parametrize("cloud", TOO_FEW)
def test_fewer_than_three_distinct_points_are_nan(cloud):
    assert np.isnan(decimated(cloud)).all()
