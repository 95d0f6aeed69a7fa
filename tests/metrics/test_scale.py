import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from benchmarks.zoo import ZOO
from metrics import scale
from metrics.dimension import twonn, twonn_mle
from metrics.neighbours import Neighbours, nearest_neighbours
from tests import reference_scale as reference
from tests.metrics.clouds import gaussian, rotation, with_copies

SEARCHED = 2 * scale.SCALES[-1]


@jax.jit
def measured(cloud_PD):
    """All that does not depend on the order of the points."""
    neighbours = nearest_neighbours(cloud_PD, SEARCHED)
    curve_S = scale.gride_curve(neighbours)
    return curve_S, scale.levina_bickel(neighbours), scale.local_quantiles(neighbours), scale.plateau(curve_S)


local = jax.jit(lambda cloud_PD: scale.local_dimensions(nearest_neighbours(cloud_PD, 20)))
decimated = jax.jit(lambda cloud_PD: scale.decimation(cloud_PD, nearest_neighbours(cloud_PD)))
plateau = jax.jit(scale.plateau, static_argnums=1)


def at_distances(distance_PC):
    """Distinct points with neighbours at these distances."""
    points = len(distance_PC)
    one_P, index_PC = jnp.ones(points, jnp.int32), jnp.zeros(distance_PC.shape, jnp.int32)
    return Neighbours(
        jnp.asarray(distance_PC, jnp.float32), index_PC, one_P > 0, one_P, jnp.zeros(points), jnp.array(1.0)
    )


def poisson(dimension, points=4000, seed=0):
    """Independent points, each among an even crowd: the powers r^d are sums of exponential steps."""
    steps_PC = np.random.default_rng(seed).exponential(size=(points, SEARCHED))
    return at_distances(np.cumsum(steps_PC, axis=1) ** (1 / dimension))


@pytest.mark.parametrize("name", ZOO)
def test_agrees_with_the_float64_twin(name):
    cloud = ZOO[name].draw(np.random.default_rng(3), 331)
    sorted_distances = reference.distances(cloud)
    curve, levina_bickel, quantiles, _ = measured(jnp.asarray(cloud))
    np.testing.assert_allclose(curve, [reference.gride(sorted_distances, n1) for n1 in scale.SCALES], rtol=1e-4)
    assert levina_bickel == pytest.approx(reference.levina_bickel(sorted_distances), rel=1e-4)
    dimensions = reference.local_dimensions(sorted_distances)
    first = nearest_neighbours(jnp.asarray(cloud)).first_P
    np.testing.assert_allclose(local(jnp.asarray(cloud))[first], dimensions, rtol=1e-4)
    upper = 1 - np.array(scale.QUANTILES)
    np.testing.assert_allclose(quantiles, 1 / np.quantile(1 / dimensions, upper), rtol=1e-4)


@pytest.mark.parametrize("name", ZOO)
def test_decimation_agrees_with_the_float64_twin(name):
    cloud = ZOO[name].draw(np.random.default_rng(4), 203)
    expected = [reference.decimation(cloud, factor) for factor in scale.FACTORS]
    np.testing.assert_allclose(decimated(jnp.asarray(cloud, jnp.float32)), expected, rtol=1e-4)


@pytest.mark.parametrize("tolerance", [1.1, 1.3])
def test_plateau_agrees_with_the_twin(tolerance):
    random = np.random.default_rng(5)
    curves = 10 * np.exp(random.normal(0, 0.06, (300, 7)))
    curves[random.uniform(size=curves.shape) < 0.05] = np.nan
    curves[random.uniform(size=curves.shape) < 0.02] = np.inf
    found = jnp.stack([jnp.stack(plateau(jnp.asarray(curve, jnp.float32), tolerance)) for curve in curves])
    expected = [reference.plateau(curve, tolerance) for curve in curves]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert 0 < np.isnan(expected).any(axis=1).sum() < len(expected)


