import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.zoo import ZOO
from metrics import candidates
from metrics import neighbours as search
from metrics.neighbours import nearest_neighbours
from tests import reference
from tests.metrics.clouds import CLOUDS, crowded, gaussian, rotation, with_copies

FEW, MANY = 2, 12  # neighbours, found by pairs of blocks and by whole rows

find = jax.jit(nearest_neighbours, static_argnums=1)


def assert_found(found, cloud, rtol):
    """The distances are the float64 twin's, and the indices name distinct points at these distances."""
    distance_PC, index_PC = np.asarray(found.distance_PC), np.asarray(found.index_PC)
    count = distance_PC.shape[1]
    np.testing.assert_allclose(distance_PC, reference.distinct_distances(cloud, count), rtol=rtol)
    x, there = reference.float64(cloud), np.isfinite(distance_PC)
    named = np.linalg.norm(x[index_PC] - x[:, None], axis=2)
    np.testing.assert_allclose(named[there], distance_PC[there], rtol=1e-5)
    assert np.asarray(found.first_P)[index_PC[there]].all()
    assert (np.diff(np.sort(np.where(there, index_PC, -1 - np.arange(count)), axis=1)) > 0).all()


@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize("name", ZOO)
def test_agrees_with_the_float64_twin_on_the_zoo(name, count):
    cloud = ZOO[name].draw(np.random.default_rng(1), 1031)
    assert_found(find(jnp.asarray(cloud), count), cloud, rtol=1e-4)


@pytest.mark.parametrize("count", [FEW, 4, MANY])
@pytest.mark.parametrize("name", CLOUDS)
def test_agrees_with_the_float64_twin(name, count):
    cloud = CLOUDS[name]
    assert_found(find(jnp.asarray(cloud), count), cloud, rtol=1e-5)


