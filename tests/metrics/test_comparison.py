import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.metrics import comparison as metric
from anisoscope.metrics.cloud import point_weights
from anisoscope.metrics.comparison import (
    map_pairs,
    nearest_overlap,
    prepare_clouds,
    select_nearest,
)
from tests import reference_comparison as reference
from tests.metrics.clouds import EVERY, MANY, POINTS, filled, find, gaussian

COUNT = 5
GROUPED = POINTS - 1  # points that are a multiple of the folds
INVARIANT = (60, 6)  # points and width of the clouds that are moved

ckas = jax.jit(metric.ckas)


def both(x, y, folds=1):
    return ckas(x, y, point_weights(folds, len(x)))


TWINS = (reference.linear_cka, reference.linear_cka_unbiased)


@functools.partial(jax.jit, static_argnums=2)
def share(a, b, count):
    return nearest_overlap(select_nearest(a, count), select_nearest(b, count))


def other(cloud, width=7, noise=0.5):
    """Project a cloud, and add noise of half the size of its projection."""
    cloud = np.asarray(cloud, np.float32)
    generator = np.random.default_rng(5)
    projected = (cloud - cloud.mean(0)) @ generator.normal(size=(cloud.shape[1], width))
    return (
        projected + noise * projected.std() * generator.normal(size=projected.shape) + 1
    ).astype(np.float32)


def overlap(a, b, count=COUNT):
    """Of small clouds too, whose copies at the end stand for one another and do not count."""
    return float(share(*(find(filled(cloud), MANY) for cloud in (a, b)), count))


@pytest.mark.parametrize("name", EVERY)
def test_cka_agrees_with_the_float64_twin(name):
    cloud = EVERY[name]
    second = other(cloud)
    expected = [twin(cloud, second) for twin in TWINS]
    assert 0.01 < expected[0] < 0.999
    cka = both(cloud, second)
    np.testing.assert_allclose(cka.biased, expected[:1], rtol=1e-4)
    np.testing.assert_allclose(cka.unbiased, expected[1:], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "name", ["gaussian", "mean 1000 x spread", "rogue coordinate", "zoo: mean 1000 spreads"]
)
def test_cka_without_a_fold_is_that_of_the_others(name):
    """The points of each fold have a mean of their own, which the center must follow."""
    folds = 4
    cloud = EVERY[name][:GROUPED].copy()
    size = len(cloud) // folds
    cloud += 2 * cloud.std(0) * np.repeat(np.arange(folds, dtype=np.float32), size)[:, None]
    second = other(cloud)
    cka = both(cloud, second, folds=folds)
    left = [
        [np.delete(z, np.s_[j * size : (j + 1) * size], axis=0) for z in (cloud, second)]
        for j in range(folds)
    ]
    for values, twin in zip(cka, TWINS, strict=True):
        np.testing.assert_allclose(
            values, [twin(*pair) for pair in [(cloud, second), *left]], rtol=1e-4
        )
        assert np.ptp(values) > 1e-3


def test_known_cka():
    """Of single columns it is their squared correlation; of independent clouds not 0."""
    cloud = gaussian(500, 2)
    expected = np.corrcoef(cloud.T)[0, 1] ** 2
    assert both(cloud[:, :1], cloud[:, 1:]).biased == pytest.approx(expected, rel=1e-4)
    independent = both(gaussian(1024, 128), gaussian(1024, 64, seed=1)).biased
    assert independent == pytest.approx(np.sqrt(128 * 64 / ((1024 + 128) * (1024 + 64))), rel=0.05)


def test_beside_one_massive_point_cka_without_bias_is_right_or_nan():
    """What it keeps of that point by itself is a difference of numbers that are nearly equal."""
    cloud, second, known = gaussian(512, 32), other(gaussian(512, 32)), []
    for size in (10, 30, 100, 300, 1000):
        massive = cloud.copy()
        massive[7] *= size
        values = both(massive, second, folds=4).unbiased
        assert np.isnan(values[0]) or values[0] == pytest.approx(
            TWINS[1](massive, second), rel=0.02, abs=1e-3
        )
        known.append(bool(np.isfinite(values[0])))
        assert np.isfinite(values[1])  # without the fold of that point
        assert np.isfinite(both(massive, second).biased)
    assert known == sorted(known, reverse=True)
    assert known[0]
    assert not known[-1]


def test_cka_of_what_does_not_vary_or_is_not_finite_is_nan():
    cloud = gaussian(*INVARIANT)
    same, bad = np.full_like(cloud, 0.1), cloud.copy()
    bad[4, 1] = np.nan
    for broken in (same, bad):
        assert np.isnan(both(cloud, broken, folds=3)).all()
    for cka in map(np.asarray, of_layers(np.stack([cloud, same, cloud]), folds=3)):
        assert np.isfinite(cka[0, 0]).all()
        assert np.isnan(cka[1]).all()
        assert np.isnan(cka[:, 1]).all()
    few = both(cloud[:3], cloud[3:6])
    assert np.isfinite(few.biased).all()
    assert np.isnan(few.unbiased).all()


