"""What neighbours are: the plain search beside a float64 twin, and the fast one beside both."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anisoscope.metrics.neighbours import nearest_neighbours, plain_neighbours
from tests import zoo
from tests.metrics import clouds
from tests.metrics.clouds import (
    CLOUDS,
    FEW,
    MANY,
    POINTS,
    assert_neighbours,
    find,
    gaussian,
    with_copies,
)


@pytest.mark.parametrize("name", CLOUDS)
def test_the_plain_search_agrees_with_the_float64_twin(name):
    assert_neighbours(clouds.find_plain(CLOUDS[name], MANY), CLOUDS[name], rtol=1e-5)


@pytest.mark.parametrize("count", [FEW, pytest.param(128, marks=pytest.mark.slow)])
@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**16),
    offset=st.sampled_from([0, 10, 1000]),
    copied=st.sampled_from([0, 0.2, 0.45]),
)
def test_the_fast_search_finds_what_the_plain_one_finds(count, seed, offset, copied):
    cloud = with_copies(gaussian(seed=seed), copied) + np.float32(offset)
    assert clouds.assert_same(find(cloud, count), cloud) > 0.5


@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize(
    "name", ["near duplicates", "few values", "one far away", "not finite", "huge"]
)
def test_the_fast_search_finds_what_the_plain_one_finds_in_awkward_clouds(name, count):
    cloud = gaussian(seed=3)
    if name == "near duplicates":
        cloud = clouds.crowded(gaussian(1 + POINTS // 40), 40, apart=1e-4)[:POINTS]
    if name == "few values":
        cloud = np.round(clouds.filled(gaussian(width=3)))
    if name == "one far away":
        cloud[9] *= 1e4
    if name == "not finite":
        cloud[9, 2] = np.nan
    if name == "huge":
        cloud[9, 2] = 1e20  # its own square is beyond float32, those of the others are not
    fast = find(cloud, count)
    clouds.assert_same(fast, cloud)
    if name == "huge":
        assert np.isposinf(fast.distance_PC[9]).all()
        assert np.isfinite(np.delete(fast.distance_PC, 9, axis=0)).all()


# around the sizes of lanes, chunks and columns at once; the quick ones have another size with
# either way of search
SIZES = (1, 5, FEW), (2, 5, MANY), (65, 1, 8)
SLOW_SIZES = [(33, 5, MANY), (512, 5, FEW), (513, 5, MANY), (1025, 5, FEW), (1100, 600, 64)]


@pytest.mark.parametrize(
    ("points", "width", "count"),
    [*SIZES, *(pytest.param(*of, marks=pytest.mark.slow) for of in SLOW_SIZES)],
)
def test_the_fast_search_finds_what_the_plain_one_finds_for_any_size(points, width, count):
    cloud = with_copies(gaussian(points, width), 0.1) if points > 40 else gaussian(points, width)
    neighbours = find(cloud, count)
    assert neighbours.distance_PC.shape == neighbours.index_PC.shape == (points, count)
    assert_neighbours(neighbours, cloud, rtol=1e-5)
    clouds.assert_same(neighbours, cloud)


@pytest.mark.slow
@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize("name", zoo.ZOO)
def test_agrees_with_the_float64_twin_in_512_dimensions_and_three_chunks(name, count):
    cloud = zoo.ZOO[name].draw(np.random.default_rng(1), 1031)
    assert_neighbours(find(jnp.asarray(cloud), count), cloud, rtol=1e-4)


@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize("name", [*clouds.EVERY, "more dimensions than points"])
def test_agrees_with_the_float64_twin(name, count):
    cloud = clouds.EVERY.get(name, clouds.WIDE)
    assert_neighbours(find(cloud, count), cloud, rtol=1e-4 if name in clouds.IN_ZOO else 1e-5)


def test_one_neighbour_is_too_few():
    for search in (nearest_neighbours, plain_neighbours):
        with pytest.raises(
            ValueError, match="1 neighbours are asked for; two or more have a ratio"
        ):
            search(gaussian(), 1)


@pytest.mark.parametrize("count", [FEW, MANY])
def test_knows_the_neighbours_on_a_line(count):
    """0, 1, 3, 7, 15, 31: the next smaller is the nearest, and the one before it the second, from
    the third on.
    """
    neighbours = find(clouds.filled([[0.0], [1.0], [3.0], [7.0], [15.0], [31.0]]), count)
    assert neighbours.index_PC[:6, :2].tolist() == [[1, 2], [0, 2], [1, 0], [2, 1], [3, 2], [4, 3]]
    assert neighbours.distance_PC[:6, :2].tolist() == [
        [1, 3],
        [1, 2],
        [2, 3],
        [4, 6],
        [8, 12],
        [16, 24],
    ]
    assert (neighbours.distance_PC[:, 5:] == jnp.inf).all()


def test_copies_have_the_neighbours_of_their_first():
    cloud = with_copies(gaussian())
    neighbours = find(cloud, FEW)
    _, first_P, original_P, copies_P = np.unique(
        cloud, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    np.testing.assert_array_equal(neighbours.copies_P, copies_P[original_P])
    np.testing.assert_array_equal(np.flatnonzero(neighbours.first_P), np.sort(first_P))
    index_PC = np.asarray(neighbours.index_PC)
    np.testing.assert_array_equal(index_PC, index_PC[first_P[original_P]])
    np.testing.assert_array_equal(
        neighbours.nearest_copies_P, np.asarray(neighbours.copies_P)[index_PC[:, 0]]
    )
    assert neighbours.duplicates() == len(cloud) - len(first_P)


@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
def test_a_cloud_that_is_not_finite_has_no_neighbours(bad, count):
    assert np.isposinf(find(clouds.with_one(bad), count).distance_PC).all()


def test_zero_and_minus_zero_are_one_point():
    neighbours = find(clouds.filled([[0.0, 1.0], [-0.0, 1.0], [2.0, 0.0], [5.0, 0.0]]), FEW)
    assert neighbours.copies_P[:4].tolist() == [2, 2, 1, 1 + POINTS - 4]


@pytest.mark.parametrize("count", [FEW, MANY])
@settings(max_examples=5, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**16), scale=st.floats(1e-6, 1e6), shift=st.floats(-10, 10))
def test_distances_do_not_see_rotation_order_or_translation_and_follow_the_scale(
    count, seed, scale, shift
):
    cloud = gaussian(seed=seed)
    order_P = np.random.default_rng(seed).permutation(POINTS)
    moved = ((cloud.astype(float) + shift) @ clouds.rotation(clouds.WIDTH, seed) * scale)[order_P]
    after = np.asarray(find(moved.astype(np.float32), count).distance_PC) / np.float32(scale)
    np.testing.assert_allclose(
        after, np.asarray(find(cloud, count).distance_PC)[order_P], rtol=1e-4
    )
