"""Alignment, linearity and imbalance of two clouds, beside their float64 twins."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.metrics import imbalance as imbalances
from anisoscope.metrics import linear_maps
from anisoscope.metrics.alignment import alignments as compute_alignments
from anisoscope.metrics.cloud import point_weights
from anisoscope.metrics.comparison import select_nearest
from anisoscope.metrics.neighbors import nearest_neighbors
from tests import reference_comparison as reference
from tests.metrics.clouds import CLOUDS, EVERY, POINTS, gaussian, rotation, with_copies

EVEN = POINTS - 1  # points that are a multiple of the folds
GENERATOR = np.random.default_rng(0)
MAP = GENERATOR.normal(size=(64, 7))
SEED = 5  # of noise, with few pairs that only float64 tells apart
AT_THE_THRESHOLD = {"zoo: mean 1000 spreads"}  # directions of rounding, of which some count
align = jax.jit(compute_alignments)


def alignments(x, y, folds=1):
    return align(x, y, point_weights(folds, len(x)))


linearity = jax.jit(linear_maps.linear_fit)


@jax.jit
def directed(a, b):
    near = select_nearest(nearest_neighbors(a, 10))
    part = jnp.ones((1, len(b)), bool)
    return imbalances.part_imbalance(near.index_PC[None, :, 0], near.first_P[None], b, part)[0, 0]


def imbalance(a, b):
    """One shape for all widths: columns of zeros change no distance."""
    return directed(*(np.pad(x, ((0, 0), (0, 64 - x.shape[1]))) for x in (a, b)))


def relative(cloud, width=9):
    """Some of a cloud, and noise: another width."""
    x, generator = np.asarray(cloud, np.float64), np.random.default_rng(SEED)
    x = (x - x.mean(axis=0)) @ generator.normal(size=(x.shape[1], width))
    return (x + 0.5 * x.std() * generator.normal(size=x.shape)).astype(np.float32)


def bent(cloud):
    """What is linear in a cloud, what is not, and noise."""
    x = np.asarray(cloud, np.float64)
    x = (x - x.mean(0)) @ MAP
    x = x / x.std()
    return (x + x**2 / 2 + 0.3 * GENERATOR.normal(size=x.shape)).astype(np.float32)


@pytest.mark.parametrize("name", CLOUDS)
def test_alignment_and_imbalance_agree_with_float64(name):
    cloud, other = CLOUDS[name], relative(CLOUDS[name])
    for x, y in ((cloud, other), (other, cloud)):
        found = alignments(x, y)
        np.testing.assert_allclose(found.rsa, reference.rsa(x, y), rtol=2e-4, atol=2e-5)
        np.testing.assert_allclose(found.procrustes, reference.procrustes(x, y), rtol=1e-4)
        expected = reference.information_imbalance(x, y)
        assert 0.02 < expected < 0.99
        np.testing.assert_allclose(imbalance(x, y), expected, rtol=2e-3)


@pytest.mark.parametrize("name", sorted(EVERY.keys() - AT_THE_THRESHOLD))
def test_linearity_agrees_with_least_squares_in_float64(name):
    y = bent(EVERY[name])
    found, expected = linearity(EVERY[name], y), reference.linearity(EVERY[name], y)
    assert 0.05 < expected[0] < 0.98
    np.testing.assert_allclose([found.score[0], found.adjusted[0]], expected, atol=2e-4)


def test_unrelated_clouds_and_linear_ones_have_known_values():
    x = gaussian()
    found = alignments(x, gaussian(seed=8))
    assert abs(found.rsa[0]) < 0.05
    assert 0.2 < found.procrustes[0] < 0.4  # of 601 points of width 64
    part = gaussian(width=6)
    assert imbalance(part, part[:, :2]) < 0.7 * imbalance(part[:, :2], part)
    linear = (3 * x @ MAP + 5).astype(np.float32)
    np.testing.assert_allclose(linearity(x, linear).score, 1, atol=1e-5)
    found = linearity(x, gaussian(width=300, seed=9))
    np.testing.assert_allclose(found.score, 64 / (POINTS - 1), rtol=0.03)
    np.testing.assert_allclose(found.adjusted, 0, atol=0.01)
    # constant columns, and dependent ones, are no directions
    half = np.concatenate([x, np.zeros_like(x)], axis=1)
    both = np.concatenate([x, x @ rotation(64)], axis=1).astype(np.float32)
    for wide in (half, both):
        np.testing.assert_allclose(linear_maps.column_basis(wide).rank, 64)


def test_copies_count_once_in_the_imbalance():
    x = with_copies(gaussian())
    y = with_copies(relative(x))
    np.testing.assert_allclose(imbalance(x, y), reference.information_imbalance(x, y), rtol=2e-3)
    np.testing.assert_allclose(imbalance(x, x), 2 / len(np.unique(x, axis=0)), rtol=1e-6)


def test_the_nearest_of_a_tight_group_has_rank_1():
    """Distances of 1e-4 in a cloud of width 1: below what a product of its rows can tell."""
    x = gaussian()[np.arange(POINTS) % 10] + 1e-4 * gaussian()[::-1]
    np.testing.assert_allclose(imbalance(x, x), 2 / POINTS, rtol=1e-3)


def test_replicates_are_the_values_without_their_folds():
    x, y = gaussian()[:EVEN] + 3, relative(gaussian())[:EVEN]
    found = alignments(x, y, folds=20)
    for fold in (0, 19):
        left = np.delete(np.arange(EVEN), slice(fold * 30, (fold + 1) * 30))
        np.testing.assert_allclose(found.rsa[1 + fold], reference.rsa(x[left], y[left]), rtol=5e-4)
        np.testing.assert_allclose(
            found.procrustes[1 + fold], reference.procrustes(x[left], y[left]), rtol=0.004
        )
    x, y, keep = gaussian(), bent(gaussian()), np.ones((2, POINTS), np.float32)
    keep[1, :60] = 0
    without = linearity(x[60:], y[60:])
    moved = abs(float(without.adjusted[0] - linearity(x, y).adjusted[0]))
    np.testing.assert_allclose(linearity(x, y, keep).score[1], without.score[0], atol=0.02 + moved)


def test_clouds_that_do_not_vary_have_no_similarity():
    cloud, same = gaussian(), np.ones_like(gaussian())
    assert np.isnan(alignments(cloud, same)).all()
    assert np.isnan([*linearity(same, cloud), *linearity(cloud, same)]).all()
    corners = np.eye(16, dtype=np.float32) * 0.3  # at equal distances from one another
    rsa, procrustes = alignments(corners, cloud[:16])
    assert np.isnan(rsa).all()
    assert np.isfinite(procrustes).all()
