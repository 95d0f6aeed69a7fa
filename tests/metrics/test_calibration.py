import jax
import numpy as np
import pytest

from anisoscope.metrics import calibration
from tests import reference_comparison as reference
from tests.metrics.clouds import gaussian, rotation

calibrated_cka = jax.jit(calibration.calibrated_cka, static_argnames=("together", "permutations"))
KEY = jax.random.key(0)


def test_score_and_p_are_those_of_the_paper_s_algorithm_in_float64():
    generator = np.random.default_rng(0)
    for count, value in ((20, 0.35), (20, 0.9), (200, 0.02), (7, 0.5)):
        null = generator.uniform(0, 0.4, count).astype(np.float32)
        together = np.sort([*null.astype(np.float64), np.float32(value)])
        threshold = together[int(np.ceil(0.95 * (count + 1))) - 1]
        found = calibration.calibrated(np.array(value, np.float32), null)
        np.testing.assert_allclose(
            found.score, max(0, (np.float32(value) - threshold) / (1 - threshold)), atol=1e-6
        )
        np.testing.assert_allclose(
            found.p, (1 + (null >= np.float32(value)).sum()) / (count + 1), rtol=1e-6
        )
        np.testing.assert_allclose(found.null_mean, null.mean(), rtol=1e-6)
    assert np.isnan(calibration.calibrated(np.array(np.nan, np.float32), null)[1:3]).all()


def test_values_are_those_of_cka_and_the_null_breaks_what_two_clouds_share():
    x, noise = gaussian()[:600], gaussian(seed=8)[:600]
    y = (x @ rotation(64) + noise).astype(np.float32)
    found = calibrated_cka(x, y, KEY, permutations=50)
    np.testing.assert_allclose(found.biased.value, reference.linear_cka(x, y), rtol=1e-4)
    np.testing.assert_allclose(found.unbiased.value, reference.linear_cka_unbiased(x, y), rtol=1e-4)
    assert abs(float(found.unbiased.null_mean)) < 0.01 < 0.05 < float(found.biased.null_mean)
    for one in found:
        assert 0.3 < one.score <= one.value
        np.testing.assert_allclose(one.p, 1 / 51, rtol=1e-6)
    same = calibrated_cka(x, (3 * x @ rotation(64)).astype(np.float32) + 2, KEY, permutations=50)
    np.testing.assert_allclose(same.biased.score, 1, atol=1e-4)
    for one in calibrated_cka(x, np.where(np.arange(64) == 3, np.nan, x), KEY, permutations=3):
        assert np.isnan(one.score)


def test_points_of_a_window_that_change_places_together_are_not_taken_for_a_likeness():
    """Two clouds that share nothing but the position in the window."""
    generator = np.random.default_rng(3)
    position = generator.normal(size=(20, 16))
    x, y = (np.tile(position, (30, 1)) + generator.normal(size=(600, 16)) for _ in range(2))
    each, whole = (calibrated_cka(x, y, KEY, together=n, permutations=50).unbiased for n in (1, 20))
    assert each.score > 0.1
    assert whole.score < 0.02
    assert whole.null_mean > 0.9 * whole.value
    with pytest.raises(ValueError, match="x has 601 points; pass a multiple of together=20"):
        calibration.calibrated_cka(gaussian(), gaussian(), KEY, together=20)
