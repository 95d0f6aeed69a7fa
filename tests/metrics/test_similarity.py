import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.similarity import cosine, cross_cosine, drift, mean_cosine, mean_norm, mean_vector
from tests import reference
from tests.metrics.clouds import CLOUDS, gaussian, rotation


@pytest.mark.parametrize("name", CLOUDS)
def test_agrees_with_the_float64_twin(name):
    cloud = jnp.asarray(CLOUDS[name])
    assert mean_cosine(cloud) == pytest.approx(reference.mean_cosine(cloud), rel=1e-4)
    assert drift(cloud) == pytest.approx(reference.drift(cloud), rel=1e-4)
    assert mean_norm(cloud) == pytest.approx(reference.mean_norm(cloud), rel=1e-4)


@pytest.mark.parametrize("offset", [0, 1, 1000])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_two_clouds_agree_with_the_float64_twin(offset, dtype):
    a, b = jnp.asarray(gaussian(41, 9), dtype), jnp.asarray(gaussian(23, 9, seed=1) + offset, dtype)
    assert cross_cosine(a, b) == pytest.approx(reference.cross_cosine(a, b), rel=1e-4)
    mean_a, mean_b = mean_vector(a), mean_vector(b)
    expected = reference.cosine(reference.float64(a).mean(0), reference.float64(b).mean(0))
    assert cosine(mean_a, mean_b) == pytest.approx(expected, rel=1e-4)


def test_known_answers():
    axes = jnp.eye(4)
    assert mean_cosine(axes) == pytest.approx(0, abs=1e-7)
    assert mean_cosine(jnp.concatenate([axes, -axes])) == pytest.approx(-1 / 7, rel=1e-5)
    assert mean_cosine(jnp.array([[2.0, 0.0], [5.0, 5.0]])) == pytest.approx(0.5**0.5, rel=1e-6)
    assert mean_cosine(jnp.array([[3.0, 4.0]] * 9)) == pytest.approx(1, rel=1e-6)
    assert drift(jnp.array([[3.0, 0.0], [3.0, 8.0]])) == pytest.approx(5)
    assert mean_norm(jnp.array([[3.0, 4.0], [0.0, 1.0]])) == pytest.approx(3)
    assert cross_cosine(axes[:1], axes) == pytest.approx(0.25)
    assert cosine(axes[0], -3 * axes[0]) == pytest.approx(-1)


def test_zero_vectors_are_left_out_of_cosines():
    cloud = jnp.asarray(gaussian(31, 5) + 1)
    with_zeros = jnp.concatenate([jnp.zeros((4, 5)), cloud])
    assert mean_cosine(with_zeros) == pytest.approx(float(mean_cosine(cloud)), rel=1e-6)
    assert cross_cosine(with_zeros, cloud) == pytest.approx(float(cross_cosine(cloud, cloud)), rel=1e-6)


def test_what_has_no_direction_is_nan():
    one = jnp.array([[0.0, 0.0], [1.0, 0.0]])
    assert jnp.isnan(mean_cosine(one))
    assert jnp.isnan(mean_cosine(one[:1]))
    assert jnp.isnan(cross_cosine(one[:1], one))
    assert jnp.isnan(cosine(one[0], one[1]))


def test_nan_does_not_vanish_from_a_mean():
    cloud = jnp.asarray(gaussian(9, 3)).at[4, 1].set(jnp.nan)
    assert jnp.isnan(jnp.array([mean_cosine(cloud), cross_cosine(cloud, cloud), drift(cloud), mean_norm(cloud)])).all()


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**16), scale=st.floats(1e-6, 1e6))
def test_cosines_do_not_see_rotation_scale_or_order(seed, scale):
    cloud = gaussian(50, 6, seed) + 0.5
    moved = jnp.asarray(np.random.default_rng(seed).permutation(cloud @ rotation(6, seed) * scale), jnp.float32)
    cloud = jnp.asarray(cloud)
    assert mean_cosine(moved) == pytest.approx(float(mean_cosine(cloud)), rel=1e-4)
    assert drift(moved) == pytest.approx(scale * float(drift(cloud)), rel=1e-4)
    assert mean_norm(moved) == pytest.approx(scale * float(mean_norm(cloud)), rel=1e-4)


@pytest.mark.parametrize("metric", [mean_cosine, drift, mean_norm, lambda x: cross_cosine(x, x[:9])])
def test_jit_and_vmap_change_nothing(metric):
    clouds = jnp.stack([gaussian(33, 5, seed) + 1 for seed in range(3)])
    one_by_one = jnp.stack([metric(cloud) for cloud in clouds])
    np.testing.assert_allclose(jax.vmap(metric)(clouds), one_by_one, rtol=1e-5)
    np.testing.assert_allclose([jax.jit(metric)(cloud) for cloud in clouds], one_by_one, rtol=1e-5)
