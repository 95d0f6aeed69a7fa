import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.zoo import ZOO
from metrics.outliers import (
    TOPS,
    activation_kurtosis,
    coordinate_kurtosis,
    coordinate_peaks,
    coordinate_share,
    without_top,
)
from tests import reference_spectrum as reference
from tests.metrics.clouds import CLOUDS, gaussian


@jax.jit
def measured(cloud_PD, keep_P=None):
    kurtoses = jnp.stack([coordinate_kurtosis(cloud_PD, keep_P), activation_kurtosis(cloud_PD, keep_P)])
    return jnp.concatenate([coordinate_share(cloud_PD, keep_P), kurtoses])


def expected(cloud):
    shares = [reference.coordinate_share(cloud, top) for top in TOPS]
    return [*shares, reference.coordinate_kurtosis(cloud), reference.activation_kurtosis(cloud)]


@pytest.mark.parametrize("name", ZOO)
def test_agrees_with_float64_on_the_zoo(name):
    cloud = jnp.asarray(ZOO[name].draw(np.random.default_rng(0), 640))
    np.testing.assert_allclose(measured(cloud), expected(cloud), rtol=1e-4)
    np.testing.assert_allclose(coordinate_peaks(cloud), reference.coordinate_peaks(cloud), rtol=1e-6)


@pytest.mark.parametrize("name", CLOUDS)
def test_agrees_with_float64(name):
    cloud = jnp.asarray(CLOUDS[name])
    np.testing.assert_allclose(measured(cloud), expected(cloud), rtol=1e-4)
    np.testing.assert_allclose(coordinate_peaks(cloud), reference.coordinate_peaks(cloud), rtol=1e-6)


def test_a_massive_activation_is_a_peak_of_its_own_position():
    cloud = gaussian(1000, 512) * 7
    peaks = coordinate_peaks(jnp.asarray(cloud))
    assert peaks.mean() == pytest.approx(4.8, abs=0.1)
    cloud[3, 100] = -7000
    peaks = coordinate_peaks(jnp.asarray(cloud))
    assert peaks.max() == peaks[3] == pytest.approx(1000 / 0.6745, rel=0.1)
    assert coordinate_peaks(jnp.array([[-3.0, 1.0, 2.0, 9.0]])) == pytest.approx(9 / 2)  # the lower of 2 and 3


def test_peaks_of_vectors_of_zeros_and_of_what_is_not_finite():
    found = coordinate_peaks(jnp.array([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, jnp.inf, 2.0], [1.0, jnp.nan, 2.0]]))
    np.testing.assert_array_equal(found, [np.inf, np.nan, np.inf, np.nan])
    assert coordinate_peaks(jnp.array([[-2.0]])) == 1


def test_left_out_points_do_not_count():
    cloud = gaussian(48, 12) * np.arange(1, 13, dtype=np.float32) + 5
    keep_RP = 1.0 - np.repeat(np.eye(4, dtype=np.float32), 12, axis=1)
    left_out = jax.vmap(measured, in_axes=(None, 0))(jnp.asarray(cloud), jnp.asarray(keep_RP))
    for keep_P, values in zip(keep_RP, left_out, strict=True):
        np.testing.assert_allclose(values, expected(cloud[keep_P > 0]), rtol=1e-4)


def test_a_gaussian_has_kurtosis_three_and_even_coordinates():
    values = measured(jnp.asarray(gaussian(20_000, 20)))
    np.testing.assert_allclose(values, [1 / 20, 3 / 20, 10 / 20, 1.0, 3.0], rtol=0.03)


def test_one_coordinate_may_have_everything():
    cloud = np.zeros((30, 16), np.float32)
    cloud[:, 4] = np.tile([1.0, -1.0], 15)
    np.testing.assert_allclose(measured(jnp.asarray(cloud)), [1.0, 1.0, 1.0, 16.0, 1.0], rtol=1e-6)


def test_one_point_may_carry_a_coordinate():
    points = 50
    cloud = np.zeros((points, 2), np.float32)
    cloud[7] = [1e-12, -1e12]
    value = activation_kurtosis(jnp.asarray(cloud))
    assert value == pytest.approx(points - 2 + 1 / (points - 1), rel=1e-4)


@pytest.mark.parametrize("value", [0.0, 0.1, 1234.567])
def test_equal_points_have_no_outliers(value):
    assert jnp.isnan(measured(jnp.full((33, 12), value))).all()


def test_too_few_coordinates_have_no_top():
    shares = coordinate_share(jnp.asarray(gaussian(40, 3)))
    assert shares[1] == pytest.approx(1.0)
    np.testing.assert_array_equal(jnp.isnan(shares), [False, False, True])


@pytest.mark.parametrize("place", [2, 23])
def test_a_peak_beside_a_nan_is_nan_at_every_width(place):
    """Also where a compiled maximum passes over it, as on a CPU for 16 coordinates and more."""
    cloud = jnp.asarray(gaussian(333, 24)).at[7, place].set(jnp.nan)
    np.testing.assert_array_equal(jnp.isnan(jax.jit(coordinate_peaks)(cloud)), np.arange(333) == 7)


def test_what_is_not_finite_is_nan():
    assert jnp.isnan(measured(jnp.asarray(gaussian(40, 12)).at[3, 2].set(jnp.inf))).all()


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**16), scale=st.floats(1e-6, 1e6), shift=st.floats(-100, 100))
def test_does_not_see_order_scale_or_translation(seed, scale, shift):
    cloud = gaussian(64, 12, seed) * np.arange(1, 13, dtype=np.float32)
    generator = np.random.default_rng(seed)
    moved = generator.permutation(generator.permutation((cloud + shift) * scale, axis=0), axis=1)
    np.testing.assert_allclose(measured(jnp.asarray(moved, jnp.float32)), measured(jnp.asarray(cloud)), rtol=1e-3)


@pytest.mark.parametrize("top", [0, 1, 3])
def test_the_largest_coordinates_are_left_out_and_the_others_keep_their_order(top):
    scale = np.array([1, 50, 2, 30, 3, 40, 4], np.float32)
    cloud = gaussian(60, 7) * scale + 1000
    kept = {0: [0, 1, 2, 3, 4, 5, 6], 1: [0, 2, 3, 4, 5, 6], 3: [0, 2, 4, 6]}[top]
    np.testing.assert_array_equal(without_top(jnp.asarray(cloud), top), cloud[:, kept])


def test_nothing_is_left_of_a_cloud_without_all_its_coordinates():
    assert without_top(jnp.asarray(gaussian(8, 3)), 10).shape == (8, 0)


def test_a_coordinate_that_only_a_left_out_group_varies_is_left_out_with_it():
    cloud = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    cloud[16:, 2] = 0.1
    keep = jnp.asarray(np.arange(64) >= 16, jnp.float32)
    found = activation_kurtosis(jnp.asarray(cloud), keep)
    np.testing.assert_allclose(found, activation_kurtosis(jnp.asarray(cloud[16:, :2])), rtol=1e-4)
