"""The search for neighbors beside a float64 twin of the definition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.metrics import neighbors as searching
from anisoscope.metrics.copies import COPY_ROUNDING
from anisoscope.metrics.dimension import read_twonn
from anisoscope.metrics.neighbors import SPARE, nearest_neighbors, neighbors_among
from tests import reference
from tests.metrics import clouds
from tests.metrics.clouds import (
    CLOUDS,
    FEW,
    MANY,
    POINTS,
    WIDTH,
    assert_neighbors,
    crowded,
    filled,
    find,
    gaussian,
    rotation,
    with_copies,
)


def lines():
    """Draw two lines of 300 steps of 1e-3, 10 apart: the Gram matrix has only rounding."""
    step_P = np.arange(300) + np.random.default_rng(8).uniform(0, 0.5, 300)
    line, across = 1e-3 * step_P[:, None] * rotation(WIDTH)[0], rotation(WIDTH)[1]
    return filled(np.concatenate([line + 5 * across, line - 5 * across]))


def torus(steps=24):
    """Points on which four are equally near to each, and the next four too."""
    angle = 2 * np.pi * np.arange(steps) / steps
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)
    pairs = np.repeat(circle, steps, axis=0), np.tile(circle, (steps, 1))
    return filled(np.concatenate(pairs, axis=1))


def far_crowds():
    """Draw two crowds, each as wide as the rounding of the Gram matrix that says who is near."""
    side_P = np.where(np.arange(POINTS) % 2, 1, -1)
    return np.float32(4e-4 * gaussian() + side_P[:, None] * rotation(WIDTH)[0])


def far_point():
    cloud = gaussian(seed=3)
    cloud[9] *= 1e4
    return cloud


# where the Gram matrix is all rounding, or holds too few candidates of a crowd, or has ties
AWKWARD = {f"crowds of {crowd}": crowded(gaussian(601), crowd, 1e-4)[:POINTS] for crowd in (4, 40)}
AWKWARD |= {"few values": np.round(filled(gaussian(width=3))), "one far away": far_point()}
AWKWARD |= {"ties": torus(), "lines": lines(), "far crowds": far_crowds()}
# the last of the lines' digits are a thousandth of a step
RTOL = {"crowds of 4": 1e-4, "crowds of 40": 1e-4, "lines": 3e-3}


@pytest.mark.parametrize("name", [*CLOUDS, *AWKWARD])
def test_agrees_with_the_float64_twin(name):
    cloud = (CLOUDS | AWKWARD)[name]
    assert_neighbors(find(cloud, MANY), cloud, rtol=RTOL.get(name, 1e-5))


def test_finds_the_same_on_an_accelerators_path(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    search = jax.jit(lambda cloud_PD: nearest_neighbors(cloud_PD, FEW))
    for name in ("copies", "ties", "few values"):
        cloud = (CLOUDS | AWKWARD)[name]
        assert_neighbors(search(cloud), cloud, rtol=1e-5)


def test_the_largest_of_long_rows_on_an_accelerator(monkeypatch):
    x_AP = np.random.default_rng(0).integers(0, 50, (7, 1500)).astype(np.float32)
    x_AP[3, 20:] = -np.inf
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    value_AC, place_AC = map(np.asarray, searching._largest(jnp.asarray(x_AP), 9))
    np.testing.assert_array_equal(value_AC, -np.sort(-x_AP)[:, :9])
    np.testing.assert_array_equal(np.take_along_axis(x_AP, place_AC, 1), value_AC)
    assert all(len(set(place_C)) == 9 for place_C in place_AC)


def test_has_as_many_as_asked_for():
    neighbors = find(filled([[0.0], [1.0], [3.0], [7.0], [15.0], [31.0]]), MANY)
    assert neighbors.index_PC[:6, :2].tolist() == [[1, 2], [0, 2], [1, 0], [2, 1], [3, 2], [4, 3]]
    nearest = [[1, 3], [1, 2], [2, 3], [4, 6], [8, 12], [16, 24]]
    assert neighbors.distance_PC[:6, :2].tolist() == nearest
    assert (neighbors.distance_PC[:, 5:] == jnp.inf).all()
    with pytest.raises(ValueError, match="count is 1; pass 2 or more"):
        nearest_neighbors(gaussian(), 1)


def test_copies_have_the_neighbors_of_their_first():
    cloud = with_copies(gaussian())
    neighbors = find(cloud, MANY)
    _, first_P, original_P, copies_P = np.unique(
        cloud, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    np.testing.assert_array_equal(neighbors.copies_P, copies_P[original_P])
    np.testing.assert_array_equal(np.flatnonzero(neighbors.first_P), np.sort(first_P))
    index_PC = np.asarray(neighbors.index_PC)
    np.testing.assert_array_equal(index_PC, index_PC[first_P[original_P]])
    assert neighbors.duplicates() == len(cloud) - len(first_P)
    signed = find(filled([[0.0, 1.0], [-0.0, 1.0], [2.0, 0.0], [5.0, 0.0]]), MANY)
    assert signed.copies_P[:4].tolist() == [2, 2, 1, 1 + POINTS - 4]


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e20])
def test_a_point_that_is_not_finite_or_huge_has_no_neighbors(value):
    """Its own square is beyond float32; a huge one leaves those of the others in it."""
    distance_PC = np.asarray(find(clouds.with_one(value), MANY).distance_PC)
    assert np.isposinf(distance_PC[7]).all()
    assert np.isfinite(np.delete(distance_PC, 7, axis=0)).all() == (value == 1e20)


@pytest.mark.slow
def test_memory_of_a_large_cloud_is_small():
    """64 MiB beside a cloud of 32 MiB, one copy of which is centered; distances take a GiB."""
    cloud = jax.ShapeDtypeStruct((16384, 512), jnp.float32)
    compiled = find.lower(cloud, 128).compile()
    assert compiled.memory_analysis().temp_size_in_bytes <= 64 * 2**20


@jax.jit
def among(cloud, left):
    return neighbors_among(cloud, nearest_neighbors(cloud, SPARE), left)


@pytest.mark.parametrize("name", ["gaussian", "copies", "curve", "crowds of 4"])
def test_neighbors_among_those_left_are_as_if_the_others_had_never_been_there(name):
    """Also where nearly all nearest ones, of the few that were searched, are gone."""
    cloud = (CLOUDS | AWKWARD)[name]
    for share in (0.01, 0.9):
        left = np.random.default_rng(0).random(POINTS) >= share
        neighbors = among(cloud, left)
        inside = np.flatnonzero(left)
        distances = np.asarray(neighbors.distance_PC)[inside]
        # a first of copies stands for them, gone or not
        rounding = COPY_ROUNDING * np.linalg.norm(cloud, axis=1).max()
        np.testing.assert_allclose(
            distances, reference.distinct_distances(cloud[inside], 2), rtol=1e-4, atol=rounding
        )
        index, first = np.asarray(neighbors.index_PC), np.asarray(neighbors.first_P)
        assert first[index[inside]].all()
        assert first.sum() == len(reference.distinct_points(cloud[inside]))
        np.testing.assert_allclose(read_twonn(neighbors), reference.twonn(cloud[inside]), rtol=1e-3)


def test_among_nobody_there_are_no_neighbors_and_two_are_too_few_to_tell():
    assert not among(gaussian(), np.zeros(POINTS, bool)).usable().any()
    with pytest.raises(ValueError, match="3 neighbors are needed, 2 were searched"):
        jax.eval_shape(lambda x: neighbors_among(x, find(x, 2), x[:, 0] > 0), gaussian())
