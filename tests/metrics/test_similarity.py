import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.metrics import similarity
from anisoscope.metrics.cloud import point_weights
from anisoscope.metrics.similarity import (
    cosine,
    cross_cosine,
    mean_cosine_parts,
    mean_vector,
    weighted_drift,
    weighted_mean_cosine,
)
from tests import reference, reference_similarity
from tests.metrics.clouds import EVERY, POINTS, filled, gaussian

KEPT = POINTS - 121  # how many points are kept where some are left out
SMALL = (31, 5)  # points and width of clouds with a known answer, or none


def pair(cloud_PD, keep_P=None):
    """A second cloud of its own mean, so that two clouds can be treated as one."""
    return cross_cosine(cloud_PD, 1.0 - cloud_PD, keep_P, keep_P)


OF_ONE = {  # of the cloud and weights
    name.removeprefix("weighted_"): getattr(similarity, name)
    for name in (
        *("weighted_mean_cosine", "mean_vector", "weighted_drift", "weighted_relative_drift"),
        *("fluctuation", "weighted_mean_norm"),
    )
}
OF_KEPT = OF_ONE | {
    "mean_cosine_parts": lambda *of: jnp.stack(mean_cosine_parts(*of)),
    "cross_cosine": pair,
}


def everything(cloud_PD, keep_P=None):
    return {name: metric(cloud_PD, keep_P) for name, metric in OF_KEPT.items()}


measured = jax.jit(everything)
of_choices = jax.jit(jax.vmap(everything, in_axes=(None, 0)))
partition = jax.jit(similarity.log_partition_isotropy)
cross = jax.jit(cross_cosine)


def known(points):
    """Of a few points of at most 5 coordinates: the others do not count."""
    cloud = filled(points, SMALL)
    return measured(cloud, (np.arange(len(cloud)) < len(points)).astype(np.float32))


def agrees(cloud):
    values = measured(cloud)
    for name in ("mean_cosine", "drift", "fluctuation", "mean_norm"):
        assert values[name] == pytest.approx(getattr(reference, name)(cloud), rel=1e-4), name
    expected = reference_similarity.relative_drift(cloud)
    assert values["relative_drift"] == pytest.approx(expected, rel=1e-4)
    parts = reference_similarity.mean_cosine_parts(cloud)
    np.testing.assert_allclose(values["mean_cosine_parts"], parts, rtol=1e-4)
    [isotropy] = partition(cloud)
    assert isotropy == pytest.approx(reference_similarity.log_partition_isotropy(cloud), rel=1e-4)


@pytest.mark.parametrize("name", EVERY)
def test_agrees_with_the_float64_twin(name):
    agrees(EVERY[name])


@pytest.mark.parametrize("name", ["gaussian", "mean 1000 x spread", "zoo: 20 % copies", "bfloat16"])
def test_points_left_out_are_as_if_they_had_not_been(name):
    cloud = EVERY[name] + np.float32(0.5)
    generator = np.random.default_rng(2)
    keep = np.stack(
        [np.ones(POINTS, bool), *(generator.permutation(POINTS) < KEPT for _ in range(4))]
    )
    values, whole = of_choices(cloud, keep.astype(np.float32)), measured(cloud)
    for metric in OF_KEPT:
        np.testing.assert_allclose(values[metric][0], whole[metric], rtol=1e-6, err_msg=metric)
    for choice, kept in enumerate(keep[1:], 1):
        alone = measured(cloud[kept])
        for metric, value in alone.items():
            scale = np.abs(value).max()  # a coordinate of a mean vector can be next to 0
            np.testing.assert_allclose(
                values[metric][choice], value, rtol=1e-5, atol=1e-6 * scale, err_msg=metric
            )


CLUSTER = np.arange(SMALL[0]) * 7 % 6
SIGNED = {
    "mean_cosine": (similarity.mean_cosine_flipped, lambda x: reference.mean_cosine(x)),
    "drift": (similarity.drift_flipped, lambda x: reference.drift(x) ** 2),
    "relative_drift": (
        similarity.relative_drift_flipped,
        lambda x: reference_similarity.relative_drift(x) ** 2,
    ),
}


@pytest.mark.parametrize("name", SIGNED)
@pytest.mark.parametrize("kept", [slice(None), slice(4)], ids=["all", "four clusters"])
def test_flipped_is_the_mean_over_all_choices_of_signs(name, kept):
    """Of a cloud that is far from the origin, and a cluster that is far from the others."""
    read, square = SIGNED[name]
    cloud = gaussian(*SMALL) + np.float32(3)
    cloud[CLUSTER == 1] += 5
    keep = np.isin(CLUSTER, np.arange(6)[kept])
    choices = itertools.product((-1, 1), repeat=6)
    values = [square((cloud * np.array(sign)[CLUSTER][:, None])[keep]) for sign in choices]
    expected = np.mean(values) if name == "mean_cosine" else np.sqrt(np.mean(values))
    found = jax.jit(read)(cloud, CLUSTER, keep.astype(np.float32))
    assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("offset", "dtype"), [(1, jnp.bfloat16), (1000, jnp.float32)])
