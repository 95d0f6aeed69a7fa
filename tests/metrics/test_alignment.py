import jax
import numpy as np
import pytest

from anisoscope.metrics import alignment as metric
from anisoscope.metrics.comparison import prepare_clouds
from tests import reference_comparison as reference
from tests.metrics.clouds import CLOUDS, POINTS, gaussian
from tests.metrics.test_imbalance import relative

alignments = jax.jit(metric.alignments, static_argnames="folds")
EVEN = POINTS - 1  # points that are a multiple of the folds


@pytest.mark.parametrize("name", CLOUDS)
def test_agrees_with_every_distance_and_the_best_rotation_in_float64(name):
    cloud, other = CLOUDS[name], relative(CLOUDS[name])
    for x, y in ((cloud, other), (other, cloud)):
        found = alignments(x, y)
        np.testing.assert_allclose(found.rsa, reference.rsa(x, y), rtol=2e-4, atol=2e-5)
        np.testing.assert_allclose(found.procrustes, reference.procrustes(x, y), rtol=1e-4)


def test_of_unrelated_clouds_rsa_is_0_and_procrustes_is_not():
    found = alignments(gaussian(), gaussian(seed=8))
    assert abs(found.rsa[0]) < 0.05
    assert 0.2 < found.procrustes[0] < 0.4  # of 601 points of width 64


def test_replicates_are_the_values_without_their_folds():
    x, y = gaussian()[:EVEN] + 3, relative(gaussian())[:EVEN]
    found = alignments(x, y, folds=20)
    for fold in (0, 7, 19):
        left = np.delete(np.arange(EVEN), slice(fold * 30, (fold + 1) * 30))
        np.testing.assert_allclose(found.rsa[1 + fold], reference.rsa(x[left], y[left]), rtol=5e-4)
        np.testing.assert_allclose(
            found.procrustes[1 + fold], reference.procrustes(x[left], y[left]), rtol=0.004
        )


def test_layers_are_compared_pair_by_pair_and_bad_input_is_told():
    clouds = np.stack([gaussian(), relative(gaussian(), 64), gaussian(seed=3)])
    table = metric.layers_alignment(prepare_clouds(clouds))
    for a, b in np.ndindex(3, 3):
        for value, one in zip(table, alignments(clouds[a], clouds[b]), strict=True):
            np.testing.assert_allclose(value[0, a, b], one[0], rtol=1e-4, atol=1e-6)
    clouds[1, 0, 0] = np.nan
    assert np.isnan(alignments(clouds[0], clouds[1])).all()
    assert np.isnan(alignments(clouds[0], np.ones_like(clouds[0]))).all()
    corners = np.eye(16, dtype=np.float32) * 0.3  # at equal distances from one another
    rsa, procrustes = alignments(corners, clouds[0][:16])
    assert np.isnan(rsa).all()
    assert np.isfinite(procrustes).all()