@pytest.mark.parametrize("count", [FEW, 4, MANY])
@pytest.mark.parametrize("crowd", [4, 5, 40])
def test_tells_near_copies_apart(crowd, count):
    """Crowds at 1e-4 of the spread, where the Gram matrix is all rounding and holds too few candidates of 40."""
    cloud = crowded(gaussian(800 // crowd, 23), crowd, apart=1e-4)
    assert_found(find(jnp.asarray(cloud), count), cloud, rtol=1e-4)


def test_neighbours_do_not_depend_on_how_many_are_asked_for():
    """Two parallel lines of 1,000 steps of 1e-3, 10 apart: of one line the Gram matrix sees nothing but rounding."""
    step_P = np.arange(1000) + np.random.default_rng(8).uniform(0, 0.5, 1000)
    line = 1e-3 * step_P[:, None] * rotation(11)[0]
    cloud = np.concatenate([line + 5 * rotation(11)[1], line - 5 * rotation(11)[1]]).astype(np.float32)
    few, many = (find(jnp.asarray(cloud), count) for count in (FEW, MANY))
    np.testing.assert_allclose(few.distance_PC, many.distance_PC[:, :FEW], rtol=1e-6)
    assert_found(few, cloud, rtol=3e-3)  # the last of the coordinates' digits are a thousandth of a step


def test_a_point_is_compared_with_all_only_where_rounding_could_hide_a_neighbour(monkeypatch):
    compared = []
    compare = search._compared_with_all

    def listed(cloud_PD, ranked_P, unsure_P, *found):
        compared.append(unsure_P)
        return compare(cloud_PD, ranked_P, unsure_P, *found)

    monkeypatch.setattr(search, "_compared_with_all", listed)
    cloud = gaussian(1031, 12)
    cloud[:40] = crowded(gaussian(1, 12), 40, 1e-5)
    nearest_neighbours(jnp.asarray(cloud))
    (unsure_P,) = compared
    assert unsure_P[:40].all()
    assert unsure_P[40:].sum() <= 10


@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize("points", [1, 2, 3, 31, 33, 511, 512, 513, 1025])
def test_takes_any_number_of_points(points, count):
    cloud = gaussian(points, 5)
    found = find(jnp.asarray(cloud), count)
    assert found.distance_PC.shape == found.index_PC.shape == (points, count)
    assert_found(found, cloud, rtol=1e-5)


@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize("points", [97, 640])  # in blocks of one chunk, and of two
def test_neighbours_in_other_blocks_are_found(monkeypatch, points, count):
    monkeypatch.setattr(candidates, "CHUNK", 32)
    monkeypatch.setattr(candidates, "LANES", 8)
    monkeypatch.setattr(candidates, "ROWS", 16)
    monkeypatch.setattr(search, "AT_ONCE", 16)
    monkeypatch.setattr(search, "GATHERED", 1000)
    cloud = with_copies(gaussian(points, 5))
    assert_found(jax.jit(lambda cloud_PD: nearest_neighbours(cloud_PD, count))(cloud), cloud, rtol=1e-5)


@pytest.mark.parametrize("count", [FEW, MANY])
def test_knows_the_neighbours_on_a_line(count):
    """0, 1, 3, 7, 15, 31: the next smaller is the nearest, and the one before it the second, from the third on."""
    found = find(jnp.array([[0.0], [1.0], [3.0], [7.0], [15.0], [31.0]]), count)
    assert found.index_PC[:, :2].tolist() == [[1, 2], [0, 2], [1, 0], [2, 1], [3, 2], [4, 3]]
    assert found.distance_PC[:, :2].tolist() == [[1, 3], [1, 2], [2, 3], [4, 6], [8, 12], [16, 24]]
    assert (found.distance_PC[:, 5:] == jnp.inf).all()


@pytest.mark.parametrize("count", [4, MANY])
def test_equally_far_points_in_many_chunks_are_different_neighbours(count):
    """On a torus of 40 x 40 points four are equally near to each, and the next four too."""
    angle = 2 * np.pi * np.arange(40) / 40
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)
    cloud = np.concatenate([np.repeat(circle, 40, axis=0), np.tile(circle, (40, 1))], axis=1)
    found = find(jnp.asarray(cloud), count)
    assert_found(found, cloud, rtol=1e-5)
    np.testing.assert_allclose(found.distance_PC[:, :4], 2 * np.sin(np.pi / 40), rtol=1e-5)


def test_equally_far_points_at_one_place_of_two_chunks_are_two_neighbours():
    """Their keys are equal, since a key holds the place in a chunk and not the chunk."""
    angle_P = 2 * np.pi * np.arange(1024) / 1024
    cloud = 5 * np.stack([np.cos(angle_P), np.sin(angle_P)], axis=1).astype(np.float32)
    cloud[[0, 7, 7 + candidates.CHUNK]] = [[0, 0], [1.1, 0], [-1.1, 0]]
    found = find(jnp.asarray(cloud), FEW)
    assert sorted(found.index_PC[0].tolist()) == [7, 7 + candidates.CHUNK]
    np.testing.assert_allclose(found.distance_PC[0], 1.1, rtol=1e-5)


def test_copies_have_the_neighbours_of_their_first():
    cloud = with_copies(gaussian(101, 5))
    found = find(jnp.asarray(cloud), FEW)
    _, first_P, original_P, copies_P = np.unique(
        cloud, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    np.testing.assert_array_equal(found.copies_P, copies_P[original_P])
    np.testing.assert_array_equal(np.flatnonzero(found.first_P), np.sort(first_P))
    np.testing.assert_array_equal(found.index_PC, found.index_PC[first_P[original_P]])
    np.testing.assert_array_equal(found.nearest_copies_P, found.copies_P[found.index_PC[:, 0]])
    assert found.duplicates() == len(cloud) - len(first_P)


@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
def test_a_cloud_that_is_not_finite_has_no_neighbours(bad, count):
    cloud = gaussian(40, 3)
    cloud[7, 1] = bad
    assert (find(jnp.asarray(cloud), count).distance_PC == jnp.inf).all()


def test_zero_and_minus_zero_are_one_point():
    cloud = jnp.asarray([[0.0, 1.0], [-0.0, 1.0], [2.0, 0.0], [5.0, 0.0]])
    assert find(cloud, FEW).duplicates() == 1


def test_close_points_are_not_copies():
    cloud = gaussian(100, 4)
    cloud[1] = np.nextafter(cloud[0], np.float32(np.inf))
    found = find(jnp.asarray(cloud), FEW)
    assert found.duplicates() == 0
    assert found.r1_P[0] == found.r1_P[1] > 0
    assert (~found.usable()).tolist() == [True] * 2 + [False] * 98  # nothing is to be read from their distance
    assert found.dropped() == 2


@pytest.mark.parametrize("count", [FEW, MANY])
@settings(max_examples=10, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**16), scale=st.floats(1e-6, 1e6), shift=st.floats(-10, 10))
def test_distances_do_not_see_rotation_order_or_translation_and_follow_the_scale(count, seed, scale, shift):
    cloud = gaussian(150, 6, seed)
    order_P = np.random.default_rng(seed).permutation(150)
    moved = ((cloud.astype(float) + shift) @ rotation(6, seed) * scale)[order_P]
    after = find(jnp.asarray(moved, jnp.float32), count).distance_PC / np.float32(scale)
    np.testing.assert_allclose(after, find(jnp.asarray(cloud), count).distance_PC[order_P], rtol=1e-4)


@pytest.mark.parametrize("count", [FEW, MANY])
def test_jit_map_and_vmap_change_nothing(count):
    plain = with_copies(gaussian(65, 9))
    crowds = crowded(gaussian(2, 9), len(plain), apart=1e-4)[: len(plain)]
    clouds = jnp.stack([plain, crowds])  # all of the crowds, and nearly nothing of the other, is compared with all
    one_by_one = [nearest_neighbours(cloud, count) for cloud in clouds]
    for many in (jax.vmap(lambda cloud: find(cloud, count)), lambda xs: jax.lax.map(lambda x: find(x, count), xs)):
        jax.tree.map(lambda all, *ones: np.testing.assert_allclose(all, ones, rtol=1e-6), many(clouds), *one_by_one)


@pytest.mark.parametrize("count", [FEW, 128])
def test_memory_of_a_large_cloud_is_small(count):
    """64 MiB beside a cloud of 32 MiB, one copy of which is centred; its distances would take a GiB."""
    cloud = jax.ShapeDtypeStruct((16384, 512), jnp.float32)
    compiled = find.lower(cloud, count).compile()
    assert compiled.memory_analysis().temp_size_in_bytes <= 64 * 2**20
