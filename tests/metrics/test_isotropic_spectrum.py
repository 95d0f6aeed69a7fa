"""Drawn eigenvalues are those of isotropic Gaussian clouds."""

import jax
import numpy as np
import pytest

from anisoscope.metrics import spectrum
from anisoscope.metrics.isotropic_spectrum import isotropic_spectra
from tests import reference_spectrum as reference

SHAPES = [(60, 16), (16, 60), (9, 3), (24, 24), (8, 1)]
NAMES = ("anisotropy", "anisotropy_uncentered", "participation_ratio", "effective_rank", "isoscore")


def readings(points, width, name):
    return np.asarray(jax.vmap(getattr(spectrum, name))(isotropic_spectra(points, width)))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_participation_ratio_has_the_exact_mean_of_wishart_matrices(shape):
    """E tr W^2 = n D (n + D + 1) and E (tr W)^2 = n D (n D + 2); the ratio does not depend on tr W."""
    n, width = shape[0] - 1, shape[1]
    inverse_S = 1 / readings(*shape, "participation_ratio")
    error = inverse_S.std() / len(inverse_S) ** 0.5
    assert abs(inverse_S.mean() - (n + width + 1) / (n * width + 2)) <= 4 * error + 1e-6


@pytest.mark.parametrize("shape", SHAPES[:4], ids=str)
def test_values_are_on_average_as_of_clouds(shape):
    generator = np.random.default_rng(1)
    clouds = generator.normal(size=(60, *shape))
    for name in NAMES:
        found, expected = (
            readings(*shape, name),
            np.array([getattr(reference, name)(x) for x in clouds]),
        )
        error = np.hypot(*(x.std() / len(x) ** 0.5 for x in (found, expected)))
        assert abs(found.mean() - expected.mean()) < 4 * error, name
        assert found.std() == pytest.approx(expected.std(), rel=0.4), name


def test_points_span_one_direction_less_than_there_are_points():
    spectra = isotropic_spectra(40, 300)
    assert spectra.eigenvalues_E.shape[1] == 40
    assert (spectra.eigenvalues_E[:, :-1] > 0).all()
    assert (spectra.eigenvalues_E[:, -1] == 0).all()
