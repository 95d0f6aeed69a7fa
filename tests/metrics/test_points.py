import jax
import numpy as np
import pytest

from anisoscope.metrics.points import of_points
from tests.metrics.clouds import EVERY, gaussian, rotation
from tests.reference import float64

points = jax.jit(of_points)


@pytest.mark.parametrize("name", ["gaussian", "mean 1000 x spread", "rogue coordinate"])
def test_agrees_with_float64(name):
    cloud = EVERY[name]
    x = float64(cloud)
    mean, norm = x.mean(0), np.linalg.norm(x, axis=1)
    values = points(cloud)
    np.testing.assert_allclose(values.norm_P, norm, rtol=1e-5)
    np.testing.assert_allclose(values.cosine_to_mean_P, x @ mean / norm / np.linalg.norm(mean), rtol=1e-4, atol=1e-5)
    score = (x - mean) @ np.linalg.eigh(np.cov(x.T))[1][:, -1]
    score *= np.sign((score**3).sum())
    np.testing.assert_allclose(values.first_score_P, score, atol=2e-3 * np.abs(score).max())


def test_the_longer_tail_of_the_scores_is_positive_whatever_the_side():
    cloud = gaussian(200, 4) * 0.1
    cloud[:5, 0] += 30
    for turned in (cloud, -cloud, (cloud @ rotation(4, 1)).astype(np.float32)):
        score = np.asarray(points(turned).first_score_P)
        assert set(np.argsort(-score)[:5]) == set(range(5))


def test_what_has_no_direction_is_nan():
    cloud = gaussian(20, 3)
    cloud[3] = 0
    assert np.isnan(points(cloud).cosine_to_mean_P).tolist() == [place == 3 for place in range(20)]
    assert np.isnan(points(np.full((20, 3), 0.1, np.float32)).first_score_P).all()
    cloud[5, 1] = np.inf
    assert np.isnan(points(cloud).first_score_P).all()
