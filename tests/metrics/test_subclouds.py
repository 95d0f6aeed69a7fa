"""Neighbors in parts of a cloud: those that each part has by itself."""

import jax
import numpy as np
import pytest

from anisoscope.metrics.copies import ROUNDING
from anisoscope.metrics.dimension import twonn
from anisoscope.metrics.neighbors import nearest_neighbors
from anisoscope.metrics.subclouds import SPARE, neighbors_among, neighbors_in_subsets
from tests import reference
from tests.metrics import clouds
from tests.metrics.clouds import (
    MANY,
    POINTS,
    crowded,
    find,
    gaussian,
    with_copies,
)


@jax.jit
def among(cloud, left):
    return neighbors_among(cloud, nearest_neighbors(cloud, SPARE), left)


in_subsets = jax.jit(neighbors_in_subsets, static_argnums=2)
KINDS = {
    **{"gaussian": gaussian(), "copies": with_copies(gaussian()), "curve": clouds.curve()},
    "near copies": crowded(gaussian(1 + POINTS // 5), 5, apart=1e-4)[:POINTS],
}


@pytest.mark.parametrize("name", KINDS)
def test_neighbors_among_those_left_are_as_if_the_others_had_never_been_there(name):
    """Also where nearly all nearest ones are gone, of which nothing is said in the few that were
    searched.
    """
    cloud = KINDS[name]
    for share in (0.01, 0.9):
        left = np.random.default_rng(0).random(POINTS) >= share
        neighbors = among(cloud, left)
        inside = np.flatnonzero(left)
        distances = np.asarray(neighbors.distance_PC)[inside]
        # a first of copies stands for them, gone or not
        rounding = ROUNDING * np.linalg.norm(cloud, axis=1).max()
        np.testing.assert_allclose(
            distances, reference.distinct_distances(cloud[inside], 2), rtol=1e-4, atol=rounding
        )
        index, first = np.asarray(neighbors.index_PC), np.asarray(neighbors.first_P)
        assert first[index[inside]].all()
        assert first.sum() == len(reference.distinct_points(cloud[inside]))
        np.testing.assert_allclose(twonn(neighbors), reference.twonn(cloud[inside]), rtol=1e-3)


@pytest.mark.parametrize("factor", [3, 16])
@pytest.mark.parametrize("name", ["gaussian", "copies", "near copies"])
def test_neighbors_in_subsets_are_those_of_each_subset_alone(name, factor):
    """Also where few or none of those searched are of the subset, as here of 16."""
    cloud = KINDS[name]
    neighbors = in_subsets(cloud, find(cloud, MANY), factor)
    kept = POINTS // factor * factor
    for number in range(factor):
        part = cloud[number:kept:factor]
        of = (neighbors.distance_PC, neighbors.index_PC, neighbors.first_P)
        distances, index, first = (np.asarray(x)[number] for x in of)
        np.testing.assert_allclose(distances, reference.distinct_distances(part, 2), rtol=1e-4)
        there = np.isfinite(distances)
        assert (index[there] % factor == number).all()
        assert first[index[there] // factor].all()
        named = np.linalg.norm(
            reference.float64(cloud)[np.minimum(index, POINTS - 1)] - part[:, None], axis=2
        )
        np.testing.assert_allclose(named[there], distances[there], rtol=1e-4)
        assert first.sum() == len(np.unique(part, axis=0))


def test_among_nobody_there_are_no_neighbors_and_two_are_too_few_to_tell():
    assert not among(gaussian(), np.zeros(POINTS, bool)).usable().any()
    with pytest.raises(ValueError, match="3 neighbors are needed, 2 were searched"):
        neighbors_among(gaussian(), find(gaussian(), 2), np.ones(POINTS, bool))
