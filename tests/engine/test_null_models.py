"""The Gaussian null model of a cloud has its spectrum and copies, and nothing else of it; null models
that need no draw say 0 where there is nothing to say.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope import measure
from anisoscope.engine.null_models import DRAWS, factor_covariance, gaussian
from anisoscope.metrics import spectrum
from anisoscope.metrics.decomposition import isotropic_spectra
from anisoscope.metrics.spectrum import read_participation_ratio
from tests import reference_spectrum


@jax.jit
def _drawn(cloud, keys):
    return gaussian(factor_covariance(cloud, keys[0]), keys[1])


def drawn(cloud, seed):
    return _drawn(jnp.asarray(cloud, jnp.float32), jax.random.split(jax.random.key(seed)))


@pytest.mark.slow
def test_a_gaussian_cloud_has_no_features():
    cloud = np.random.default_rng(0).standard_exponential((4096, 5)) * [4, 3, 2, 1, 1] + 7
    null = np.asarray(drawn(cloud, 0))
    assert abs((((null - null.mean(0)) / null.std(0)) ** 4).mean() - 3) < 0.1
    assert ((cloud - cloud.mean(0)) ** 4 / cloud.var(0) ** 2).mean() > 6


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
def test_a_gaussian_cloud_has_the_copies_and_the_covariance_of_the_distinct_points(
    points, degenerate
):
    cloud = degenerate(
        np.random.default_rng(0).standard_normal((points, 96)).astype(np.float32)
    ).astype(np.float32)
    null = np.asarray(drawn(cloud, 0), np.float64)
    _, first, word = np.unique(cloud, axis=0, return_index=True, return_inverse=True)
    same = word.ravel()[:, None] == word.ravel()[None]
    np.testing.assert_array_equal((null[:, None] == null[None]).all(-1), same)
    np.testing.assert_allclose(null[first].mean(0), cloud[first].mean(0), atol=1e-5)
    covariances = [np.cov(x[first].T.astype(np.float64), bias=True) for x in (null, cloud)]
    np.testing.assert_allclose(*covariances, atol=2e-6 * covariances[1].max())


@pytest.mark.parametrize(
    "shape", [(256, 32), pytest.param((128, 160), marks=pytest.mark.slow)], ids=str
)
def test_gaussian_clouds_do_not_exceed_their_null_model(shape):
    """A null model drawn from the sample's spectrum is several deviations off.

    So is the same draw for all clouds, and one of all points beside a cloud with duplicates.
    """
    quarter, width = shape[0] // 4, shape[1]
    clouds = np.random.default_rng(0).normal(size=(60, *shape)) * np.arange(1, width + 1) ** -0.5
    clouds[:20, :quarter] = clouds[:20, quarter : 2 * quarter]
    table = measure([*clouds], families="dimension", nulls="gaussian")
    excess = table.twonn_excess.sel(null="gaussian")
    mean, low, high = (excess.sel(statistic=name).values for name in ("mean", "low", "high"))
    for part in (slice(20), slice(20, None)):
        assert abs(mean[part].mean()) < 3 * mean[part].std(ddof=1) / np.sqrt(mean[part].size)
    assert ((low <= 0) & (high >= 0)).mean() >= 0.88
    assert (high - low).mean() < 3 * 2 * 1.96 * mean.std()
    assert f"mean over {DRAWS} draws" in excess.attrs["formula"]


def test_the_gaussian_cloud_lies_where_the_cloud_does():
    """Norms are about the origin: a Gaussian cloud far from it exceeds no null model."""
    clouds = np.random.default_rng(0).normal(size=(20, 256, 8)) + 100 * np.eye(8)[0]
    table = measure([*clouds], families="leading", nulls="gaussian")
    excess = table.norm_ratio_excess.sel(null="gaussian", statistic="mean")
    assert (table.norm_ratio.sel(statistic="mean") < 1.1).all()
    assert abs(excess).max() < 0.05


HEADLINES = ("anisotropy", "participation_ratio", "effective_rank", "mean_cosine", "relative_drift")


def excess_of(table, name, null):
    return table[f"{name}_excess"].sel(null=null)


def test_isotropic_clouds_without_a_mean_exceed_no_null_model():
    clouds = np.random.default_rng(0).normal(size=(40, 128, 16))
    table = measure([*clouds], families=("spectrum", "similarity"))
    for name in HEADLINES:
        null = "flipped" if name in HEADLINES[3:] else "isotropic"
        mean, low, high = (
            excess_of(table, name, null).sel(statistic=at).values for at in ("mean", "low", "high")
        )
        error = mean.std(ddof=1) / len(mean) ** 0.5
        # the root of a mean square is above the mean
        assert abs(mean.mean()) < 3 * error + (2e-3 if name == "relative_drift" else 0), name
        assert ((low <= 0) & (high >= 0)).mean() >= 0.8, name


def test_headlines_exceed_the_null_models_of_what_they_tell():
    """A cloud with one long direction, off the origin, in clusters that have a place each."""
    generator, cluster = np.random.default_rng(0), np.arange(256) // 16
    x = generator.normal(size=(256, 16)) + generator.normal(size=(16, 16))[cluster]
    x[:, 0] *= 10
    layers = [x, x + 100 * np.eye(16)[1]]
    table = measure(layers, cluster, families=("spectrum", "similarity"))
    near, far = (table.sel(layer=layer) for layer in (0, 1))
    assert "capped" in table.anisotropy.attrs["null_models"]
    for null, share in (("isotropic", 0.7), ("capped", 0.6)):
        assert excess_of(near, "anisotropy", null).sel(statistic="low") > share
        assert excess_of(near, "participation_ratio", null).sel(statistic="high") < -1
    assert excess_of(near, "relative_drift", "flipped").sel(statistic="low") < 0.2
    assert excess_of(far, "relative_drift", "flipped").sel(statistic="low") > 0.7
    # cosines within clusters are no excess over signs that clusters share
    value = near.sel(statistic="mean")
    assert value.mean_cosine - excess_of(value, "mean_cosine", "flipped") > 0.01


@pytest.mark.parametrize("shape", [(60, 16), (16, 60), (9, 3), (24, 24)], ids=str)
def test_drawn_spectra_are_those_of_isotropic_gaussian_clouds(shape):
    """E tr W^2 = n D (n + D + 1) and E (tr W)^2 = n D (n D + 2) of Wishart matrices W."""
    spectra, (n, width) = isotropic_spectra(*shape), (shape[0] - 1, shape[1])
    inverse_S = 1 / np.asarray(jax.vmap(read_participation_ratio)(spectra))
    error = inverse_S.std() / len(inverse_S) ** 0.5
    assert abs(inverse_S.mean() - (n + width + 1) / (n * width + 2)) <= 4 * error + 1e-6
    clouds = np.random.default_rng(1).normal(size=(60, *shape))
    for name in ("anisotropy", "anisotropy_uncentered", "effective_rank"):
        found = np.asarray(jax.vmap(getattr(spectrum, f"read_{name}"))(spectra))
        expected = np.array([getattr(reference_spectrum, name)(x) for x in clouds])
        error = np.hypot(*(x.std() / len(x) ** 0.5 for x in (found, expected)))
        assert abs(found.mean() - expected.mean()) < 4 * error, name
