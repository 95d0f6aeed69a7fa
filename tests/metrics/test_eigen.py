"""The decomposition behind every spectrum: small eigenvalues keep their digits."""

import jax
import numpy as np
import pytest

from anisoscope.metrics import eigen, spectrum
from tests import reference_spectrum as reference
from tests.metrics.clouds import EVERY, rotation

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
