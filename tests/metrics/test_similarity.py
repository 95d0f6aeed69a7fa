import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.zoo import ZOO
from metrics.similarity import (
    cosine,
    cross_cosine,
    drift,
    fluctuation,
    log_partition_isotropy,
    mean_cosine,
    mean_cosine_parts,
    mean_norm,
    mean_vector,
)
from tests import reference, reference_similarity
from tests.metrics.clouds import CLOUDS as SHAPES
from tests.metrics.clouds import gaussian, rotation

CLOUDS = SHAPES | {f"zoo: {name}": member.draw(np.random.default_rng(1), 512) for name, member in ZOO.items()}


def pair(cloud_PD, keep_P=None):
    """A second cloud of its own mean, so that two clouds can be treated as one."""
    return cross_cosine(cloud_PD, 1.0 - cloud_PD, keep_P, keep_P)


OF_KEPT = {
    "mean_cosine": mean_cosine,
    "mean_cosine_parts": lambda *of: jnp.stack(mean_cosine_parts(*of)),
    "cross_cosine": pair,
    "mean_vector": mean_vector,
    "drift": drift,
    "fluctuation": fluctuation,
    "mean_norm": mean_norm,
}


@pytest.mark.parametrize("name", CLOUDS)
def test_agrees_with_the_float64_twin(name):
    cloud = jnp.asarray(CLOUDS[name])
    assert mean_cosine(cloud) == pytest.approx(reference.mean_cosine(cloud), rel=1e-4)
    assert drift(cloud) == pytest.approx(reference.drift(cloud), rel=1e-4)
    assert fluctuation(cloud) == pytest.approx(reference.fluctuation(cloud), rel=1e-4)
    assert mean_norm(cloud) == pytest.approx(reference.mean_norm(cloud), rel=1e-4)
    np.testing.assert_allclose(mean_cosine_parts(cloud), reference_similarity.mean_cosine_parts(cloud), rtol=1e-4)
    [isotropy] = log_partition_isotropy(cloud)
    assert isotropy == pytest.approx(reference_similarity.log_partition_isotropy(cloud), rel=1e-4)


@pytest.mark.parametrize("metric", OF_KEPT)
@pytest.mark.parametrize("name", ["gaussian", "mean 1000 x spread", "zoo: 20 % copies", "zoo: bfloat16"])
def test_points_left_out_are_as_if_they_had_not_been(metric, name):
    cloud, metric = jnp.asarray(CLOUDS[name]), OF_KEPT[metric]
    keep = np.random.default_rng(2).random((5, len(cloud))) < 0.8
    keep[0] = True
    found = jax.vmap(metric, in_axes=(None, 0))(cloud, jnp.asarray(keep, jnp.float32))
    np.testing.assert_allclose(found[0], metric(cloud), rtol=1e-6)
    for kept, value in zip(keep[1:], found[1:], strict=True):
        scale = jnp.abs(metric(cloud[kept])).max()  # a coordinate of a mean vector can be next to 0
        np.testing.assert_allclose(value, metric(cloud[kept]), rtol=1e-5, atol=1e-6 * scale)


def test_points_left_out_leave_the_pairs_of_two_clouds():
    a, b = jnp.asarray(gaussian(41, 9) + 1), jnp.asarray(gaussian(23, 9, seed=1) + 1)
    keep_a, keep_b = jnp.arange(41) % 3 > 0, jnp.arange(23) > 5
    found = cross_cosine(a, b, keep_a.astype(jnp.float32), keep_b.astype(jnp.float32))
    assert found == pytest.approx(reference.cross_cosine(a[keep_a], b[keep_b]), rel=1e-5)


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
    assert fluctuation(jnp.array([[3.0, 0.0], [3.0, 8.0]])) == pytest.approx(4)
    assert fluctuation(jnp.array([[3.1, 4.7]] * 9)) == 0
    assert mean_norm(jnp.array([[3.0, 4.0], [0.0, 1.0]])) == pytest.approx(3)
    assert cross_cosine(axes[:1], axes) == pytest.approx(0.25)
    assert cosine(axes[0], -3 * axes[0]) == pytest.approx(-1)


def test_the_parts_add_up_to_the_mean_cosine():
    for cloud in CLOUDS.values():
        whole = float(mean_cosine(jnp.asarray(cloud)))
        # orthogonal points have parts of +-1/P: the scale of a mean cosine next to 0
        assert sum(mean_cosine_parts(jnp.asarray(cloud))) == pytest.approx(whole, rel=1e-6, abs=1e-5 / len(cloud))


def test_known_parts():
    """Of one norm, the residual is -E|d|^2 / (r^2 (P - 1)); along one line from the origin, 1 - drift."""
    axes = jnp.eye(4) * 3
    np.testing.assert_allclose(mean_cosine_parts(axes), [0.25, -0.25], rtol=1e-6)
    np.testing.assert_allclose(mean_cosine_parts(jnp.array([[3.0, 4.0]] * 9)), [1, 0], atol=1e-6)
    near, far = jnp.array([[1.0, 0.0]]), jnp.array([[3.0, 0.0]])  # m = 2, sum of 1/(|x||y|) over both orders = 2/3
    np.testing.assert_allclose(mean_cosine_parts(jnp.concatenate([near, far])), [4 / 3, -1 / 3], rtol=1e-6)


