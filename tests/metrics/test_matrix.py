"""Known answers, invariances and a float64 twin of the readings of singular values."""

import numpy as np
import pytest

from anisoscope.metrics import matrix


def values(x):
    return matrix.singular_values(np.asarray(x, np.float32))


def test_known_answers():
    rng = np.random.default_rng(0)
    orthogonal = np.linalg.qr(rng.normal(size=(12, 5)))[0]
    for read in (matrix.stable_rank, matrix.effective_rank):
        assert read(values(orthogonal)) == pytest.approx(5, rel=1e-5)
        assert read(values(np.outer(np.arange(1, 5), [1, -2, 3]))) == pytest.approx(1, abs=1e-3)
        assert np.isnan(read(values(np.zeros((3, 4)))))
        assert np.isnan(read(values(np.full((3, 4), np.nan))))
    np.testing.assert_allclose(matrix.stable_rank(np.array([2.0, 1.0, 1.0])), 1.5)


def test_neither_turn_nor_scale_nor_transposition_changes_them_and_float64_says_the_same():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(24, 9)) * rng.exponential(size=9)
    turn = np.linalg.qr(rng.normal(size=(24, 24)))[0]
    sigma = np.linalg.svd(x, compute_uv=False)
    share = sigma / sigma.sum()
    for read, expected in (
        (matrix.stable_rank, (sigma**2).sum() / sigma[0] ** 2),
        (matrix.effective_rank, np.exp(-(share * np.log(share)).sum())),
    ):
        for other in (x, x.T, turn @ x, 1e-6 * x):
            assert read(values(other)) == pytest.approx(expected, rel=1e-4)


def test_the_distance_of_two_spectra_sees_neither_turn_nor_scale():
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(2, 12, 7)) * rng.exponential(size=7)
    y[:, 0] *= 9
    p, q = (sigma / sigma.sum() for sigma in (np.linalg.svd(one, compute_uv=False) for one in (x, y)))
    turn = np.linalg.qr(rng.normal(size=(12, 12)))[0]
    for other in (x, 1e-6 * turn @ x):
        np.testing.assert_allclose(
            matrix.spectral_distance(values(other), values(y)), np.abs(p - q).sum() / 2, rtol=1e-4
        )
    np.testing.assert_allclose(matrix.spectral_distance(values(x), values(turn @ x)), 0, atol=1e-6)
    assert np.isnan(matrix.spectral_distance(values(x), values(0 * x)))
