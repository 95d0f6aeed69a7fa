import jax
import numpy as np
import pytest
from scipy.optimize import brentq

from anisoscope.metrics import scale
from anisoscope.metrics.dimension import read_twonn
from anisoscope.metrics.neighbors import Neighbors
from tests import reference_scale as reference
from tests.metrics.clouds import (
    ALL,
    FEW,
    IN_ZOO,
    POINTS,
    TOO_FEW,
    ZOO,
    filled,
    find,
    gaussian,
    with_one,
)

FEWER = (31, 5)  # than the neighbors that are searched


def readings(neighbors):
    """All that does not depend on the order of the points, and the local dimensions, which do."""
    everywhere = scale.gride_curve, scale.read_levina_bickel, scale.local_quantiles
    return tuple(read(neighbors) for read in everywhere), scale.local_dimensions(neighbors)


read = jax.jit(readings)
gride = jax.jit(scale.read_gride, static_argnums=1)


def measured(cloud):
    """The same as NumPy arrays, without the local dimensions."""
    return jax.tree.map(np.asarray, read(find(cloud, ALL))[0])


def local(cloud):
    return np.asarray(read(find(cloud, ALL))[1])


def at_distances(distance_PC):
    """Distinct points with neighbors at these distances."""
    points = len(distance_PC)
    one_P, index_P, index_PC = (
        np.ones(points, np.int32),
        np.arange(points),
        np.zeros(distance_PC.shape, np.int32),
    )
    return Neighbors(
        *(distance_PC.astype(np.float32), index_PC, index_P, one_P > 0, one_P, one_P),
        *(np.float32(one_P), one_P > 0),
    )


def poisson(dimension, points=4000, seed=0):
    """Draw points among an even crowd: the powers r^d are sums of exponential steps."""
    steps_PC = np.random.default_rng(seed).exponential(size=(points, ALL))
    return at_distances(np.cumsum(steps_PC, axis=1) ** (1 / dimension))


def agrees(cloud):
    distances = reference.distances(cloud)
    curve, levina_bickel, quantiles = measured(cloud)
    np.testing.assert_allclose(
        curve, [reference.gride(distances, n1) for n1 in scale.SCALES], rtol=1e-4
    )
    assert levina_bickel == pytest.approx(reference.levina_bickel(distances), rel=1e-4)
    dimensions = reference.local_dimensions(distances)
    first = np.asarray(find(cloud, ALL).first_P)
    np.testing.assert_allclose(local(cloud)[first], dimensions, rtol=1e-4)
    upper = 1 - np.array(scale.QUANTILES)
    np.testing.assert_allclose(quantiles, 1 / np.quantile(1 / dimensions, upper), rtol=1e-4)


@pytest.mark.parametrize("name", IN_ZOO)
def test_agrees_with_the_float64_twin(name):
    agrees(IN_ZOO[name])


@pytest.mark.parametrize("dimension", [1.0, 3.0, 40.0])
def test_finds_the_dimension_of_its_own_model(dimension):
    """Within 4 standard errors, those of n n1, n (k - 1) and n (k - 3) ratios."""
    (curve, levina_bickel, _), local = read(poisson(dimension))
    points = len(local)
    error_S = dimension / np.sqrt(points * np.array(scale.SCALES))
    np.testing.assert_array_less(np.abs(curve - dimension), 4 * error_S)
    assert levina_bickel == pytest.approx(dimension, abs=4 * dimension / np.sqrt(19 * points))
    assert local.mean() == pytest.approx(dimension, abs=4 * dimension / np.sqrt(17 * points))


