import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import gammainc

from anisoscope.metrics.dimension import (
    has_enough_points,
    twonn,
    twonn_bayes,
    twonn_microscope,
    twonn_mle,
)
from tests import reference
from tests.metrics import clouds
from tests.metrics.clouds import (
    CLOUDS,
    FEW,
    POINTS,
    TOO_FEW,
    WIDE,
    WIDTH,
    filled,
    find,
    gaussian,
    with_one,
)


def readings(neighbors):
    """The dimensions by the two fits, what is counted, LLM-Microscope's, and the posterior."""
    counts = jnp.array([neighbors.duplicates(), neighbors.dropped()])
    dimensions = jnp.array([twonn(neighbors), twonn_mle(neighbors)])
    return dimensions, counts, twonn_microscope(neighbors), twonn_bayes(neighbors)


read = jax.jit(readings)


def measured(cloud):
    """The same as NumPy arrays, the posterior left out."""
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


@pytest.mark.parametrize("name", [*CLOUDS, "more dimensions than points"])
def test_agrees_with_the_float64_twin(name):
    agrees(CLOUDS.get(name, WIDE))


@pytest.mark.parametrize("share", [0.01, 0.3, 0.5])
def test_llm_microscopes_flaw_is_that_of_its_twin(share):
    """Of the fit through its own points with their copies; nothing is left where each point has
    one.
    """
    cloud = clouds.with_copies(gaussian(seed=7), share)
    agrees(cloud)
    assert np.isnan(measured(cloud)[2].dimension) == (share == 0.5)


# mean and deviation of 4 draws, of the 90 % fit, maximum likelihood and LLM-Microscope's fit
@pytest.mark.parametrize(
    ("width", "mean", "deviation"),
    [
        (5, [5.08, 5.08, 5.10], [0.10, 0.11, 0.18]),
        pytest.param(10, [9.97, 9.95, 9.82], [0.16, 0.12, 0.30], marks=pytest.mark.slow),
        pytest.param(20, [17.35, 17.45, 16.99], [0.27, 0.27, 0.90], marks=pytest.mark.slow),
        pytest.param(50, [33.4, 33.6, 32.7], [0.8, 0.8, 1.0], marks=pytest.mark.slow),
    ],
)
def test_is_calibrated_on_gaussians(width, mean, deviation):
    results = []
    for seed in range(2):
        dimensions, _, microscope = measured(filled(gaussian(4096, width, seed), (4096, WIDTH)))
        results.append([*dimensions, microscope.dimension])
    np.testing.assert_array_less(np.abs(np.mean(results, axis=0) - mean), 2 * np.array(deviation))


def test_reproduces_scikit_dimensions_published_values():
    """4.05496 and 4.11323, rounded, for 30 points of a 5-ball at seed 0. There F is numbered from
    0.
    """
    normal = np.random.RandomState(0).randn(30, 5)
    square = (normal**2).sum(1, keepdims=True)
    ball = np.zeros((30, 10))
    # uniform in the unit ball
    ball[:, :5] = normal * gammainc(5 / 2, square / 2) ** (1 / 5) / np.sqrt(square)
    neighbors = find(filled(ball), FEW)
    x = np.sort(np.log(reference.float64(neighbors.r2_P) / reference.float64(neighbors.r1_P))[:30])
    for kept, published in ((27, 4.05496), (28, 4.11323)):
        y = -np.log(1 - np.arange(kept) / 30)
        assert (x[:kept] @ y) / (x[:kept] @ x[:kept]) == pytest.approx(published, abs=2e-5)
    assert read(neighbors)[0][0] == pytest.approx(reference.twonn(ball), rel=1e-5)


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
    """Of a smaller cloud half of its points: tests/measurement/test_dimension.py."""
    assert bool(has_enough_points(find(filled(gaussian(distinct, WIDTH)), FEW))) == are


def test_three_distinct_points_among_copies_have_a_dimension():
    """0, 1 and 3 on a line: ratios 3, 2, 3/2, of which the fit keeps 3/2 and 2 with F = 1/3 and
    2/3.
    """
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
    """As a network leaves them where two positions have the same history; r2/r1 would be 1e5 and
    more, and 1 nearby.
    """
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