@pytest.mark.parametrize("dimension", [1.0, 3.0, 40.0])
def test_finds_the_dimension_of_its_own_model(dimension):
    """Within 4 standard errors: those of n n1 ratios for the curve, of n (k - 1) and n (k - 3) for 20 neighbours."""
    neighbours = poisson(dimension)
    points = len(neighbours.first_P)
    error_S = dimension / np.sqrt(points * np.array(scale.SCALES))
    np.testing.assert_array_less(np.abs(scale.gride_curve(neighbours) - dimension), 4 * error_S)
    assert scale.levina_bickel(neighbours) == pytest.approx(dimension, abs=4 * dimension / np.sqrt(19 * points))
    mean = scale.local_dimensions(neighbours).mean()
    assert mean == pytest.approx(dimension, abs=4 * dimension / np.sqrt(17 * points))
    assert scale.plateau(scale.gride_curve(neighbours)).value == pytest.approx(dimension, rel=0.03)


@pytest.mark.parametrize("width", [2, 5])
def test_a_gaussian_has_a_plateau_at_its_dimension(width):
    """2.02 ± .02 and 5.00 ± .03 over eight draws."""
    curve, levina_bickel, _, verdict = measured(jnp.asarray(gaussian(4096, width)))
    assert verdict.value == pytest.approx(width, rel=0.025)
    assert verdict.last - verdict.first >= 5
    assert levina_bickel == pytest.approx(width, rel=0.025)
    np.testing.assert_allclose(curve, width, rtol=0.07)


def test_a_segment_has_dimension_one_at_every_scale():
    cloud = jnp.asarray(np.random.default_rng(0).uniform(size=(2048, 1)) * np.ones(3), jnp.float32)
    curve, levina_bickel, quantiles, verdict = measured(cloud)
    np.testing.assert_allclose([*curve, levina_bickel], 1, rtol=0.07)
    assert verdict.value == pytest.approx(1, rel=0.02)
    assert quantiles[2] == pytest.approx(1, rel=0.05)


def test_a_noisy_sheet_is_thick_near_and_flat_far():
    random = np.random.default_rng(0)
    cloud = np.pad(random.uniform(size=(4096, 2)), ((0, 0), (0, 18))) + random.normal(0, 0.0015, (4096, 20))
    curve, _, _, verdict = measured(jnp.asarray(cloud, jnp.float32))
    assert curve[0] > 4
    assert (np.diff(curve) < 0).all()
    assert curve[-1] == pytest.approx(2, rel=0.07)
    assert (verdict.first, verdict.last) == (4, 6)
    assert verdict.value == pytest.approx(2, rel=0.03)


def test_local_quantiles_tell_a_line_from_a_ball():
    random = np.random.default_rng(0)
    line = np.pad(random.uniform(-1, 1, (1000, 1)) + 10, ((0, 0), (0, 2)))
    cloud = np.concatenate([line, random.normal(size=(1000, 3))])
    _, levina_bickel, quantiles, _ = measured(jnp.asarray(cloud, jnp.float32))
    np.testing.assert_allclose(quantiles[jnp.array([1, 3])], [1, 3], rtol=0.15)
    assert levina_bickel == pytest.approx(2 / (1 + 1 / 3), rel=0.05)  # inverses are averaged


def test_rank_one_is_the_likelihood_of_twonn():
    neighbours = nearest_neighbours(jnp.asarray(gaussian(50, 4)))
    found = [scale.gride(neighbours, 1), scale.levina_bickel(neighbours, 2)]
    np.testing.assert_allclose(found, twonn_mle(neighbours) * 50 / 49, rtol=1e-6)


@pytest.mark.parametrize("first", [2, 16, 64])
@pytest.mark.parametrize("spread", [0.01, 1.0, 4.0])
def test_uneven_ratios_and_ties_reach_the_root(first, spread):
    """Logarithms of ratios over orders of magnitude, a third of them ties, where the score has a limit."""
    x = np.exp(np.random.default_rng(first).normal(-9, spread, 900))
    x[:300] = 0  # and some more by rounding
    distance_PC = np.ones((900, 2 * first))
    distance_PC[:, -1] = np.exp(x)
    distance_PC = distance_PC.astype(np.float32)
    x = np.log(distance_PC[:, -1].astype(float))

    def score(d):
        positive = d * x[x > 0]
        ties = (x == 0).sum()
        return 900 + (first - 1) * (ties + (positive / np.expm1(positive)).sum()) - first * d * x.sum()

    expected = brentq(score, 0.5 / x.mean(), 1.01 / x.mean(), rtol=1e-12)
    assert scale.gride(at_distances(distance_PC), first) == pytest.approx(expected, rel=1e-5)


