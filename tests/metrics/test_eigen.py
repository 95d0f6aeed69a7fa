"""The decomposition behind every spectrum: small eigenvalues keep their digits. The top one alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.metrics import eigen, spectrum
from tests import reference_spectrum as reference
from tests.metrics.clouds import EVERY, POINTS, WIDTH, rotation

decompose = jax.jit(spectrum.spectrum)


@pytest.mark.parametrize(
    "name", ["curved 5 with noise", "rogue coordinate", "bfloat16", "mean 1000 spreads"]
)
def test_small_eigenvalues_keep_their_digits(name):
    cloud = EVERY[f"zoo: {name}"]
    values, exact = decompose(cloud).eigenvalues_E[0], reference.eigenvalues(cloud)
    np.testing.assert_allclose(values, exact, rtol=1e-4, atol=1e-10 * exact[0])


def rotated(eigenvalues, points, seed=0):
    """Normal points of a spectrum, in general position."""
    normal = np.random.default_rng(seed).normal(size=(points, len(eigenvalues)))
    return (
        normal * np.sqrt(eigenvalues) @ rotation(len(eigenvalues), seed).astype(np.float64)
    ).astype(np.float32)


@pytest.mark.parametrize("decay", ["power law", "exponential"])
def test_small_eigenvalues_of_a_spectrum_without_a_gap_keep_their_digits(decay):
    rank = np.arange(1, 129.0)
    cloud = rotated(rank**-3 if decay == "power law" else np.exp(-rank / 6.5), 640)
    exact = reference.eigenvalues(cloud)
    small = exact < eigen.GRADED / 3 * exact[0]
    assert 20 < small.sum() < 120
    values = np.asarray(decompose(cloud).eigenvalues_E[0])
    np.testing.assert_allclose(values[small], exact[small], rtol=1e-4, atol=2e-10 * exact[0])


def test_what_rounding_drowns_is_worth_as_little_as_is_said():
    """A quarter of the spectrum lies below RESOLUTION: the roots of RankMe see it, the other
    readings do not.
    """
    cloud = rotated(np.logspace(0, -12, WIDTH), POINTS)
    kept, whole = (
        reference.eigenvalues(cloud, resolution) for resolution in (eigen.RESOLUTION, 0.0)
    )
    assert (kept == 0).sum() == 16
    spectra = decompose(cloud)
    roots = np.sqrt(whole) / np.sqrt(whole).sum()
    assert spectrum.rankme_centered(spectra)[0] / reference.perplexity(
        roots + 1e-7
    ) - 1 == pytest.approx(-3e-4, abs=1e-4)
    assert spectrum.effective_rank(spectra)[0] == pytest.approx(
        reference.perplexity(whole / whole.sum()), rel=1e-5
    )


TOP = eigen.WIDE
RANK = np.arange(1.0, TOP + 1)
SPECTRA = {
    "1/i": 1 / RANK,
    "two large and nearly equal": np.r_[1.0, 1 - 1e-4, 0.01 / RANK[2:]],
    "one of 1e8": np.r_[1e8, np.ones(TOP - 1)],
    "flat": np.ones(TOP),
    "so small that squares vanish": 1e-25 / RANK,
}
top_share = jax.jit(eigen.top_share)


def matrix(eigenvalues):
    turn = rotation(TOP).astype(np.float64)
    return turn * eigenvalues @ turn.T


@pytest.mark.parametrize("name", SPECTRA)
def test_the_top_share_alone_is_that_of_the_decomposition(name):
    square = matrix(SPECTRA[name])
    value = top_share(jnp.asarray(square, jnp.float32))
    expected = np.linalg.eigvalsh(square)[-1] / np.trace(square)
    np.testing.assert_allclose(value, expected, rtol=2e-6)
    assert value <= 1


def test_a_top_direction_that_the_iteration_never_sees_is_found():
    """Orthogonal to every direction that the iteration starts from."""
    width = eigen.WIDE
    start = np.asarray(jax.random.normal(jax.random.key(0), (width, eigen.BLOCK)), np.float64)
    hidden = np.random.default_rng(0).normal(size=(width, 1))
    basis = np.linalg.qr(np.c_[start, hidden])[0]
    square = 0.9 * np.outer(basis[:, 0], basis[:, 0]) + np.outer(basis[:, -1], basis[:, -1])
    value = top_share(jnp.asarray(square, jnp.float32))
    assert value == pytest.approx(1 / 1.9, rel=1e-6)


def test_the_top_share_under_vmap_of_zeros_and_of_what_is_not_finite():
    squares = np.float32([matrix(SPECTRA[name]) for name in ("1/i", "flat")])
    shares = jax.jit(jax.vmap(eigen.top_share))(squares)
    np.testing.assert_allclose(shares, [1 / (1 / RANK).sum(), 1 / TOP], rtol=1e-5)
    squares[0, 3, 3] = np.nan
    assert np.isnan([top_share(squares[0]), top_share(np.zeros_like(squares[0]))]).all()


def test_slopes_of_the_top_share_of_both_orders_are_those_of_the_decomposition():
    square, direction = (jnp.asarray(matrix(x), jnp.float32) for x in (1 / RANK, np.cos(RANK)))
    along = jnp.roll(direction, 3) + jnp.roll(direction, 3).T

    def slopes(value):
        slope = jax.grad(lambda t: value(square + t * along))
        return [jax.jit(slope)(0.0), jax.jit(jax.grad(slope))(0.0)]

    whole = slopes(lambda x: jnp.linalg.eigvalsh(x)[-1] / jnp.trace(x))
    np.testing.assert_allclose(slopes(eigen.top_share), whole, rtol=1e-4)
