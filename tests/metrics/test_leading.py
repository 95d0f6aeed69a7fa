import jax
import numpy as np
import pytest

from anisoscope.metrics import leading
from anisoscope.metrics.decomposition import spectrum
from anisoscope.metrics.spectrum import read_anisotropy
from tests import reference_leading as reference
from tests.metrics.clouds import EVERY, POINTS, gaussian, rotation

WINDOW = np.arange(POINTS) // 20
PLACE = np.arange(POINTS) % 20 * 7 - 3  # any numbers
FIRST = np.arange(POINTS) % 20 == 0
KEEPS = np.stack([np.ones(POINTS), np.arange(POINTS) > 100]).astype(np.float32)


@jax.jit
def shares(cloud, member, keep):
    return leading.share_between(cloud, member, keep), leading.share_by_norm(cloud, member, keep)


longest = jax.jit(leading.longest, static_argnums=1)
longest_of_each = jax.jit(leading.longest_of_each)
first_direction = jax.jit(leading.first_direction)
ratio = jax.jit(leading.norm_ratio)


@pytest.mark.parametrize("name", EVERY)
def test_agrees_with_float64(name):
    cloud = EVERY[name]
    for keep in KEEPS:
        values, kept = shares(cloud, FIRST, keep), keep > 0
        expected = [
            read(cloud[kept], FIRST[kept])
            for read in (reference.share_between, reference.share_by_norm)
        ]
        np.testing.assert_allclose(values, expected, rtol=2e-4, atol=1e-7)
    np.testing.assert_array_equal(longest(cloud, 6).sum(), 6)
    np.testing.assert_allclose(ratio(cloud), reference.norm_ratio(cloud), rtol=1e-5)


@pytest.mark.parametrize("name", ["gaussian", "mean 10 x spread", "rogue coordinate", "curve"])
def test_the_first_direction_agrees_with_float64_whoever_is_left_out(name):
    """The first direction stands apart from the second, or only its share is compared."""
    cloud = EVERY[name]
    for gone in (
        np.zeros(POINTS, bool),
        reference.longest_of_each(cloud, WINDOW),
        reference.longest(cloud, 6),
    ):
        direction = first_direction(cloud, ~gone, KEEPS, PLACE)
        expected = reference.first_direction(cloud, ~gone, KEEPS, PLACE)
        np.testing.assert_allclose(direction.share, expected[0], rtol=1e-3)
        np.testing.assert_allclose(direction.kurtosis, expected[1], rtol=5e-3)
        np.testing.assert_allclose(direction.between, expected[2], rtol=5e-3, atol=2e-4)
    whole = first_direction(cloud, np.ones(POINTS, bool), KEEPS).share[0]
    np.testing.assert_allclose(whole, read_anisotropy(spectrum(cloud))[0], rtol=1e-5)


@pytest.mark.parametrize("near", [0.98, 0.997, 1.0])
def test_a_first_direction_among_many_that_are_nearly_equal_is_the_first(near):
    """40 eigenvalues within 2 % of the first, or less: more than the iteration tells apart."""
    width = 64
    scale = np.sqrt(np.r_[1.0, np.full(39, near), np.full(width - 40, 0.1)])
    normal = gaussian(POINTS, width, seed=3)
    basis = np.linalg.svd(normal - normal.mean(0), full_matrices=False)[0]
    cloud = (basis * scale @ rotation(width, 5)).astype(np.float32)
    direction = first_direction(cloud, np.ones(POINTS, bool), KEEPS[:1])
    np.testing.assert_allclose(direction.share[0], scale[0] ** 2 / (scale**2).sum(), rtol=1e-4)
    if near < 1:
        score = basis[:, 0] / basis[:, 0].std()
        np.testing.assert_allclose(direction.kurtosis[0], (score**4).mean(), rtol=2e-2)


def test_the_longest_are_found_and_of_equal_ones_the_first():
    cloud = gaussian()
    cloud[40:43] = 9.0  # copies, in one window
    np.testing.assert_array_equal(longest(cloud, 2), reference.longest(cloud, 2))
    chosen = np.asarray(longest_of_each(cloud, WINDOW))
    np.testing.assert_array_equal(chosen, reference.longest_of_each(cloud, WINDOW))
    np.testing.assert_array_equal(np.bincount(WINDOW[chosen]), 1)
    assert chosen[40]


