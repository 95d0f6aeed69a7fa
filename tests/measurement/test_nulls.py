"""The Gaussian null model of a cloud has its spectrum and copies, and nothing else of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.measurement.families import dimension
from anisoscope.measurement.intervals import summarise
from anisoscope.measurement.nulls import gaussian
from anisoscope.measurement.resamples import Cloud, search
from tests import reference_spectrum


@pytest.mark.parametrize("points", [pytest.param(4096, marks=pytest.mark.slow), 4])
def test_a_gaussian_cloud_has_the_spectrum_and_no_features(points):
    cloud = np.random.default_rng(0).standard_exponential((points, 5)) * [4, 3, 2, 1, 1] + 7
    null = np.asarray(gaussian(jnp.asarray(cloud, jnp.float32), jax.random.key(0)))
    found, expected = (reference_spectrum.eigenvalues(x)[: points - 1] for x in (null, cloud))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(null.mean(0), 0, atol=1e-5)
    if points > 4:
        assert abs(((null / null.std(0)) ** 4).mean() - 3) < 0.1
        assert ((cloud - cloud.mean(0)) ** 4 / cloud.var(0) ** 2).mean() > 6


@pytest.mark.parametrize("distinct", [40, pytest.param(5, marks=pytest.mark.slow)])
def test_a_gaussian_cloud_has_the_copies_and_the_spectrum_of_the_distinct_points(distinct):
    generator = np.random.default_rng(0)
    cloud = codebook(generator, distinct, 12, 400)
    null = np.asarray(gaussian(jnp.asarray(cloud), jax.random.key(0)))
    first, pattern = (np.unique(cloud, axis=0, return_index=True, return_inverse=True)[i] for i in (1, 2))
    same = pattern.ravel()[:, None] == pattern.ravel()[None]
    np.testing.assert_array_equal((null[:, None] == null[None]).all(-1), same)
    found, expected = (reference_spectrum.eigenvalues(x[first])[: len(first) - 1] for x in (null, cloud))
    np.testing.assert_allclose(found, expected, rtol=2e-5)


@pytest.mark.parametrize("points", [48, 200])
@pytest.mark.parametrize(
    "degenerate",
    [
        lambda x: x,
        lambda x: np.where(np.arange(96) < 10, 3.0, x),  # constant coordinates
        lambda x: x[:, np.arange(96) // 2],  # each coordinate twice
        lambda x: x[np.arange(len(x)) % 30] * (np.arange(96) > 20),  # 30 distinct points
        lambda x: x[:, :1] * np.ones(96),  # on a line
    ],
    ids=["plain", "constant", "twice", "copies", "line"],
)
def test_a_gaussian_cloud_has_the_covariance_of_the_distinct_points_whatever_their_rank(points, degenerate):
    cloud = degenerate(np.random.default_rng(0).standard_normal((points, 96)).astype(np.float32)).astype(np.float32)
    null = np.asarray(gaussian(jnp.asarray(cloud), jax.random.key(0)), np.float64)
    first = np.unique(cloud, axis=0, return_index=True)[1]
    np.testing.assert_allclose(null[first].mean(0), 0, atol=1e-5)
    covariances = [np.cov(x[first].T.astype(np.float64), bias=True) for x in (null, cloud)]
    np.testing.assert_allclose(*covariances, atol=2e-6 * covariances[1].max())


def codebook(generator, distinct, width, points):
    """Points that are copies of a few normal ones, some much more often than others."""
    weight = 1 / np.arange(1, distinct + 1)
    words = generator.normal(size=(distinct, width)).astype(np.float32)
    return words[generator.choice(distinct, points, p=weight / weight.sum())]


@pytest.mark.parametrize("copies", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_gaussian_cloud_does_not_exceed_its_null_model(copies):
    """In 64 dimensions and 512 points a null model drawn from the sample's spectrum is 4 deviations off.

    So is one of 512 distinct points beside a cloud of fewer.
    """
    excess = []
    read = jax.jit(
        lambda cloud_PD: dimension.compute(Cloud(cloud_PD, 8, search(cloud_PD, dimension.FAMILY.neighbours, 8)))
    )
    null_of = jax.jit(gaussian)
    for seed in range(40):
        generator = np.random.default_rng(seed)
        cloud = codebook(generator, 300, 64, 512) if copies else generator.normal(size=(512, 64)).astype(np.float32)
        value, null = (np.asarray(read(x)["twonn"])[None] for x in (cloud, null_of(cloud, jax.random.key(seed))))
        excess.append(summarise(value, "sections", null))
    mean = np.mean([one.mean for one in excess])
    assert abs(mean) < 3 * np.std([one.mean for one in excess]) / np.sqrt(40)
    assert np.mean([one.low <= 0 <= one.high for one in excess]) >= 0.85