@pytest.mark.parametrize("first", [2, 64])
@pytest.mark.parametrize("spread", [0.01, 1.0, 4.0])
def test_uneven_ratios_and_ties_reach_the_root(first, spread):
    """Ratios over orders of magnitude, a third of them ties, where the score has a limit."""
    x = np.exp(np.random.default_rng(first).normal(-9, spread, 900))
    x[:300] = 0  # and some more by rounding
    distance_PC = np.ones((900, 2 * first))
    distance_PC[:, -1] = np.exp(x)
    distance_PC = distance_PC.astype(np.float32)
    x = np.log(distance_PC[:, -1].astype(float))

    def score(d):
        positive = d * x[x > 0]
        ties = (x == 0).sum()
        return (
            900 + (first - 1) * (ties + (positive / np.expm1(positive)).sum()) - first * d * x.sum()
        )

    expected = brentq(score, 0.5 / x.mean(), 1.01 / x.mean(), rtol=1e-12)
    assert gride(at_distances(distance_PC), first) == pytest.approx(expected, rel=1e-5)


def test_ties_alone_are_infinite_and_not_nan():
    (curve, levina_bickel, quantiles), local = read(at_distances(np.ones((4000, ALL))))
    assert (np.concatenate([curve, quantiles, local]) == np.inf).all()
    assert levina_bickel == np.inf


def test_some_ties_leave_lower_quantiles_finite():
    distance_PC = poisson(3).distance_PC
    distance_PC[:800] = 1
    quantiles = np.asarray(read(at_distances(distance_PC))[0][2])
    assert np.isfinite(quantiles).tolist() == [True, True, True, True, False]
    assert quantiles[-1] == np.inf


@pytest.mark.parametrize("cloud", [*TOO_FEW, with_one(np.nan), with_one(np.inf)])
def test_fewer_than_three_distinct_points_and_what_is_not_finite_are_nan(cloud):
    curve, levina_bickel, quantiles = measured(cloud)
    assert np.isnan([*curve, *quantiles, levina_bickel, *local(cloud)]).all()


def test_small_clouds_have_what_can_be_said_of_them():
    """0, 1 and 3 on a line: 3 distinct points have rank 1 alone, 5 also rank 2."""
    three = filled([[0.0, 1.0], [1.0, 1.0], [3.0, 1.0]])
    curve, levina_bickel, _ = measured(three)
    np.testing.assert_allclose([curve[0], levina_bickel], 3 / np.log(9.0), rtol=1e-5)
    assert np.isnan([*curve[1:], *local(three)]).all()
    assert np.isfinite(local(filled(gaussian(4, 2)))).all()
    for five in (filled(gaussian(5, 5), FEWER), filled(gaussian(5, 5))):
        curve, levina_bickel, _ = measured(five)
        assert np.isfinite(curve).tolist() == [True, True] + 5 * [False]
        assert levina_bickel == pytest.approx(
            reference.levina_bickel(reference.distances(five), 4), rel=1e-5
        )


def test_asks_for_the_neighbors_it_needs():
    whole = find(gaussian(), ALL)
    some = whole._replace(distance_PC=whole.distance_PC[:, :20], index_PC=whole.index_PC[:, :20])
    assert np.isfinite(jax.jit(scale.gride_curve)(some)).tolist() == [True] * 4 + [False] * 3
    with pytest.raises(ValueError, match="32 neighbors are needed, 20 were searched"):
        scale.read_gride(some, 16)


decimation = jax.jit(scale.decimation)


def decimated(cloud):
    return np.asarray(decimation(cloud, find(cloud, FEW)))


@pytest.mark.parametrize("name", ZOO)
def test_decimation_agrees_with_the_float64_twin(name):
    cloud = ZOO[name].draw(np.random.default_rng(4), POINTS).astype(np.float32)
    expected = [reference.decimation(cloud, factor) for factor in scale.FACTORS]
    np.testing.assert_allclose(decimated(cloud), expected, rtol=1e-4)


@pytest.mark.slow
def test_decimation_ends_where_subsets_have_fewer_than_three_points():
    cloud = gaussian(*FEWER)
    curve = decimated(cloud)
    assert np.isfinite(curve).tolist() == [True, True, False]
    assert curve[0] == jax.jit(read_twonn)(find(cloud, FEW))
    one_subset_of_copies = cloud.copy()
    one_subset_of_copies[::4] = cloud[0]
    assert np.isfinite(decimated(one_subset_of_copies)).tolist() == [True, False, False]