@pytest.mark.parametrize(("length", "r2"), [(4, 1.0), (8, 10.0)])
def test_the_share_of_equal_vectors_follows_from_their_norm_and_number(length, r2):
    """Also where it is far from 1: f r^2 / (1 + f r^2)."""
    cloud = np.random.default_rng(0).normal(size=(512 * length, 64)).astype(np.float32)
    first = np.arange(len(cloud)) % length == 0
    cloud[first] = (64 * r2) ** 0.5 * np.eye(64, dtype=np.float32)[3]
    expected = r2 / length / (1 + r2 / length)
    found = shares(cloud, first, np.ones(len(cloud), np.float32))
    np.testing.assert_allclose(found, expected, rtol=2e-2)


@pytest.mark.parametrize("length", [32])
def test_one_massive_vector_a_window_makes_the_anisotropy_that_its_norm_and_share_tell(length):
    """f r^2 / (1 + f r^2): the bell of a decoder with sinks."""
    generator = np.random.default_rng(0)
    cloud = generator.normal(size=(32 * length, 64)).astype(np.float32)
    first = np.arange(len(cloud)) % length == 0
    cloud[first] = 100 * 64**0.5 * np.eye(64, dtype=np.float32)[3]
    f = 1 / length
    expected = f * 100**2 / (1 + f * 100**2)
    between, by_norm = shares(cloud, first, np.ones(len(cloud), np.float32))
    assert by_norm == pytest.approx(expected, rel=1e-2)
    assert between == pytest.approx(expected, rel=1e-2)
    anisotropy = read_anisotropy(spectrum(cloud))[0]
    assert float(between) <= float(anisotropy) + 1e-6 <= 1 + 1e-6
    direction = first_direction(
        cloud, np.ones(len(cloud), bool), np.ones((1, len(cloud)), np.float32)
    )
    assert direction.kurtosis[0] == pytest.approx((1 - 3 * f * (1 - f)) / (f * (1 - f)), rel=2e-2)
    window = np.arange(len(cloud)) // length
    left = first_direction(
        cloud, ~np.asarray(longest_of_each(cloud, window)), np.ones((1, len(cloud)), np.float32)
    )
    assert left.share[0] < 0.03
    assert left.kurtosis[0] == pytest.approx(3, abs=0.3)


def test_a_direction_of_positions_is_between_them_and_one_of_anything_else_is_not():
    generator, place = np.random.default_rng(0), np.arange(2000) % 20
    keep = np.ones((1, 2000), np.float32)

    def between(cloud, label):
        return first_direction(np.float32(cloud), np.ones(2000, bool), keep, label).between[0]

    noise = generator.normal(size=(2000, 16))
    ramp = place[:, None] * np.eye(16)[3]
    assert between(noise + 1e4 * ramp, place) == pytest.approx(1, abs=1e-6)
    # a tenth of the variance of that direction is noise
    assert between(noise + 3 / place.std() * ramp, place) == pytest.approx(0.9, abs=0.01)
    chance = [between(generator.normal(size=(2000, 16)), place) for _ in range(60)]
    assert abs(np.mean(chance)) < 4 * np.std(chance) / 60**0.5 < 0.005
    assert np.isnan(between(noise, np.zeros(2000, int)))  # one label, or one for each point
    assert np.isnan(between(noise, np.arange(2000)))


def test_what_cannot_be_said_is_nan():
    cloud = gaussian()
    np.testing.assert_array_equal(shares(cloud, np.zeros(POINTS, bool), KEEPS[0]), 0)
    assert shares(cloud, np.ones(POINTS, bool), KEEPS[0])[0] == 0
    assert np.isnan(shares(cloud, np.ones(POINTS, bool), KEEPS[0])[1])
    assert np.isnan(shares(np.ones_like(cloud), FIRST, KEEPS[0])[0])
    assert np.isnan(shares(np.zeros_like(cloud), FIRST, KEEPS[0])[1])
    assert np.isnan(first_direction(np.ones_like(cloud), FIRST, KEEPS).share).all()
    assert np.isnan(first_direction(cloud, np.zeros(POINTS, bool), KEEPS).share).all()
    cloud[5, 3] = np.nan
    assert np.isnan(shares(cloud, FIRST, KEEPS[0])).all()
    assert np.isnan(first_direction(cloud, FIRST, KEEPS).share).all()
    assert np.isnan(ratio(cloud))