def test_known_partitions():
    """A point at e1: Z is e and 1/e along it, 1 along the other axes. A point and its opposite: cosh."""
    assert log_partition_isotropy(jnp.eye(5)[:1]) == pytest.approx(-2)
    assert log_partition_isotropy(jnp.eye(5)[:1] * 1000) == pytest.approx(-2000)
    opposite = jnp.concatenate([jnp.eye(5)[:1], -jnp.eye(5)[:1]])
    assert log_partition_isotropy(opposite) == pytest.approx(-np.log(np.cosh(1)), rel=1e-5)
    assert log_partition_isotropy(jnp.zeros((7, 3))) == pytest.approx(0)


@pytest.mark.parametrize("scale", [1, 60])
def test_groups_left_out_of_partitions(scale):
    """At 60 one point makes the largest Z by itself: what is left without it must not underflow."""
    cloud = gaussian(60, 7)
    cloud[17] *= scale
    found = log_partition_isotropy(jnp.asarray(cloud), 4)
    assert found.shape == (5,)
    left = [np.delete(cloud, np.s_[15 * j : 15 * j + 15], axis=0) for j in range(4)]
    expected = [reference_similarity.log_partition_isotropy(part, cloud) for part in [cloud, *left]]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_zero_vectors_are_left_out_of_cosines():
    cloud = jnp.asarray(gaussian(31, 5) + 1)
    with_zeros = jnp.concatenate([jnp.zeros((4, 5)), cloud])
    assert mean_cosine(with_zeros) == pytest.approx(float(mean_cosine(cloud)), rel=1e-6)
    assert cross_cosine(with_zeros, cloud) == pytest.approx(float(cross_cosine(cloud, cloud)), rel=1e-6)
    np.testing.assert_allclose(mean_cosine_parts(with_zeros), mean_cosine_parts(cloud), rtol=1e-5)
    without_first = jnp.arange(35) > 0
    kept = mean_cosine_parts(with_zeros, without_first.astype(jnp.float32))
    np.testing.assert_allclose(kept, mean_cosine_parts(cloud), rtol=1e-5)


def test_what_has_no_direction_is_nan():
    one = jnp.array([[0.0, 0.0], [1.0, 0.0]])
    assert jnp.isnan(mean_cosine(one))
    assert jnp.isnan(mean_cosine(one[:1]))
    assert jnp.isnan(jnp.stack(mean_cosine_parts(one))).all()
    assert jnp.isnan(jnp.stack(mean_cosine_parts(one[:1]))).all()
    assert jnp.isnan(
        jnp.array([mean_cosine(one, jnp.zeros(2)), drift(one, jnp.zeros(2)), mean_norm(one, jnp.zeros(2))])
    ).all()
    assert jnp.isnan(cross_cosine(one[:1], one))
    assert jnp.isnan(cosine(one[0], one[1]))


@pytest.mark.parametrize("value", [jnp.nan, jnp.inf])
def test_what_is_not_finite_does_not_vanish_from_a_mean(value):
    cloud = jnp.asarray(gaussian(9, 3)).at[4, 1].set(value)
    for metric in OF_KEPT.values():
        assert not jnp.isfinite(metric(cloud)).all()
        assert not jnp.isfinite(metric(cloud, jnp.ones(9).at[0].set(0.0))).all()
    assert jnp.isnan(log_partition_isotropy(cloud, 3)).all()


def test_the_partition_of_a_wide_cloud_that_is_not_finite_is_nan():
    """A compiled maximum of many may pass over a NaN."""
    wide = jnp.asarray(gaussian(96, 512)).at[3, 1].set(jnp.nan)
    assert jnp.isnan(jax.jit(log_partition_isotropy, static_argnums=1)(wide, 8)).all()


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**16), scale=st.floats(1e-6, 1e6))
def test_cosines_do_not_see_rotation_scale_or_order(seed, scale):
    cloud = gaussian(50, 6, seed) + 0.5
    moved = jnp.asarray(np.random.default_rng(seed).permutation(cloud @ rotation(6, seed) * scale), jnp.float32)
    cloud = jnp.asarray(cloud)
    assert mean_cosine(moved) == pytest.approx(float(mean_cosine(cloud)), rel=1e-4)
    assert drift(moved) == pytest.approx(scale * float(drift(cloud)), rel=1e-4)
    assert mean_norm(moved) == pytest.approx(scale * float(mean_norm(cloud)), rel=1e-4)
    np.testing.assert_allclose(mean_cosine_parts(moved), mean_cosine_parts(cloud), rtol=1e-4)
    turned = jnp.asarray(moved / scale)
    assert log_partition_isotropy(turned) == pytest.approx(float(log_partition_isotropy(cloud)[0]), rel=1e-4)


@pytest.mark.parametrize(
    "metric", [*OF_KEPT.values(), lambda x: cross_cosine(x, x[:9]), lambda x: log_partition_isotropy(x, 3)]
)
def test_jit_and_vmap_change_nothing(metric):
    clouds = jnp.stack([gaussian(33, 5, seed) + 1 for seed in range(3)])
    one_by_one = jnp.stack([metric(cloud) for cloud in clouds])
    np.testing.assert_allclose(jax.vmap(metric)(clouds), one_by_one, rtol=1e-5)
    np.testing.assert_allclose([jax.jit(metric)(cloud) for cloud in clouds], one_by_one, rtol=1e-5)
