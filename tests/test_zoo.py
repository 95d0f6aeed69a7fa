"""The zoo's statements about its members hold for large draws of them."""

import numpy as np
import pytest

from tests.reference import twonn_mle
from tests.zoo import COPIED, ZOO

POINTS = 4000


def drawn(name, points=POINTS, seed=0):
    return ZOO[name].draw(np.random.default_rng(seed), points)


@pytest.mark.parametrize("name", ZOO)
def test_the_covariance_has_the_eigenvalues(name):
    """The largest within the noise of 4000 points, the trace within a few per cent, and zero where
    they say zero.
    """
    x_PD = drawn(name).astype(np.float64)
    found_D = np.linalg.eigvalsh(np.cov(x_PD.T, bias=True))[::-1]
    told_D = ZOO[name].eigenvalues
    assert told_D.shape == found_D.shape
    assert (np.diff(told_D) <= 0).all()
    np.testing.assert_allclose(found_D.sum(), told_D.sum(), rtol=0.05)
    np.testing.assert_allclose(found_D[0], told_D[0], rtol=0.2)
    assert found_D[told_D == 0].sum() <= 1e-4 * told_D.sum()


@pytest.mark.parametrize(
    "name",
    ["sphere 2 in 64", "swiss roll in 512", "gaussian 8 in 64", "sphere 9 in 64", "20 % on atoms"],
)
def test_the_dimension_is_that_of_the_neighbors(name):
    assert twonn_mle(drawn(name, 2000)) == pytest.approx(ZOO[name].dimension, rel=0.1)


def test_the_curved_manifold_has_its_dimension_at_a_small_scale():
    """Angles within a small box: neighbors as near as those of a huge sample."""

    class Near:
        def uniform(self, low, high, shape):
            return np.random.default_rng(0).uniform(low, low + 0.05 * (high - low), shape)

    assert twonn_mle(ZOO["curved 5 in 512"].draw(Near(), 2000)) == pytest.approx(5, rel=0.1)


def test_a_fifth_lies_on_the_same_sixteen_atoms():
    atoms = []
    for seed in (0, 1):
        rows_ND, times_N = np.unique(drawn("20 % on atoms", seed=seed), axis=0, return_counts=True)
        assert times_N[times_N > 1].sum() == pytest.approx(COPIED * POINTS, rel=0.1)
        atoms.append(rows_ND[times_N > 1])
    assert len(atoms[0]) == 16
    np.testing.assert_array_equal(*atoms)
