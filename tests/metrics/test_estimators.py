import jax
import numpy as np
import pytest

from anisoscope.metrics import estimators
from anisoscope.metrics.decomposition import spectrum
from tests import reference_scale as reference
from tests.metrics.clouds import CLOUDS, POINTS, filled, find, gaussian, rotation

correlation, tree = (
    jax.jit(estimators.part_correlation_dimension),
    jax.jit(estimators.part_ph_dimension),
)
NEIGHBORS = 20


SMALL = gaussian(160, 12)
HOSTILE = {
    "one coordinate 1e6": SMALL.copy(),
    "one coordinate 1e7": SMALL.copy(),
    "whole numbers": np.random.default_rng(5).integers(0, 4, (160, 12)).astype(np.float32),
    # 157 distinct: a median is a distance
    "odd": np.concatenate([SMALL[:157], np.repeat(SMALL[:1], 3, axis=0)]),
}
HOSTILE["one coordinate 1e6"][5, 3], HOSTILE["one coordinate 1e7"][5, 3] = 1e6, 1e7
HOSTILE["whole numbers, turned round"] = (HOSTILE["whole numbers"] * np.float32(1.37))[::-1]


@pytest.mark.parametrize("name", HOSTILE)
def test_pairs_at_a_radius_are_counted_as_in_float64(name):
    cloud = np.ascontiguousarray(HOSTILE[name])
    found = correlation(cloud, find(cloud, 20))
    np.testing.assert_allclose(found, reference.correlation_dimension(cloud), rtol=1e-5)
    if "whole" in name:
        np.testing.assert_allclose(
            found, reference.correlation_dimension(HOSTILE["whole numbers"]), rtol=1e-5
        )


@pytest.mark.parametrize("name", CLOUDS)
def test_agree_with_every_distance_in_float64(name):
    cloud = CLOUDS[name]
    np.testing.assert_allclose(
        correlation(cloud, find(cloud, NEIGHBORS)),
        reference.correlation_dimension(cloud),
        rtol=2e-3,
    )
    np.testing.assert_allclose(tree(cloud), reference.ph_dimension(cloud), rtol=5e-3)


@pytest.mark.parametrize("dimension", [2, 5])
def test_a_cube_has_its_dimension_wherever_it_lies(dimension):
    cube = np.random.default_rng(0).uniform(size=(POINTS, dimension))
    cloud = (7 * filled(cube) @ rotation(64) + 3).astype(np.float32)
    np.testing.assert_allclose(correlation(cloud, find(cloud, NEIGHBORS)), dimension, rtol=0.2)
    np.testing.assert_allclose(tree(cloud), dimension, rtol=0.3)


@pytest.mark.parametrize("ratio", [0.01, 0.25, 1.0])
def test_the_median_of_noise_is_that_of_its_law(ratio):
    np.testing.assert_allclose(
        estimators.marchenko_pastur_median(ratio),
        reference.marchenko_pastur_median(ratio),
        rtol=1e-4,
    )


def spectrum_of(cloud):
    return spectrum(cloud.astype(np.float32)).eigenvalues_E[0]


def test_directions_that_stand_out_of_noise_are_counted_by_both_rules():
    x = gaussian(600, 60)
    for strong in (0, 3, 17):
        cloud = x.copy()
        cloud[:, :strong] *= 5
        eigenvalues = np.linalg.eigvalsh(np.cov(cloud.T)).astype(np.float32)
        assert abs(float(estimators.marchenko_pastur_rank(eigenvalues, 600)) - strong) <= 2
        assert float(estimators.gavish_donoho_rank(eigenvalues, 600)) == strong
    for low, rank in (
        (spectrum_of(x * (np.arange(60) < 5)), 5),
        (spectrum_of(np.where(x == x[3, 3], 1e6, x)), 1),
    ):
        for rule in (estimators.marchenko_pastur_rank, estimators.gavish_donoho_rank):
            assert float(rule(low, 600)) == rank
    ones = np.ones(60, np.float32)
    for rule in (estimators.marchenko_pastur_rank, estimators.gavish_donoho_rank):
        assert np.isnan(rule(ones, 59))
        assert np.isnan(rule(0 * ones, 600))
        assert np.isnan(rule(np.nan * ones, 600))


def test_bad_input_is_told():
    cloud = gaussian()
    cloud[4, 4] = np.nan
    assert np.isnan(tree(cloud))
    assert np.isnan(correlation(cloud, find(cloud, NEIGHBORS)))
    assert np.isnan(estimators.part_ph_dimension(gaussian(40, 3)))
    with pytest.raises(ValueError, match="20 neighbors are needed"):
        jax.eval_shape(lambda x: correlation(x, find(x, 12)), gaussian())


def test_square_noise_has_the_threshold_of_the_title():
    """4/sqrt(3) of known noise; 2.858 times the median singular value where it is unknown."""
    singular = np.linspace(0.5, 1.5, 101)
    singular[-1] = 2.858 * np.median(singular)
    for factor, rank in ((0.999, 0), (1.001, 1)):
        changed = singular.copy()
        changed[-1] *= factor
        assert float(estimators.gavish_donoho_rank((changed**2).astype(np.float32), 101)) == rank
