import jax
import numpy as np
import pytest

from anisoscope.metrics import frequency
from tests import reference_frequency as reference
from tests.metrics.clouds import EVERY, gaussian

POINTS, FOLDS = 600, 4
SHARES = 0.8 ** np.arange(12) / (0.8 ** np.arange(12)).sum()
TYPE = np.random.default_rng(1).choice(12, POINTS, p=SHARES) * 7 - 7  # the first is -7: of none
LOG_FREQUENCY = np.log(SHARES[TYPE // 7 + 1]).astype(np.float32)
MOST = POINTS // frequency.LEAST_OF_TYPE

frequent = jax.jit(frequency.number_frequent_types)
of_types = jax.jit(frequency.type_statistics, static_argnums=3)
mean_by_bin = jax.jit(frequency.mean_by_bin, static_argnums=2)


def keeps(points=POINTS):
    fold = np.arange(points) // (points // FOLDS)
    return [np.ones(points, bool), *(fold != one for one in range(FOLDS))]


def values_of(cloud, types=TYPE, log_frequency=LOG_FREQUENCY):
    return np.array(of_types(cloud[:POINTS], frequent(types), log_frequency, FOLDS)[:4])


def test_frequent_types_are_numbered_and_the_others_have_one_number():
    np.testing.assert_array_equal(frequent(TYPE), reference.frequent(TYPE, frequency.LEAST_OF_TYPE))
    # of eleven, three have too few points; and one number for all others
    assert len(np.unique(frequent(TYPE))) == 9
    np.testing.assert_array_equal(frequent(np.full(POINTS, -1)), MOST)
    np.testing.assert_array_equal(
        frequent(np.repeat(np.arange(MOST), frequency.LEAST_OF_TYPE)), np.arange(POINTS) // 20
    )


@pytest.mark.parametrize("name", EVERY)
def test_agrees_with_float64_on_every_resample(name):
    cloud = EVERY[name][:POINTS]
    number = reference.frequent(TYPE, frequency.LEAST_OF_TYPE)
    expected = [reference.of_types(cloud, number, LOG_FREQUENCY, MOST, keep) for keep in keeps()]
    np.testing.assert_allclose(values_of(cloud), np.transpose(expected), rtol=2e-4, atol=2e-4)
    bins, each = np.abs(TYPE) % 5, of_types(cloud, number, LOG_FREQUENCY, FOLDS).distances
    for keep, distance in zip(keeps()[:2], each[:2], strict=True):
        expected = reference.distances(cloud, number, MOST, keep)
        np.testing.assert_allclose(distance, expected, rtol=2e-4, atol=2e-5 * np.nanmax(expected))
        got = mean_by_bin(distance, bins, 6, (keep & ~np.isnan(distance)).astype(np.float32))
        np.testing.assert_allclose(got, reference.mean_by_bin(distance, bins, 6, keep), rtol=1e-5)


def test_a_type_of_which_a_resample_keeps_one_point_is_left_out_of_it():
    """All but one of its points are of the first group."""
    types = np.arange(POINTS) % 4
    types[: 2 * frequency.LEAST_OF_TYPE : 2], types[POINTS // FOLDS] = 9, 9
    number, cloud = reference.frequent(types, frequency.LEAST_OF_TYPE), gaussian()[:POINTS]
    log_frequency = np.log(np.maximum(np.bincount(types), 1))[types].astype(np.float32)
    expected = [reference.of_types(cloud, number, log_frequency, MOST, keep) for keep in keeps()]
    np.testing.assert_allclose(
        values_of(cloud, types, log_frequency), np.transpose(expected), rtol=2e-4, atol=2e-4
    )


def test_of_copies_of_a_center_nothing_is_left_but_what_lies_between():
    """As in layer 0 of a model without learned positions."""
    cloud = gaussian(12, 64)[TYPE // 7 + 1] + np.float32(100)
    distance, correlation, of_means, share = values_of(cloud)
    np.testing.assert_array_equal(distance, 0)
    assert np.isnan([correlation, of_means]).all()
    np.testing.assert_allclose(share, 1, rtol=1e-5)


def test_what_cannot_be_said_is_nan():
    cloud = gaussian()
    assert np.isnan(values_of(cloud, np.full(POINTS, -1))).all()
    assert np.isnan(values_of(cloud, np.arange(POINTS))).all()
    one, two = np.zeros(POINTS, int), np.arange(POINTS) % 2
    np.testing.assert_array_equal(
        np.isnan(values_of(cloud, one)).all(axis=1), [False, True, True, True]
    )
    np.testing.assert_array_equal(
        np.isnan(values_of(cloud, two)).all(axis=1), [False, True, True, False]
    )
    assert np.isnan(values_of(cloud, TYPE, np.zeros(POINTS, np.float32))[1:3]).all()
    assert np.isnan(values_of(np.ones_like(cloud))[1:]).all()
    assert np.isnan(
        of_types(cloud[:16], frequent(np.zeros(16, int)), LOG_FREQUENCY[:16], FOLDS)[0]
    ).all()
    assert np.isnan(mean_by_bin(cloud[:, 0], np.zeros(len(cloud), int), 2)[1])
    for lost in (np.nan, np.inf):
        value = np.array([1.0, lost, 2.0, 4.0], np.float32)
        np.testing.assert_array_equal(mean_by_bin(value, np.array([0, 0, 1, 1]), 2), [np.nan, 3])
        np.testing.assert_array_equal(
            mean_by_bin(value, np.array([0, 0, 1, 1]), 2, np.float32([1, 0, 0, 1])), [1, 4]
        )
    cloud[5, 3] = np.nan
    assert np.isnan(values_of(cloud)).all()
