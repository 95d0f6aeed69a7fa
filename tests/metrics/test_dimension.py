import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.metrics.dimension import (
    has_enough_points,
    read_twonn,
    read_twonn_microscope,
    read_twonn_mle,
    twonn_bayes,
)
from tests import reference
from tests.metrics.clouds import (
    CLOUDS,
    FEW,
    POINTS,
    TOO_FEW,
    WIDTH,
    filled,
    find,
    gaussian,
    with_one,
)


def readings(neighbors):
    """The dimensions by the two fits, what is counted, LLM-Microscope's, and the posterior."""
    counts = jnp.array([neighbors.duplicates(), neighbors.dropped()])
    dimensions = jnp.array([read_twonn(neighbors), read_twonn_mle(neighbors)])
    return dimensions, counts, read_twonn_microscope(neighbors), twonn_bayes(neighbors)


read = jax.jit(readings)


def measured(cloud):
    """The same as NumPy arrays, without the posterior."""
    return jax.tree.map(np.asarray, read(find(cloud, FEW))[:3])


def posterior(cloud):
    return np.array(read(find(cloud, FEW))[3])


def agrees(cloud):
    dimensions, counts, microscope = measured(cloud)
    np.testing.assert_allclose(
        dimensions, [reference.twonn(cloud), reference.twonn_mle(cloud)], rtol=1e-4
    )
    assert counts.tolist() == [reference.duplicate_points(cloud), reference.twonn_dropped(cloud)]
    expected, useless, dropped = reference.twonn_microscope(cloud)
    np.testing.assert_allclose(microscope.dimension, expected, rtol=1e-4)
    assert (int(microscope.useless), int(microscope.dropped)) == (useless, dropped)
    np.testing.assert_allclose(posterior(cloud), reference.twonn_bayes(cloud), rtol=1e-4)


@pytest.mark.parametrize("name", CLOUDS)
def test_agrees_with_the_float64_twin(name):
    agrees(CLOUDS[name])


@pytest.mark.parametrize("cloud", [*TOO_FEW, with_one(np.nan), with_one(np.inf)])
def test_too_few_distinct_points_and_what_is_not_finite_are_nan_with_counts(cloud):
    dimensions, counts, microscope = measured(cloud)
    assert np.isnan([*dimensions, microscope.dimension, *posterior(cloud)]).all()
    distinct = len(np.unique(cloud, axis=0))
    assert counts.tolist() == [len(cloud) - distinct, distinct]
    if distinct < len(cloud):
        assert (microscope.useless, microscope.dropped) == (POINTS, POINTS)


@pytest.mark.parametrize(("distinct", "are"), [(63, False), (64, True)])
def test_64_distinct_points_are_enough_to_report_a_dimension(distinct, are):
    """Of a smaller cloud half of its points: tests/metrics/test_family_replicates.py."""
    assert bool(has_enough_points(find(filled(gaussian(distinct, WIDTH)), FEW))) == are


def test_three_distinct_points_among_copies_have_a_dimension():
    """0, 1 and 3 on a line: the fit keeps the ratios 3/2 and 2, with F = 1/3 and 2/3."""
    cloud = filled(np.repeat([[0.0, 1.0], [1.0, 1.0], [3.0, 1.0]], 50, axis=0))
    dimensions, counts, _ = measured(cloud)
    x, y = np.log([1.5, 2.0]), np.log([1.5, 3.0])
    np.testing.assert_allclose(dimensions, [x @ y / (x @ x), 2 / np.log(9.0)], rtol=1e-5)
    assert counts.tolist() == [POINTS - 3, 0]


def test_a_lattice_is_infinite_and_its_posterior_is_what_the_prior_leaves():
    """All 36 ratios are 1: Gamma(2 + 36, 5)."""
    x, y = np.meshgrid(np.arange(6.0), np.arange(6.0))
    cloud = filled(np.c_[x.ravel(), y.ravel()])
    assert (measured(cloud)[0] == np.inf).all()
    np.testing.assert_allclose(posterior(cloud), [38 / 5, 38**0.5 / 5], rtol=1e-6)


@pytest.mark.parametrize("twins", [12, 200])
def test_points_equal_but_for_rounding_count_as_one(twins):
    """As a network leaves positions of the same history; r2/r1 would be 1e5 and more."""
    cloud = gaussian()
    cloud[:twins] = cloud[-twins:]
    expected = measured(cloud)
    cloud[:twins] *= 1 + 1e-7 * np.random.default_rng(1).normal(size=(twins, WIDTH))
    dimensions, counts, microscope = measured(cloud)
    np.testing.assert_allclose(dimensions, expected[0], rtol=1e-5)
    np.testing.assert_allclose(
        dimensions, [reference.twonn(cloud), reference.twonn_mle(cloud)], rtol=1e-4
    )
    assert counts.tolist() == expected[1].tolist() == [twins, 0]
    near = cloud.copy()
    near[:twins] = cloud[-twins:] * (1 + 1e-5)  # what is no rounding
    assert measured(near)[1].tolist() == [0, 0]
    published, useless, dropped = reference.twonn_microscope(cloud)  # which knows of no rounding
    assert int(microscope.useless) == useless == 0
    assert int(microscope.dropped) <= dropped < twins / 3  # by chance two of a pair are equally far
    if twins == 12:  # of many, the published one is read off ratios that are rounding
        np.testing.assert_allclose(microscope.dimension, published, rtol=0.02)
