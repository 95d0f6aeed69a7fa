import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.spectrum import anisotropy, covariance_eigenvalues
from tests import reference
from tests.metrics.clouds import CLOUDS, gaussian, rotation


@jax.jit
def measured(cloud_PD):
    return anisotropy(covariance_eigenvalues(cloud_PD))


@pytest.mark.parametrize("name", CLOUDS)
def test_agrees_with_the_float64_singular_values(name):
    cloud = jnp.asarray(CLOUDS[name])
    values, expected = covariance_eigenvalues(cloud), reference.eigenvalues(cloud)
    assert values.shape == (min(cloud.shape),)
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-6 * expected[0])
    assert measured(cloud) == pytest.approx(reference.anisotropy(cloud), rel=1e-4)


def test_reads_a_known_spectrum():
    scale = np.array([4.0, 2.0, 1.0, 1.0, 0.0])
    orthonormal = np.linalg.qr(np.random.default_rng(0).normal(size=(100, 6)))[0]
    columns = np.linalg.qr(np.c_[np.ones(100), orthonormal[:, :5]])[0][:, 1:]  # centred, orthonormal
    values = covariance_eigenvalues(jnp.asarray(10 * columns * scale, jnp.float32))
    np.testing.assert_allclose(values, scale**2, atol=1e-4)
    assert anisotropy(values) == pytest.approx(16 / 22, rel=1e-5)


def test_squares_the_singular_values():
    assert anisotropy(jnp.array([100.0, 4.0, 1.0])) == pytest.approx(100 / 105)


def test_points_on_a_line_have_all_their_variance_in_one_direction():
    line = np.outer(np.arange(50.0), [1.0, -2.0, 0.5]).astype(np.float32)
    assert measured(jnp.asarray(line)) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("value", [0.0, 0.1, 1234.567])
def test_equal_points_have_no_anisotropy(value):
    cloud = jnp.full((33, 5), value)
    assert (covariance_eigenvalues(cloud) == 0).all()
    assert jnp.isnan(measured(cloud))


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**16), scale=st.floats(1e-6, 1e6), shift=st.floats(-100, 100))
def test_does_not_see_rotation_scale_order_or_translation(seed, scale, shift):
    cloud = gaussian(64, 9, seed) * np.arange(1, 10, dtype=np.float32)
    moved = np.random.default_rng(seed).permutation((cloud + shift) @ rotation(9, seed) * scale)
    assert measured(jnp.asarray(moved, jnp.float32)) == pytest.approx(float(measured(cloud)), rel=1e-4)


def test_jit_and_vmap_change_nothing():
    clouds = jnp.stack([gaussian(65, 9, seed) for seed in range(3)])
    one_by_one = jnp.stack([anisotropy(covariance_eigenvalues(cloud)) for cloud in clouds])
    np.testing.assert_allclose(jax.vmap(measured)(clouds), one_by_one, rtol=1e-5)
    np.testing.assert_allclose([measured(cloud) for cloud in clouds], one_by_one, rtol=1e-5)