def test_ties_alone_are_infinite_and_not_nan():
    neighbours = at_distances(np.ones((40, SEARCHED)))
    values = [scale.gride_curve(neighbours), scale.local_dimensions(neighbours), scale.local_quantiles(neighbours)]
    assert (jnp.concatenate(values) == jnp.inf).all()
    assert scale.levina_bickel(neighbours) == jnp.inf
    assert jnp.isnan(jnp.stack(scale.plateau(scale.gride_curve(neighbours)))).all()


def test_some_ties_leave_lower_quantiles_finite():
    distance_PC = np.array(poisson(3, 100).distance_PC)
    distance_PC[:20] = 1
    quantiles = scale.local_quantiles(at_distances(distance_PC))
    assert jnp.isfinite(quantiles).tolist() == [True, True, True, True, False]
    assert quantiles[-1] == jnp.inf


def test_copies_are_counted_once():
    cloud = gaussian(300, 6)
    copied = np.random.default_rng(0).permutation(np.concatenate([cloud, cloud[:77], cloud[:5]]))
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-4),
        measured(jnp.asarray(copied)),
        measured(jnp.asarray(cloud)),
    )
    values = local(jnp.asarray(np.concatenate([cloud, cloud[:77]])))
    np.testing.assert_array_equal(values[300:], values[:77])
    np.testing.assert_allclose(values[:300], local(jnp.asarray(cloud)), rtol=1e-5)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**16), factor=st.floats(1e-6, 1e6), shift=st.floats(-10, 10))
def test_does_not_see_rotation_scale_order_or_translation(seed, factor, shift):
    cloud = gaussian(200, 6, seed)
    moved = (cloud.astype(float) + shift) @ rotation(6, seed) * factor
    shuffled = np.random.default_rng(seed).permutation(moved)
    before, after = measured(jnp.asarray(cloud)), measured(jnp.asarray(shuffled, jnp.float32))
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-4), before, after)


def test_decimation_sees_neither_rotation_nor_scale_nor_translation():
    cloud = ZOO["power law in 64"].draw(np.random.default_rng(6), 203)
    moved = (cloud.astype(float) + 3) @ rotation(64) * 1e-4
    np.testing.assert_allclose(decimated(jnp.asarray(moved, jnp.float32)), decimated(jnp.asarray(cloud)), rtol=1e-4)


def test_decimation_stays_at_the_dimension_and_leaves_noise_behind():
    """A sheet of noise at half the distance of neighbours, in 64 dimensions; without it, 2 at every factor."""
    random = np.random.default_rng(0)
    sheet = np.pad(random.uniform(size=(203 * 10, 2)), ((0, 0), (0, 62)))
    noisy = sheet + random.normal(0, 0.001, sheet.shape)
    np.testing.assert_allclose(decimated(jnp.asarray(sheet, jnp.float32)), 2, rtol=0.1)
    curve = decimated(jnp.asarray(noisy, jnp.float32))
    assert curve[0] > 4
    assert curve[-1] == pytest.approx(2, rel=0.2)


@pytest.mark.parametrize(("points", "copies"), [(1, 1), (2, 1), (1, 8), (2, 4)])
def test_fewer_than_three_distinct_points_are_nan(points, copies):
    cloud = jnp.asarray(np.repeat(gaussian(points, 3), copies, axis=0))
    curve, levina_bickel, quantiles, verdict = measured(cloud)
    assert jnp.isnan(jnp.concatenate([curve, quantiles, jnp.stack(verdict), local(cloud), decimated(cloud)])).all()
    assert jnp.isnan(levina_bickel)


@pytest.mark.parametrize("copies", [1, 50])
def test_small_clouds_have_what_can_be_said_of_them(copies):
    """0, 1 and 3 on a line: ratios 3, 2 and 3/2. With 3 distinct points only rank 1, with 5 also rank 2."""
    cloud = jnp.asarray(np.repeat([[0.0, 1.0], [1.0, 1.0], [3.0, 1.0]], copies, axis=0), jnp.float32)
    curve, levina_bickel, _, verdict = measured(cloud)
    np.testing.assert_allclose([curve[0], levina_bickel], 3 / np.log(9.0), rtol=1e-5)
    assert jnp.isnan(jnp.concatenate([curve[1:], jnp.stack(verdict), local(cloud)])).all()

    four, five = jnp.asarray(gaussian(4, 2)), jnp.asarray(np.repeat(gaussian(5, 2), copies, axis=0))
    assert jnp.isfinite(local(four)).all()
    assert jnp.isfinite(measured(five)[0]).tolist() == [True, True] + 5 * [False]
    expected = reference.levina_bickel(reference.distances(five), 4)
    assert measured(five)[1] == pytest.approx(expected, rel=1e-5)