def test_two_clouds_agree_with_the_float64_twin(offset, dtype):
    a, b = jnp.asarray(gaussian(41, 9), dtype), jnp.asarray(gaussian(23, 9, seed=1) + offset, dtype)
    assert cross(a, b) == pytest.approx(reference.cross_cosine(a, b), rel=1e-4)
    values = jax.jit(lambda a, b: cosine(mean_vector(a), mean_vector(b)))(a, b)
    expected = reference.cosine(reference.float64(a).mean(0), reference.float64(b).mean(0))
    assert values == pytest.approx(expected, rel=1e-4)


def test_known_answers():
    axes = np.eye(5, dtype=np.float32)
    assert known(axes)["mean_cosine"] == pytest.approx(0, abs=1e-7)
    assert known(np.concatenate([axes, -axes]))["mean_cosine"] == pytest.approx(-1 / 9, rel=1e-5)
    assert known([[2, 0], [5, 5]])["mean_cosine"] == pytest.approx(0.5**0.5, rel=1e-6)
    assert known([[3, 0], [3, 8]])["drift"] == pytest.approx(5)
    assert known([[3, 0], [3, 8]])["relative_drift"] == pytest.approx((25 / 41) ** 0.5)
    assert known([[3, 0], [3, 8]])["fluctuation"] == pytest.approx(4)
    assert known([[3, 4], [0, 1]])["mean_norm"] == pytest.approx(3)
    assert known([[3.1, 4.7]] * 9)["mean_cosine"] == pytest.approx(1, rel=1e-6)
    assert known([[3.1, 4.7]] * 9)["fluctuation"] == 0
    assert cross(axes[:1], axes[:4]) == pytest.approx(0.25)
    assert cosine(jnp.asarray(axes[0]), jnp.asarray(-3 * axes[0])) == pytest.approx(-1)


def test_known_partitions():
    """At e1: Z is e and 1/e along it, 1 along other axes. With its opposite: cosh."""
    one = np.eye(5, dtype=np.float32)[:1]
    assert partition(one) == pytest.approx(-2)
    assert partition(one * 1000) == pytest.approx(-2000)
    assert partition(np.concatenate([one, -one])) == pytest.approx(-np.log(np.cosh(1)), rel=1e-5)
    assert partition(np.zeros((2, 5), np.float32)) == pytest.approx(0)


@pytest.mark.parametrize("scale", [1, 60])
def test_folds_left_out_of_partitions(scale):
    """At 60 one point makes the largest Z by itself: what is left without it must not underflow."""
    cloud = gaussian(60, 7)
    cloud[17] *= scale
    values = partition(cloud, point_weights(4, 60))
    assert values.shape == (5,)
    left = [np.delete(cloud, np.s_[15 * j : 15 * j + 15], axis=0) for j in range(4)]
    expected = [reference_similarity.log_partition_isotropy(part, cloud) for part in [cloud, *left]]
    np.testing.assert_allclose(values, expected, rtol=1e-4)


def test_zero_vectors_are_left_out_of_cosines():
    points, width = SMALL
    cloud = gaussian(points - 4, width) + 1
    with_zeros = np.concatenate([np.zeros((4, width), np.float32), cloud])
    parts = reference_similarity.mean_cosine_parts(cloud)
    assert cross(with_zeros, cloud) == pytest.approx(reference.cross_cosine(cloud, cloud), rel=1e-5)
    for first in (0, 1):  # all, or all but one of the zeros
        values = measured(with_zeros, (np.arange(points) >= first).astype(np.float32))
        assert values["mean_cosine"] == pytest.approx(reference.mean_cosine(cloud), rel=1e-5)
        np.testing.assert_allclose(values["mean_cosine_parts"], parts, rtol=1e-5)


def test_what_has_no_direction_is_nan():
    one = np.float32([[0, 0, 0, 0, 0], [1, 0, 0, 0, 0]])
    for measures in (known(one), known(one[:1]), known(one[1:])):
        assert np.isnan([measures["mean_cosine"], *measures["mean_cosine_parts"]]).all()
    none_kept = measured(filled(one, SMALL), np.zeros(SMALL[0], np.float32))
    assert all(np.isnan(value).all() for value in none_kept.values())
    assert np.isnan(cross(one[:1], one))
    assert np.isnan(cosine(*jnp.asarray(one)))


def test_sums_of_many_points_keep_their_digits():
    """A narrow cone: one float32 run over so many points would be off by 2e-3."""
    cloud = np.random.default_rng(0).normal(size=(200_001, 4)).astype(np.float32) + np.float32(
        [60, 0, 0, 0]
    )
    unit = cloud.astype(np.float64) / np.linalg.norm(
        cloud.astype(np.float64), axis=1, keepdims=True
    )
    pairs = np.square(unit.sum(axis=0)).sum() - len(unit)  # the twin writes out all pairs
    np.testing.assert_allclose(
        weighted_mean_cosine(jnp.asarray(cloud)), pairs / (len(unit) * (len(unit) - 1)), rtol=1e-5
    )
    np.testing.assert_allclose(
        weighted_drift(jnp.asarray(cloud)), reference.drift(cloud), rtol=1e-5
    )
