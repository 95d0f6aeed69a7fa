"""Which points are copies: the float64 twin makes chains of all pairs that are near."""

import jax
import numpy as np
import pytest

from anisoscope import metrics
from anisoscope.metrics.copies import COPY_ROUNDING, copies
from tests import reference
from tests.metrics.clouds import POINTS, WIDTH, crowded, gaussian, rotation, with_copies

find = jax.jit(copies)


def shuffled(cloud):
    return cloud[np.random.default_rng(2).permutation(len(cloud))]


def chain():
    """Make steps below rounding, from end to end a hundred times that; and a longer one."""
    cloud = gaussian().astype(float)
    along = rotation(WIDTH)[0] * np.linalg.norm(cloud[0])
    cloud[:100] = cloud[0] + 0.8 * COPY_ROUNDING * np.arange(100)[:, None] * along
    cloud[60:100] += 0.6 * COPY_ROUNDING * along
    return cloud.astype(np.float32)


def edge(points, spread):
    """All near one another: some pairs are joined, others all but."""
    cloud = np.random.default_rng(0).normal(size=(1 + points, WIDTH))
    return (cloud[0] + spread * cloud[1:]).astype(np.float32)


ALIKE = {
    "none": gaussian(),
    "pairs": crowded(gaussian(1 + POINTS // 2), 2, 1e-7)[:POINTS],
    "equal, or nearly": with_copies(crowded(gaussian(1 + POINTS // 2), 2, 1e-7)[:POINTS]),
    "crowds": crowded(gaussian(1 + POINTS // 40), 40, 1e-7)[:POINTS],
    "one crowd": crowded(gaussian(1), POINTS, 1e-7),
    "chain": chain(),
    "far from the origin": crowded(gaussian(1 + POINTS // 3), 3, 1e-7)[:POINTS] + np.float32(300),
    "on the edge of rounding": edge(POINTS, 1.5e-6),
    "one point and zeros": np.eye(POINTS, WIDTH, dtype=np.float32),
    "of two values": np.sign(gaussian()),
}


@pytest.mark.parametrize("name", ALIKE)
def test_agrees_with_the_float64_twin_in_any_order(name):
    cloud = shuffled(ALIKE[name])
    found = find(cloud)
    original_P = reference.originals(cloud)
    np.testing.assert_array_equal(found.original_P, original_P)
    _, first, equal = np.unique(cloud, axis=0, return_index=True, return_inverse=True)
    np.testing.assert_array_equal(found.equal_P, first[equal])


def test_numbers_of_float32_have_the_same_copies_as_float64():
    x = crowded(gaussian(1 + POINTS // 2), 2, 1e-7)[:POINTS] + np.float32(20)
    for metric in (metrics.twonn_mle, metrics.levina_bickel):
        np.testing.assert_allclose(metric(x.astype(float)), metric(x), rtol=1e-5)


def test_a_chain_is_one_point_up_to_its_gap():
    assert np.unique(find(chain()).original_P[:100]).tolist() == [0, 60]


@pytest.mark.parametrize("scale", [1e-12, 2.0**-9, 3e9])
def test_neither_scale_nor_rotation_matters(scale):
    cloud = shuffled(ALIKE["crowds"]).astype(float)
    moved = (cloud @ rotation(WIDTH) * scale).astype(np.float32)
    np.testing.assert_array_equal(find(moved).original_P, find(cloud).original_P)


def test_what_is_not_finite_is_like_none_but_its_equal():
    cloud = gaussian()
    cloud[:2], cloud[2:4], cloud[4] = np.inf, 1e30, np.nan
    cloud[3, 0] = 1.0001e30
    assert find(cloud).original_P[:6].tolist() == [0, 0, 2, 3, 4, 5]