def test_decimation_ends_where_subsets_have_fewer_than_three_points():
    cloud = jnp.asarray(gaussian(31, 2))
    curve = decimated(cloud)
    assert jnp.isfinite(curve).tolist() == [True, True, False]
    assert curve[0] == twonn(nearest_neighbours(cloud))
    one_subset_of_copies = cloud.at[::4].set(cloud[0])
    assert jnp.isfinite(decimated(one_subset_of_copies)).tolist() == [True, False, False]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_cloud_that_is_not_finite_is_nan(bad):
    cloud = gaussian(200, 3)
    cloud[7, 1] = bad
    curve, levina_bickel, quantiles, verdict = measured(jnp.asarray(cloud))
    assert jnp.isnan(jnp.concatenate([curve, quantiles, jnp.stack(verdict), levina_bickel[None]])).all()


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        ([5, 5, 5, 5, 5, 5, 5], (5, 0, 6)),
        ([9, 7, 5, 5, 5, 4, 3], (5, 2, 4)),
        ([9, 8, 7, 6, 5, 4, 3], (np.nan, np.nan, np.nan)),
        ([4, 4, 4, 2, 2.1, 2, 2.1], (4.2**0.5, 3, 6)),  # the longest
        ([4, 4.1, 4, 9, 2, 2, 2], (2, 4, 6)),  # of equally long ones the flattest
        ([4, 4, 4, 9, 2, 2, 2], (4, 0, 2)),  # of equally flat ones the first
        ([5, 5, np.nan, 5, 5, np.nan, 5], (np.nan, np.nan, np.nan)),
        ([np.inf, 3, 3, 3, np.nan, np.nan, np.nan], (3, 1, 3)),
    ],
)
def test_plateau_is_the_longest_flat_run(curve, expected):
    curve_S = jnp.array(curve, jnp.float32)
    np.testing.assert_allclose(jnp.stack(plateau(curve_S, 1.1)), expected, rtol=1e-6)
    many = jax.vmap(lambda curve_S: jnp.stack(plateau(curve_S, 1.1)))(jnp.tile(curve_S, (100, 1)))
    np.testing.assert_allclose(many, np.tile(expected, (100, 1)), rtol=1e-6)  # of many, a compiled max passes over NaN


def test_asks_for_the_neighbours_it_needs():
    neighbours = nearest_neighbours(jnp.asarray(gaussian(40, 3)), 8)
    assert jnp.isfinite(scale.gride_curve(neighbours)).tolist() == [True] * 3 + [False] * 4
    with pytest.raises(ValueError, match="16 neighbours are needed, 8 were searched"):
        scale.gride(neighbours, 8)
    with pytest.raises(ValueError, match="20 neighbours are needed, 8 were searched"):
        scale.levina_bickel(neighbours)


def test_jit_vmap_and_map_change_nothing():
    clouds = jnp.stack([jnp.asarray(with_copies(gaussian(65, 9, seed))) for seed in range(3)])

    def everything(cloud_PD):
        few_PD = cloud_PD[:20]  # decimated to 10 and 5
        return measured(cloud_PD), local(cloud_PD), scale.decimation(few_PD, nearest_neighbours(few_PD))

    one_by_one = [jax.jit(everything)(cloud) for cloud in clouds]
    for at_once in (jax.jit(jax.vmap(everything))(clouds), jax.jit(lambda c: jax.lax.map(everything, c))(clouds)):
        jax.tree.map(lambda batch, *ones: np.testing.assert_allclose(batch, ones, rtol=1e-5), at_once, *one_by_one)
    eager = measured.__wrapped__(clouds[0])
    jax.tree.map(lambda one, jitted: np.testing.assert_allclose(one, jitted, rtol=1e-5), eager, one_by_one[0][0])
