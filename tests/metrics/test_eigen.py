"""The decomposition behind every spectrum: small eigenvalues keep their digits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.metrics import eigen, spectrum
from anisoscope.metrics.cloud import eigh
from tests import reference_spectrum as reference
from tests.metrics.clouds import EVERY, POINTS, WIDE, WIDTH, rotation

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


def test_only_finite_matrices_are_decomposed(monkeypatch):
    asked = []
    eigh_of_jax = jnp.linalg.eigh
    monkeypatch.setattr(
        jnp.linalg, "eigh", lambda x, **options: asked.append(x) or eigh_of_jax(x, **options)
    )
    value_D, vector_DD = eigh(jnp.array([[2.0, jnp.nan], [jnp.nan, 1.0]]))
    assert jnp.isfinite(asked[0]).all()
    assert jnp.isnan(value_D).all()
    assert jnp.isnan(vector_DD).all()


TAKEN_OUT = {  # spectra of a few directions far above the others, or of a long tail
    "one of 1e8": (np.r_[1e8, np.ones(511)], 1e-4),
    "three and a tail": (np.r_[1e5, 1e4, 1e3, np.arange(1, 510.0) ** -1], 1e-5),
    "nothing but the large": (np.r_[1e3, 30.0, 1.0, np.zeros(509)], 1e-4),
}
QUICK = ("three and a tail", "nothing but the large")
in_folds = jax.jit(lambda cloud, folds: spectrum.spectrum(cloud, folds), static_argnums=1)


@pytest.fixture
def wide(monkeypatch):
    """What is done of many eigenvalues, done of fewer: in seconds."""
    monkeypatch.setattr(eigen, "WIDE", 512)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in TAKEN_OUT],
)
@pytest.mark.parametrize(("points", "turned"), [(520, True), (640, False)])
def test_leading_directions_are_taken_out_and_put_back(wide, name, points, turned):
    """Along the coordinates too, where the large one has digits that the others lack."""
    eigenvalues, rtol = TAKEN_OUT[name]
    width = 512 if points == 640 else 600
    eigenvalues = np.pad(eigenvalues, (0, width - 512))
    normal = np.random.default_rng(0).normal(size=(points, width)) * np.sqrt(eigenvalues)
    turn = rotation(width) if turned and eigenvalues[0] < 1e8 else np.eye(width)
    cloud = (normal @ turn).astype(np.float32)
    x_PD = cloud - cloud.mean(0)
    x_QE = x_PD.T if points < width else x_PD
    assert 0 < jax.jit(eigen._leading)(x_QE.T @ x_QE).count < eigen.LEADING
    exact = reference.eigenvalues(cloud)
    found = in_folds(cloud, 8)
    np.testing.assert_allclose(found.eigenvalues_E[0], exact, rtol=rtol, atol=2e-10 * exact[0])
    axes = jax.jit(eigen.eigen, static_argnums=1)(x_QE, True)
    # the others are told by what lies along them
    told_ES = np.asarray(axes.vector_EE)[:, : np.count_nonzero(exact)]
    np.testing.assert_allclose(
        told_ES.T @ told_ES, np.eye(told_ES.shape[1]), atol=eigen.RESOLUTION**0.5
    )
    whole = reference.eigenvalues(cloud, 0.0)
    square_E = np.square(axes.coordinate_QE).sum(0)[: whole.size] / points
    np.testing.assert_allclose(
        square_E, whole[: square_E.size], rtol=2 * rtol, atol=eigen.RESOLUTION * whole[0]
    )


@pytest.mark.parametrize("share", [0.1, 0.4, 0.9])
def test_as_many_of_the_last_columns_as_there_are_small_ones_are_decomposed_again(wide, share):
    """A quarter of them, half, or all; the replicates with them are those of the full cloud's
    directions.
    """
    small = int(share * 512)
    cloud = rotated(np.r_[np.linspace(1, 2, 512 - small), np.geomspace(1e-5, 1e-7, small)], 640)
    exact = reference.eigenvalues(cloud)
    found = in_folds(cloud, 8).eigenvalues_E
    np.testing.assert_allclose(found[0], exact, rtol=1e-4, atol=2e-10 * exact[0])
    x_PD = cloud.astype(np.float64) - cloud.astype(np.float64).mean(0)
    directions = np.linalg.svd(x_PD, full_matrices=False)[2]
    kept = x_PD[80:] - x_PD[80:].mean(0)
    along = np.square(kept @ directions.T).mean(0)
    # whose directions mix with equals: their sum
    for some in (slice(0, 512 - small), slice(512 - small, 512)):
        assert found[1, some].sum() == pytest.approx(along[some].sum(), rel=1e-4)


def test_under_vmap_wide_clouds_are_decomposed_as_alone(wide):
    clouds = np.stack([rotated(np.r_[1e4, np.ones(511)], 520), rotated(np.ones(512), 520)])
    together = jax.jit(jax.vmap(lambda cloud: spectrum.spectrum(cloud)))(clouds).eigenvalues_E[:, 0]
    alone = [in_folds(cloud, 1).eigenvalues_E[0] for cloud in clouds]
    np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_what_is_taken_out_has_its_gradient(wide):
    cloud = rotated(np.r_[1e4, np.ones(511)], 640).astype(np.float64) + 0.1
    along = np.random.default_rng(1).normal(size=cloud.shape)
    for name in ("anisotropy", "effective_rank", "participation_ratio"):

        def read(x, name=name):
            return getattr(spectrum, name)(jax.tree.map(lambda one: one[0], spectrum.spectrum(x)))

        found = (jax.jit(jax.grad(read))(jnp.float32(cloud)) * along).sum()
        ends = [getattr(reference, name)(cloud + sign * 1e-4 * along) for sign in (1, -1)]
        assert found == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-3), name


of_points = jax.jit(
    lambda x: jnp.stack([spectrum.participation_ratio_of_points(x), spectrum.isoscore_of_points(x)])
)


@pytest.mark.parametrize("name", [*EVERY, "more dimensions than points"])
def test_what_needs_no_eigenvalues_is_read_without_them(name):
    cloud = EVERY.get(name, WIDE)
    exact = [reference.participation_ratio(cloud), reference.isoscore(cloud)]
    assert of_points(cloud) == pytest.approx(exact, rel=1e-4)
    assert np.isnan(of_points(np.full_like(cloud, 0.1))).all()
