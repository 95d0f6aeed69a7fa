import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.metrics import outliers as metric
from anisoscope.metrics.outliers import TOPS
from tests import reference_leading
from tests import reference_spectrum as reference
from tests.metrics.clouds import EVERY, POINTS, WIDTH, gaussian, with_one


def readings(cloud_PD, keep_P=None):
    kurtoses = jnp.stack(
        [metric.coordinate_kurtosis(cloud_PD, keep_P), metric.activation_kurtosis(cloud_PD, keep_P)]
    )
    return jnp.concatenate([metric.top_coordinate_variance_share(cloud_PD, keep_P), kurtoses])


read = jax.jit(readings)
peaks_of = jax.jit(metric.coordinate_peaks)
left_out = jax.jit(metric.anisotropy_without_top_coordinates)


def measured(cloud):
    return np.asarray(read(cloud))


def expected(cloud):
    shares = [reference.top_coordinate_variance_share(cloud, top) for top in TOPS]
    return [*shares, reference.coordinate_kurtosis(cloud), reference.activation_kurtosis(cloud)]


@pytest.mark.parametrize("name", EVERY)
def test_agrees_with_float64(name):
    cloud = EVERY[name]
    np.testing.assert_allclose(measured(cloud), expected(cloud), rtol=1e-4)
    np.testing.assert_allclose(peaks_of(cloud), reference.coordinate_peaks(cloud), rtol=1e-6)


def test_a_massive_activation_is_a_peak_of_its_own_position():
    cloud = gaussian(1000, 512) * 7
    peaks = peaks_of(cloud)
    assert peaks.mean() == pytest.approx(4.8, abs=0.1)
    cloud[3, 100] = -7000
    peaks = peaks_of(cloud)
    assert peaks.max() == peaks[3] == pytest.approx(1000 / 0.6745, rel=0.1)
    assert peaks_of(np.float32([[-3, 1, 2, 9]])) == pytest.approx(9 / 2)  # the lower of 2 and 3


def test_peaks_of_vectors_of_zeros_and_of_what_is_not_finite():
    peaks = peaks_of(np.float32([[0, 0, 1], [0, 0, 0], [1, np.inf, 2], [1, np.nan, 2]]))
    np.testing.assert_array_equal(peaks, [np.inf, np.nan, np.inf, np.nan])
    assert peaks_of(np.float32([[-2]])) == 1


def test_one_coordinate_may_have_everything_and_one_point_may_carry_it():
    cloud = np.zeros((POINTS - 1, WIDTH), np.float32)
    cloud[:, 4] = np.tile([1.0, -1.0], len(cloud) // 2)
    np.testing.assert_allclose(measured(cloud), [1.0, 1.0, 1.0, WIDTH, 1.0], rtol=1e-6)
    cloud = np.zeros_like(cloud)
    cloud[7, :2] = [1e-12, -1e12]
    assert measured(cloud)[-1] == pytest.approx(len(cloud) - 2 + 1 / (len(cloud) - 1), rel=1e-4)


def test_what_is_not_finite_or_has_too_few_coordinates_is_nan():
    assert np.isnan(measured(with_one(np.inf))).all()
    shares = measured(gaussian(40, 4))[:3]
    assert shares[1] == pytest.approx(1.0)
    np.testing.assert_array_equal(np.isnan(shares), [False, False, True])
    values = left_out(gaussian(8, 4), np.ones((1, 8), np.float32))
    np.testing.assert_array_equal(np.isnan(values[:, 0]), [False, True, True])


def test_left_out_points_do_not_count():
    cloud = gaussian(48, 12) * np.arange(1, 13, dtype=np.float32) + 5
    keep_RP = 1.0 - np.repeat(np.eye(4, dtype=np.float32), 12, axis=1)
    kept = jax.jit(jax.vmap(readings, in_axes=(None, 0)))(cloud, keep_RP)
    for keep_P, values in zip(keep_RP, kept, strict=True):
        np.testing.assert_allclose(values, expected(cloud[keep_P > 0]), rtol=1e-4)


@pytest.mark.parametrize("place", [2, 23])
def test_a_peak_beside_a_nan_is_nan_at_every_width(place):
    """Also where a compiled maximum passes over it, as on a CPU for 16 coordinates and more."""
    cloud = gaussian(333, 24)
    cloud[7, place] = np.nan
    np.testing.assert_array_equal(np.isnan(peaks_of(cloud)), np.arange(333) == 7)


@pytest.mark.parametrize("points", [96, 20])
def test_the_largest_coordinates_are_left_out(points):
    """In every resample along the direction of all points; few points take another path."""
    cloud = gaussian(points, 24) * np.geomspace(40, 1, 24, dtype=np.float32) + 1000
    keep_RP = np.concatenate(
        [np.ones((1, points)), 1.0 - np.repeat(np.eye(4), points // 4, axis=1)]
    )
    values = left_out(cloud, keep_RP.astype(np.float32))
    order = np.argsort(-cloud.astype(np.float64).var(0))
    for top, of_top in zip(TOPS, values, strict=True):
        part = np.delete(cloud, order[:top], axis=1)
        share, *_ = reference_leading.first_direction(part, np.ones(points, bool), keep_RP > 0)
        np.testing.assert_allclose(of_top, share, rtol=1e-4)
        assert of_top[0] == pytest.approx(reference.anisotropy(part), rel=1e-4)


def test_a_coordinate_that_only_a_left_out_fold_varies_is_left_out_with_it():
    cloud = gaussian(64, 3)
    cloud[16:, 2] = 0.1
    kurtosis = read(cloud, (np.arange(64) >= 16).astype(np.float32))[-1]
    np.testing.assert_allclose(kurtosis, reference.activation_kurtosis(cloud[16:, :2]), rtol=1e-4)
