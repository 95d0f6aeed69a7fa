import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anisoscope.metrics import ascending, candidates
from anisoscope.metrics import neighbours as search
from anisoscope.metrics.dimension import twonn
from anisoscope.metrics.neighbours import (
    SPARE,
    nearest_neighbours,
    neighbours_among,
    neighbours_in_sections,
    neighbours_in_subsets,
)
from tests import reference, zoo
from tests.metrics.clouds import (
    CLOUDS,
    FEW,
    IN_ZOO,
    MANY,
    POINTS,
    WIDE,
    WIDTH,
    crowded,
    curve,
    filled,
    find,
    gaussian,
    rotation,
    with_copies,
)


@jax.jit
def among(cloud, left):
    return neighbours_among(cloud, nearest_neighbours(cloud, SPARE), left)


in_subsets = jax.jit(neighbours_in_subsets, static_argnums=2)


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
@pytest.mark.parametrize("name", IN_ZOO)
def test_agrees_with_the_float64_twin_on_the_zoo(name, count):
    assert_found(find(IN_ZOO[name], count), IN_ZOO[name], rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize("name", zoo.ZOO)
def test_agrees_with_the_float64_twin_in_512_dimensions_and_three_chunks(name, count):
    cloud = zoo.ZOO[name].draw(np.random.default_rng(1), 1031)
    assert_found(find(jnp.asarray(cloud), count), cloud, rtol=1e-4)


@pytest.mark.parametrize("count", [FEW, 4, MANY])
@pytest.mark.parametrize("name", CLOUDS)
def test_agrees_with_the_float64_twin(name, count):
    assert_found(find(CLOUDS[name], count), CLOUDS[name], rtol=1e-5)


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_more_dimensions_than_points(count):
    assert_found(find(WIDE, count), WIDE, rtol=1e-5)


def test_the_neighbours_of_a_cloud_in_bfloat16_are_those_of_its_values():
    cloud = jnp.asarray(with_copies(gaussian(33, 5)), jnp.bfloat16)
    found = find(cloud, MANY)
    assert found.distance_PC.dtype == jnp.float32
    assert_found(found, cloud, rtol=1e-5)


@pytest.mark.parametrize("count", [FEW, 4, MANY])
@pytest.mark.parametrize("crowd", [4, 5, 40])
def test_tells_near_copies_apart(crowd, count):
    """Crowds at 1e-4 of the spread, where the Gram matrix is all rounding and holds too few candidates of 40."""
    cloud = crowded(gaussian(1 + POINTS // crowd), crowd, apart=1e-4)[:POINTS]
    assert_found(find(cloud, count), cloud, rtol=1e-4)


@pytest.mark.parametrize("count", [FEW, MANY])
def test_a_cloud_and_its_sections_have_in_one_pass_the_neighbours_that_each_has_alone(count):
    """Copies in several sections are one point of the cloud, and one of each section that they are in."""
    cloud = with_copies(gaussian())[: POINTS // 4 * 4]
    whole, parts = jax.jit(lambda cloud_PD: neighbours_in_sections(cloud_PD, count, 4))(cloud)
    assert_found(whole, cloud, rtol=1e-5)
    for number, section in enumerate(np.split(cloud, 4)):
        part = jax.tree.map(lambda leaf: leaf[number], parts)  # noqa: B023
        assert_found(part, section, rtol=1e-5)
        assert part.duplicates() == len(section) - len(np.unique(section, axis=0))
        spread = np.linalg.norm(section - section.mean(axis=0), axis=1).mean()
        np.testing.assert_allclose(part.mean_norm, spread, rtol=1e-5)


@pytest.mark.parametrize(
    ("points", "sections"),
    [(598, 13), *(pytest.param(*of, marks=pytest.mark.slow) for of in ((600, 3), (1300, 2), (1290, 30)))],
)
def test_sections_of_any_size_of_a_cloud_of_few_different_points(points, sections, monkeypatch):
    """As the embeddings of characters are. Their copies crowd nobody out, so that none is compared with all."""
    monkeypatch.setattr(
        search,
        "_compared_with_all",
        lambda cloud_PD, among_P, unsure_P, distance_PC, index_PC: (
            jnp.where(unsure_P[:, None], jnp.nan, distance_PC),
            index_PC,
        ),
    )
    cloud = gaussian(40, 5)[np.random.default_rng(0).integers(40, size=points)]
    whole, parts = jax.jit(neighbours_in_sections, static_argnums=(1, 2))(cloud, FEW, sections)
    assert_found(whole, cloud, rtol=1e-5)
    for number, section in enumerate(np.split(cloud, sections)):
        assert_found(jax.tree.map(lambda leaf: leaf[number], parts), section, rtol=1e-5)  # noqa: B023


def test_neighbours_do_not_depend_on_how_many_are_asked_for():
    """Two parallel lines of 300 steps of 1e-3, 10 apart: of one line the Gram matrix sees nothing but rounding."""
    step_P = np.arange(300) + np.random.default_rng(8).uniform(0, 0.5, 300)
    line, across = 1e-3 * step_P[:, None] * rotation(WIDTH)[0], rotation(WIDTH)[1]
    cloud = filled(np.concatenate([line + 5 * across, line - 5 * across]))
    few, many = (find(cloud, count) for count in (FEW, MANY))
    np.testing.assert_allclose(few.distance_PC, many.distance_PC[:, :FEW], rtol=1e-6)
    assert_found(few, cloud, rtol=3e-3)  # the last of the coordinates' digits are a thousandth of a step


@pytest.mark.parametrize("name", ["gaussian", "copies", "near copies", "curve"])
def test_neighbours_among_those_left_are_as_if_the_others_had_never_been_there(name):
    """Also where nearly all nearest ones are gone, of which nothing is said in the few that were searched."""
    clouds = {"gaussian": gaussian(), "copies": with_copies(gaussian()), "curve": curve()}
    cloud = (clouds | {"near copies": crowded(gaussian(1 + POINTS // 5), 5, apart=1e-4)[:POINTS]})[name]
    for share in (0.01, 0.9):
        left = np.random.default_rng(0).random(POINTS) >= share
        found = among(cloud, left)
        inside = np.flatnonzero(left)
        distances = np.asarray(found.distance_PC)[inside]
        np.testing.assert_allclose(distances, reference.distinct_distances(cloud[inside], 2), rtol=1e-4)
        index, first = np.asarray(found.index_PC), np.asarray(found.first_P)
        assert first[index[inside]].all()
        assert first.sum() == len(np.unique(cloud[inside], axis=0))
        np.testing.assert_allclose(twonn(found), reference.twonn(cloud[inside]), rtol=1e-3)


@pytest.mark.parametrize("factor", [3, 16])
@pytest.mark.parametrize("name", ["gaussian", "copies", "near copies"])
def test_neighbours_in_subsets_are_those_of_each_subset_alone(name, factor):
    """Also where few or none of those searched are of the subset, as here of 16."""
    clouds = {"gaussian": gaussian(), "copies": with_copies(gaussian())}
    cloud = (clouds | {"near copies": crowded(gaussian(1 + POINTS // 5), 5, apart=1e-4)[:POINTS]})[name]
    found = in_subsets(cloud, find(cloud, MANY), factor)
    kept = POINTS // factor * factor
    for number in range(factor):
        part = cloud[number:kept:factor]
        distances, index, first = (np.asarray(x)[number] for x in (found.distance_PC, found.index_PC, found.first_P))
        np.testing.assert_allclose(distances, reference.distinct_distances(part, 2), rtol=1e-4)
        there = np.isfinite(distances)
        assert (index[there] % factor == number).all()
        assert first[index[there] // factor].all()
        named = np.linalg.norm(reference.float64(cloud)[np.minimum(index, POINTS - 1)] - part[:, None], axis=2)
        np.testing.assert_allclose(named[there], distances[there], rtol=1e-4)
        assert first.sum() == len(np.unique(part, axis=0))


def test_among_nobody_there_are_no_neighbours_and_two_are_too_few_to_tell():
    assert not among(gaussian(), np.zeros(POINTS, bool)).usable().any()
    with pytest.raises(ValueError, match="1 neighbours are asked for; two or more have a ratio"):
        nearest_neighbours(gaussian(), 1)
    with pytest.raises(ValueError, match="3 neighbours are needed, 2 were searched"):
        neighbours_among(gaussian(), find(gaussian(), 2), np.ones(POINTS, bool))


def test_a_point_is_compared_with_all_only_where_rounding_could_hide_a_neighbour(monkeypatch):
    compared = []
    monkeypatch.setattr(search, "_compared_with_all", lambda *of: compared.append(of[2]) or of[3:])
    cloud = gaussian()
    cloud[:40] = crowded(gaussian(1), 40, 1e-5)
    unsure_P = jax.jit(lambda cloud_PD: (nearest_neighbours(cloud_PD), compared.pop())[1])(cloud)
    assert unsure_P[:40].all()
    assert unsure_P[40:].sum() <= 10


# around the sizes of lanes, chunks and blocks; the quick ones have another number of points with either way of search
@pytest.mark.parametrize(
    ("points", "count"),
    [
        *((1, FEW), (2, MANY), (3, FEW), (512, FEW)),
        *(
            pytest.param(points, count, marks=pytest.mark.slow)
            for points, count in (
                *(
                    (1, MANY),
                    (2, FEW),
                    (3, MANY),
                    (31, FEW),
                    (31, MANY),
                    (33, FEW),
                    (33, MANY),
                    (511, FEW),
                    (511, MANY),
                ),
                *((512, MANY), (513, FEW), (513, MANY), (1025, FEW), (1025, MANY)),
            )
        ),
    ],
)
def test_takes_any_number_of_points(points, count):
    cloud = gaussian(points, 5)
    found = find(cloud, count)
    assert found.distance_PC.shape == found.index_PC.shape == (points, count)
    assert_found(found, cloud, rtol=1e-5)


# in blocks of one chunk, and of two
@pytest.mark.parametrize(
    ("points", "count"),
    [(97, FEW), (640, FEW), *(pytest.param(points, MANY, marks=pytest.mark.slow) for points in (97, 640))],
)
def test_neighbours_in_other_blocks_are_found(monkeypatch, points, count):
    monkeypatch.setattr(candidates, "CHUNK", 32)
    monkeypatch.setattr(candidates, "LANES", 8)
    monkeypatch.setattr(candidates, "SIDE", 16)
    monkeypatch.setattr(search, "AT_ONCE", 16)
    monkeypatch.setattr(ascending, "GATHERED", 1000)
    cloud = with_copies(gaussian(points, 5))
    assert_found(jax.jit(lambda cloud_PD: nearest_neighbours(cloud_PD, count))(cloud), cloud, rtol=1e-5)


@pytest.mark.parametrize("count", [FEW, MANY])
def test_knows_the_neighbours_on_a_line(count):
    """0, 1, 3, 7, 15, 31: the next smaller is the nearest, and the one before it the second, from the third on."""
    found = find(filled([[0.0], [1.0], [3.0], [7.0], [15.0], [31.0]]), count)
    assert found.index_PC[:6, :2].tolist() == [[1, 2], [0, 2], [1, 0], [2, 1], [3, 2], [4, 3]]
    assert found.distance_PC[:6, :2].tolist() == [[1, 3], [1, 2], [2, 3], [4, 6], [8, 12], [16, 24]]
    assert (found.distance_PC[:, 5:] == jnp.inf).all()


def on_a_torus(turns, steps):
    """Points of two circles' product, on which four are equally near to each point, and the next four too."""
    angle = 2 * np.pi * np.arange(steps) / steps
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)
    return np.concatenate([np.repeat(circle[:turns], steps, axis=0), np.tile(circle, (turns, 1))], axis=1)


@pytest.mark.parametrize("count", [4, MANY])
def test_equally_far_points_in_two_chunks_are_different_neighbours(count):
    cloud = filled(on_a_torus(24, 24))
    found = find(cloud, count)
    assert_found(found, cloud, rtol=1e-5)
    np.testing.assert_allclose(found.distance_PC[:, :4], 2 * np.sin(np.pi / 24), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("count", [4, MANY])
def test_equally_far_points_in_many_chunks_are_different_neighbours(count):
    cloud = on_a_torus(40, 40)
    found = find(cloud, count)
    assert_found(found, cloud, rtol=1e-5)
    np.testing.assert_allclose(found.distance_PC[:, :4], 2 * np.sin(np.pi / 40), rtol=1e-5)


def test_equally_far_points_at_one_place_of_two_chunks_are_two_neighbours():
    """Their keys are equal, since a key holds the place in a chunk and not the chunk."""
    angle_P = 2 * np.pi * np.arange(POINTS) / POINTS
    cloud = 5 * np.stack([np.cos(angle_P), np.sin(angle_P)], axis=1).astype(np.float32)
    cloud[[0, 7, 7 + candidates.CHUNK]] = [[0, 0], [1.1, 0], [-1.1, 0]]
    found = find(filled(cloud), FEW)
    assert sorted(found.index_PC[0].tolist()) == [7, 7 + candidates.CHUNK]
    np.testing.assert_allclose(found.distance_PC[0], 1.1, rtol=1e-5)


def test_copies_have_the_neighbours_of_their_first():
    cloud = with_copies(gaussian())
    found = find(cloud, FEW)
    _, first_P, original_P, copies_P = np.unique(
        cloud, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    np.testing.assert_array_equal(found.copies_P, copies_P[original_P])
    np.testing.assert_array_equal(np.flatnonzero(found.first_P), np.sort(first_P))
    index_PC = np.asarray(found.index_PC)
    np.testing.assert_array_equal(index_PC, index_PC[first_P[original_P]])
    np.testing.assert_array_equal(found.nearest_copies_P, np.asarray(found.copies_P)[index_PC[:, 0]])
    assert found.duplicates() == len(cloud) - len(first_P)


@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
def test_a_cloud_that_is_not_finite_has_no_neighbours(bad, count):
    cloud = gaussian()
    cloud[7, 1] = bad
    assert np.isposinf(find(cloud, count).distance_PC).all()


def test_zero_and_minus_zero_are_one_point():
    found = find(filled([[0.0, 1.0], [-0.0, 1.0], [2.0, 0.0], [5.0, 0.0]]), FEW)
    assert found.copies_P[:4].tolist() == [2, 2, 1, 1 + POINTS - 4]


def test_close_points_are_not_copies():
    cloud = gaussian()
    cloud[1] = np.nextafter(cloud[0], np.float32(np.inf))
    found = find(cloud, FEW)
    assert found.duplicates() == 0
    assert found.r1_P[0] == found.r1_P[1] > 0
    assert (~found.usable()).tolist() == [True] * 2 + [False] * (POINTS - 2)  # nothing is read from their distance
    assert found.dropped() == 2


@pytest.mark.parametrize("count", [FEW, MANY])
@settings(max_examples=5, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**16), scale=st.floats(1e-6, 1e6), shift=st.floats(-10, 10))
def test_distances_do_not_see_rotation_order_or_translation_and_follow_the_scale(count, seed, scale, shift):
    cloud = gaussian(seed=seed)
    order_P = np.random.default_rng(seed).permutation(POINTS)
    moved = ((cloud.astype(float) + shift) @ rotation(WIDTH, seed) * scale)[order_P]
    after = np.asarray(find(moved.astype(np.float32), count).distance_PC) / np.float32(scale)
    np.testing.assert_allclose(after, np.asarray(find(cloud, count).distance_PC)[order_P], rtol=1e-4)


def crowds_and_none():
    """All of the crowds, and nearly nothing of the other cloud, is compared with all."""
    plain = with_copies(gaussian(65, 9))
    return jnp.stack([plain, crowded(gaussian(2, 9), len(plain), apart=1e-4)[: len(plain)]])


def mapped(of):
    return lambda clouds: jax.lax.map(of, clouds)


@pytest.mark.parametrize(
    ("many", "count"),
    [
        (jax.vmap, FEW),
        *(pytest.param(*of, marks=pytest.mark.slow) for of in ((jax.vmap, MANY), (mapped, FEW), (mapped, MANY))),
    ],
)
def test_vmap_and_map_change_nothing(many, count):
    clouds = crowds_and_none()
    at_once = jax.jit(many(lambda cloud_PD: nearest_neighbours(cloud_PD, count)))(clouds)
    one_by_one = [find(cloud, count) for cloud in clouds]
    jax.tree.map(lambda all, *ones: np.testing.assert_allclose(all, ones, rtol=1e-6), at_once, *one_by_one)


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_jit_changes_nothing(count):
    for cloud in crowds_and_none():
        jax.tree.map(
            lambda plain, jitted: np.testing.assert_allclose(plain, jitted, rtol=1e-6),
            nearest_neighbours(cloud, count),
            find(cloud, count),
        )


@pytest.mark.parametrize("count", [FEW, 128])
@pytest.mark.slow
def test_memory_of_a_large_cloud_is_small(count):
    """64 MiB beside a cloud of 32 MiB, one copy of which is centred; its distances would take a GiB."""
    cloud = jax.ShapeDtypeStruct((16384, 512), jnp.float32)
    compiled = find.lower(cloud, count).compile()
    assert compiled.memory_analysis().temp_size_in_bytes <= 64 * 2**20
