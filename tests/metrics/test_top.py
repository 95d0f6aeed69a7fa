"""The largest eigenvalue alone: what is certified is right, and what cannot be is decomposed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope import metrics
from anisoscope.metrics import top
from tests.metrics.clouds import rotation

WIDTH = top.WIDE
RANK = np.arange(1.0, WIDTH + 1)
SPECTRA = {  # and whether a bound is found, so that nothing is decomposed
    "1/i": (1 / RANK, True),
    "two large and nearly equal": (np.r_[1.0, 1 - 1e-4, 0.01 / RANK[2:]], True),
    "one of 1e8": (np.r_[1e8, np.ones(WIDTH - 1)], True),
    "flat": (np.ones(WIDTH), False),
    "nothing": (np.zeros(WIDTH), False),
}


def of_spectrum(eigenvalues):
    turn = rotation(WIDTH, 0).astype(np.float64)
    return turn * eigenvalues @ turn.T


@pytest.fixture
def decompositions(monkeypatch):
    """Sizes of the matrices that are decomposed."""
    sizes, eigh = [], top.eigh
    monkeypatch.setattr(top, "eigh", lambda x: sizes.append(len(x)) or eigh(x))
    return sizes


@pytest.mark.parametrize("name", SPECTRA)
def test_agrees_with_float64_and_decomposes_only_what_has_no_bound(name, decompositions):
    eigenvalues, bounded = SPECTRA[name]
    square = of_spectrum(eigenvalues)
    with jax.disable_jit():
        value = top._bounded(jnp.asarray(square, jnp.float32))
    np.testing.assert_allclose(value, np.linalg.eigvalsh(square)[-1], rtol=2e-6, atol=1e-30)
    assert (WIDTH not in decompositions) == bounded


def test_a_direction_that_the_iteration_never_sees_is_no_secret_to_the_bound(decompositions):
    start = np.linalg.qr(
        np.asarray(jax.random.normal(jax.random.key(0), (WIDTH, top.DIRECTIONS)), np.float64)
    )[0]
    kept = np.linalg.qr(np.c_[start, np.random.default_rng(0).normal(size=(WIDTH, 1))])[0]
    square = 0.9 * np.outer(kept[:, 0], kept[:, 0]) + np.outer(kept[:, -1], kept[:, -1])
    with jax.disable_jit():
        value = top._bounded(jnp.asarray(square, jnp.float32))
    assert value == pytest.approx(1.0, rel=1e-6)


def test_under_vmap_and_with_values_that_are_not_finite():
    squares = np.stack([of_spectrum(SPECTRA[name][0]) for name in ("1/i", "flat")]).astype(
        np.float32
    )
    np.testing.assert_allclose(jax.vmap(top.top_eigenvalue)(squares), 1.0, rtol=1e-5)
    squares[0, 3, 3] = np.nan
    assert jnp.isnan(top.top_eigenvalue(jnp.asarray(squares[0])))


def test_slopes_of_both_orders_are_those_of_the_decomposition():
    square, direction = (
        jnp.asarray(of_spectrum(one), jnp.float32) for one in (1 / RANK, np.cos(RANK))
    )

    def along(value):
        slope = jax.grad(
            lambda t: value(square + t * jnp.roll(direction, 3) + t * jnp.roll(direction, 3).T)
        )
        return [slope(0.0), jax.grad(slope)(0.0)]

    np.testing.assert_allclose(
        along(top.top_eigenvalue), along(lambda x: jnp.linalg.eigvalsh(x)[-1]), rtol=1e-4
    )


def test_anisotropy_of_a_wide_cloud_is_that_of_its_spectrum():
    x = (np.random.default_rng(0).normal(size=(600, WIDTH)) / RANK**0.5).astype(np.float32)
    eigenvalues = np.linalg.eigvalsh(np.cov(x.T.astype(np.float64)))
    assert metrics.anisotropy(x) == pytest.approx(eigenvalues[-1] / eigenvalues.sum(), rel=2e-6)


def test_of_values_whose_squares_vanish_nothing_is_certified(decompositions):
    square = 1e-25 * of_spectrum(1 / RANK)
    with jax.disable_jit():
        value = top._bounded(jnp.asarray(square, jnp.float32))
    assert value == pytest.approx(1e-25, rel=1e-5)


def test_in_float64_too():
    with jax.enable_x64(True):
        square = jnp.asarray(of_spectrum(1 / RANK))
        assert top.top_eigenvalue(square) == pytest.approx(1.0, rel=1e-6)
        assert top.top_eigenvalue(square.astype(jnp.float32)) == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_a_share_is_at_most_one(seed):
    """Of a line rounding puts it above for some."""
    line = np.random.default_rng(seed).normal(size=(600, 1)) * np.random.default_rng(
        seed + 1
    ).normal(size=WIDTH)
    assert 1 - 1e-6 < metrics.anisotropy(line) <= 1