@functools.partial(jax.jit, static_argnames="folds")
def of_layers(clouds, folds, beside=None):
    keep = point_weights(folds, clouds.shape[1])
    prepared = prepare_clouds(clouds, keep)
    others = prepared if beside is None else prepare_clouds(beside, keep)
    return map_pairs(functools.partial(metric.compare_prepared, keep_RP=keep), prepared, others)


def test_layers_beside_others_are_a_triangle_mirrored():
    cloud = gaussian(*INVARIANT)
    clouds = np.stack([cloud, other(cloud, INVARIANT[1])])
    second = np.stack([gaussian(*INVARIANT, seed=8), other(cloud, INVARIANT[1], noise=2)])
    beside = of_layers(clouds, 3, second)
    for n, m in np.ndindex(2, 2):
        pair = both(clouds[min(n, m)], second[max(n, m)], folds=3)
        np.testing.assert_allclose(np.array(beside)[:, n, m], pair, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", EVERY)
def test_overlap_agrees_with_sets(name):
    """Where two are as far in float32, a neighbor more is 1/count of one point's share."""
    cloud = EVERY[name]
    second = other(cloud, noise=0.1)
    expected = reference.neighbor_overlap(cloud, second, COUNT)
    assert 0.02 < expected < 0.98
    assert overlap(cloud, second) == pytest.approx(expected, rel=1e-4)


def test_known_overlaps():
    """Nearest of the four points: 1 0 1 2 on one line, 2 3 0 2 on the other."""
    line, folded = (np.array([values], np.float32).T for values in ([0, 1, 3, 7], [0, 7, 1, 3]))
    assert overlap(line, folded, 1) == 0.25
    assert overlap(line, 3 - 7 * line, 2) == 1
    cloud = gaussian(POINTS, 3)
    assert overlap(cloud, np.random.default_rng(0).permutation(cloud), 10) == pytest.approx(
        10 / (POINTS - 1), rel=0.15
    )


def test_copies_stand_for_one_another_within_a_cloud_and_not_across_two():
    """0 and 3 are copies in a, where 0 represents both and 3 is skipped; in b they differ.

    The nearest of points 0, 1, 2 and 4 is 1, 0, 1, 2 in a and 2, 3, 1, 0 in b: that of 1, 0 or its
        copy, differs.
    """
    a = np.array([[0.0, 1.0, 5.0, 0.0, 20.0]], np.float32).T
    b = np.array([[9.0, 1.1, 5.0, 0.0, 20.0]], np.float32).T
    assert overlap(a, b, 1) == overlap(b, a, 1) == 0.25
    assert overlap(a, a, 1) == 1


def test_overlap_without_enough_neighbors_is_nan():
    few, many = np.repeat(gaussian(4, 2), 5, axis=0), gaussian(20, 2)
    assert overlap(few, few, 3) == 1
    assert np.isnan(overlap(few, many, 4))
    assert np.isnan(overlap(many, few, 4))
    assert np.isnan(overlap(many, np.full((20, 2), np.nan, np.float32), 4))


def test_layers_overlap_is_the_overlap_of_every_pair():
    clouds = [gaussian(), filled(other(gaussian())), gaussian(seed=8)]
    of_each = select_nearest(
        jax.tree.map(lambda *leaves: jnp.stack(leaves), *(find(cloud, MANY) for cloud in clouds)),
        COUNT,
    )
    expected = np.array([[overlap(a, b) for b in clouds] for a in clouds])
    overlaps_of = jax.jit(functools.partial(map_pairs, nearest_overlap))
    overlaps = overlaps_of(of_each, of_each)
    np.testing.assert_allclose(overlaps, expected, rtol=1e-6)
    np.testing.assert_array_equal(np.diagonal(overlaps), 1)
    two, turned = (
        jax.tree.map(lambda leaf, at=at: leaf[at], of_each)
        for at in (np.array([0, 1]), np.array([2, 0]))
    )
    beside = overlaps_of(two, turned)
    np.testing.assert_allclose(beside, [[expected[0, 2], 1], [1, expected[1, 0]]], rtol=1e-6)


def test_independent_clouds_have_no_cka_without_bias():
    """On average over draws, as far as the draws' own scatter tells; with bias it is as large as
    the widths make it.
    """
    draws = [
        both(gaussian(256, 96, seed), gaussian(256, 64, seed=100 + seed)) for seed in range(20)
    ]
    biased, unbiased = (np.array([one[kind].item() for one in draws]) for kind in (0, 1))
    assert biased.mean() > np.sqrt(96 * 64) / (256 + 96)
    assert abs(unbiased.mean()) < 3 * unbiased.std(ddof=1) / np.sqrt(len(draws))
    assert unbiased.std() < 0.01
    assert (unbiased < 0).any()
