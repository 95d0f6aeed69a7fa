"""How the fast search finds neighbours: blocks and chunks, equal keys, when it compares a point
with all.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.metrics import candidates, fast_search, neighbours
from anisoscope.metrics.neighbours import nearest_neighbours
from tests.metrics import clouds
from tests.metrics.clouds import (
    FEW,
    MANY,
    POINTS,
    WIDTH,
    assert_neighbours,
    crowded,
    filled,
    find,
    gaussian,
    rotation,
)


def test_neighbours_do_not_depend_on_how_many_are_asked_for():
    """Two parallel lines of 300 steps of 1e-3, 10 apart: of one line the Gram matrix sees nothing
    but rounding.
    """
    step_P = np.arange(300) + np.random.default_rng(8).uniform(0, 0.5, 300)
    line, across = 1e-3 * step_P[:, None] * rotation(WIDTH)[0], rotation(WIDTH)[1]
    cloud = filled(np.concatenate([line + 5 * across, line - 5 * across]))
    few, many = (find(cloud, count) for count in (FEW, MANY))
    np.testing.assert_allclose(few.distance_PC, many.distance_PC[:, :FEW], rtol=1e-6)
    # the last of the coordinates' digits are a thousandth of a step
    assert_neighbours(few, cloud, rtol=3e-3)


@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize("crowd", [4, 5, 40])
def test_tells_near_copies_apart(crowd, count):
    """Crowds at 1e-4 of the spread, where the Gram matrix is all rounding and holds too few
    candidates of 40.
    """
    cloud = crowded(gaussian(1 + POINTS // crowd), crowd, apart=1e-4)[:POINTS]
    assert_neighbours(find(cloud, count), cloud, rtol=1e-4)


@pytest.mark.parametrize(
    ("points", "count"),
    [(97, FEW), pytest.param(640, MANY, marks=pytest.mark.slow)],
)
def test_neighbours_are_the_same_in_smaller_chunks(monkeypatch, points, count):
    monkeypatch.setattr(candidates, "CHUNK", 32)
    monkeypatch.setattr(candidates, "LANES", 8)
    monkeypatch.setattr(candidates, "SIDE", 16)
    monkeypatch.setattr(neighbours, "AT_ONCE", 16)
    monkeypatch.setattr(fast_search, "GATHERED", 1000)
    cloud = clouds.with_copies(gaussian(points, 5))
    assert_neighbours(
        jax.jit(lambda cloud_PD: nearest_neighbours(cloud_PD, count))(cloud), cloud, rtol=1e-5
    )


def on_a_torus(turns, steps):
    """Points of two circles' product, on which four are equally near to each point, and the next
    four too.
    """
    angle = 2 * np.pi * np.arange(steps) / steps
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)
    return np.concatenate(
        [np.repeat(circle[:turns], steps, axis=0), np.tile(circle, (turns, 1))], axis=1
    )


@pytest.mark.parametrize("count", [4, MANY])
@pytest.mark.parametrize("steps", [24])
def test_equally_far_points_in_two_chunks_or_more_are_different_neighbours(steps, count):
    cloud = on_a_torus(steps, steps)
    cloud = filled(cloud)
    nearest = find(cloud, count)
    assert_neighbours(nearest, cloud, rtol=1e-5)
    np.testing.assert_allclose(nearest.distance_PC[:, :4], 2 * np.sin(np.pi / steps), rtol=1e-5)


def test_equally_far_points_at_one_place_of_two_chunks_are_two_neighbours():
    """Their keys are equal, since a key holds the place in a chunk and not the chunk."""
    angle_P = 2 * np.pi * np.arange(POINTS) / POINTS
    cloud = 5 * np.stack([np.cos(angle_P), np.sin(angle_P)], axis=1).astype(np.float32)
    cloud[[0, 7, 7 + candidates.CHUNK]] = [[0, 0], [1.1, 0], [-1.1, 0]]
    nearest = find(filled(cloud), FEW)
    assert sorted(nearest.index_PC[0].tolist()) == [7, 7 + candidates.CHUNK]
    np.testing.assert_allclose(nearest.distance_PC[0], 1.1, rtol=1e-5)


@pytest.mark.parametrize("count", [FEW, 128])
@pytest.mark.slow
def test_memory_of_a_large_cloud_is_small(count):
    """64 MiB beside a cloud of 32 MiB, one copy of which is centred; its distances would take a
    GiB.
    """
    cloud = jax.ShapeDtypeStruct((16384, 512), jnp.float32)
    compiled = find.lower(cloud, count).compile()
    assert compiled.memory_analysis().temp_size_in_bytes <= 64 * 2**20
