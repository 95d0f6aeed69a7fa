import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.metrics import decomposition, eigen
from anisoscope.metrics import spectrum as spectral
from anisoscope.metrics.cloud import point_weights
from tests import reference_spectrum as reference
from tests.metrics.clouds import EVERY, SHAPE, WIDE, gaussian, rotation

NAMES = (
    "anisotropy",
    "anisotropy_uncentered",
    "participation_ratio",
    "participation_ratio_corrected",
    "effective_rank",
    "rankme_centered",
    "stable_rank",
    "isoscore",
    "isoscore_star",
)
SMALL = (48, 7)
FEW = {"more dimensions than points": WIDE, "few points": gaussian(7, 3)}

spectrum = jax.jit(decomposition.spectrum)


def readings(spectra):
    """{name: one value per replicate}."""
    values = {name: jax.vmap(getattr(spectral, f"read_{name}"))(spectra) for name in NAMES}
    values["alpha_req"], values["alpha_req_r2"] = jax.vmap(spectral.read_alpha_req)(spectra)
    return values


read = jax.jit(readings)


def measured(cloud):
    return read(spectrum(cloud))


def expected(cloud):
    values = {name: getattr(reference, name)(cloud) for name in NAMES}
    values["alpha_req"], values["alpha_req_r2"] = reference.alpha_req(cloud)
    return values


def agrees(values, cloud):
    for name, value in expected(cloud).items():
        assert values[name][0] == pytest.approx(value, rel=1e-4, nan_ok=True), name


@pytest.mark.parametrize("name", [*EVERY, *FEW])
def test_every_reading_agrees_with_float64(name):
    cloud = (EVERY | FEW)[name]
    agrees(measured(cloud), cloud)


@pytest.mark.parametrize("cloud", [EVERY["rogue coordinate"], WIDE], ids=["rogue", "wide"])
def test_a_capped_spectrum_is_that_of_the_cloud_shrunk_along_its_first_direction(cloud):
    x = np.float64(cloud) - np.float64(cloud).mean(0)
    _, size_E, direction_ED = np.linalg.svd(x, full_matrices=False)
    shrunk = x - np.outer(x @ direction_ED[0], direction_ED[0]) * (1 - size_E[1] / size_E[0])
    found = jax.tree.map(lambda x: x[0], decomposition.capped(spectrum(cloud)))
    for name in ("anisotropy", "participation_ratio", "effective_rank", "stable_rank"):
        expected = getattr(reference, name)(shrunk)
        assert getattr(spectral, f"read_{name}")(found) == pytest.approx(expected, rel=1e-4), name


@pytest.mark.parametrize("shape", [SMALL, (24, 60)])
def test_replicates_are_variances_along_the_full_clouds_directions(shape):
    cloud = gaussian(*shape) * np.arange(1, shape[1] + 1, dtype=np.float32) + 3
    spectra = jax.tree.map(np.asarray, spectrum(cloud, point_weights(4, len(cloud))))
    x = cloud.astype(np.float64)
    directions = np.linalg.svd(x - x.mean(0), full_matrices=False)[2]
    for left_out in range(4):
        kept = np.delete(
            x,
            np.arange(left_out, left_out + 1) * (shape[0] // 4) + np.arange(shape[0] // 4)[:, None],
            0,
        )
        variances = np.square((kept - kept.mean(0)) @ directions.T).mean(0)
        np.testing.assert_allclose(
            spectra.eigenvalues_E[1 + left_out], variances, rtol=1e-4, atol=1e-5 * variances[0]
        )
        squares = np.square(kept - kept.mean(0)).sum(1)
        assert spectra.kurtosis[1 + left_out] == pytest.approx(
            np.square(squares).mean() / squares.mean() ** 2, rel=1e-5
        )
        along = (directions[:-1] @ kept.mean(0)) ** 2
        np.testing.assert_allclose(
            spectra.mean_E[1 + left_out, :-1] ** 2,
            along,
            rtol=1e-3,
            atol=1e-4 * np.square(kept.mean(0)).sum(),
        )


def test_reads_a_known_spectrum():
    scale = np.array([4.0, 2.0, 1.0, 1.0, 0.0])
    orthonormal = np.linalg.qr(np.random.default_rng(0).normal(size=(100, 6)))[0]
    # centered, orthonormal
    columns = np.linalg.qr(np.c_[np.ones(100), orthonormal[:, :5]])[0][:, 1:]
    cloud = (10 * columns * scale).astype(np.float32)
    np.testing.assert_allclose(spectrum(cloud).eigenvalues_E[0], scale**2, atol=1e-4)
    values = measured(cloud)
    shares = np.array([16, 4, 1, 1]) / 22
    roots = np.array([4, 2, 1, 1]) / 8
    assert values["anisotropy"][0] == pytest.approx(16 / 22, rel=1e-5)
    assert values["anisotropy_uncentered"][0] == pytest.approx(16 / 22, rel=1e-5)
    assert values["participation_ratio"][0] == pytest.approx(22**2 / 274, rel=1e-5)
    assert values["effective_rank"][0] == pytest.approx(np.exp(-shares @ np.log(shares)), rel=1e-5)
    assert values["rankme_centered"][0] == pytest.approx(np.exp(-roots @ np.log(roots)), rel=1e-5)
    assert values["stable_rank"][0] == pytest.approx(22 / 16, rel=1e-5)
    assert values["isoscore"][0] == pytest.approx((22**2 / 274 - 1) / 4, rel=1e-5)


@pytest.mark.parametrize("ratio", [0.0, 1e-6, 1e-3, 1.0, 1000.0])
@pytest.mark.parametrize("shape", [SHAPE, WIDE.shape])
def test_uncentered_anisotropy_sees_the_mean_at_every_scale(ratio, shape):
    cloud = gaussian(*shape) * np.linspace(1, 2, shape[1], dtype=np.float32)
    cloud = (cloud - cloud.mean(0) + ratio * np.linspace(-1, 1, shape[1])).astype(np.float32)
    assert measured(cloud)["anisotropy_uncentered"][0] == pytest.approx(
        reference.anisotropy_uncentered(cloud), rel=2e-6
    )


def test_corrected_participation_ratio_is_a_mean_over_quadruples_and_asks_for_four_points():
    cloud = gaussian(7, 3, seed=3) ** 3 + 2
    exact = reference.participation_ratio_over_quadruples(cloud)
    assert reference.participation_ratio_corrected(cloud) == pytest.approx(exact, rel=1e-10)
    assert measured(cloud)["participation_ratio_corrected"][0] == pytest.approx(exact, rel=1e-4)
    assert np.isnan(measured(cloud[:3])["participation_ratio_corrected"][0])


@pytest.mark.parametrize(
    ("massive", "times", "known"), [(1, 10, True), (1, 1000, False), (2, 1e5, True)]
)
def test_the_correction_is_right_or_silent_where_one_point_holds_the_variance(
    massive, times, known
):
    cloud = gaussian()
    cloud[:massive] *= times
    ratio = measured(cloud)["participation_ratio_corrected"][0]
    assert jnp.isnan(ratio) != known
    assert not known or ratio == pytest.approx(
        reference.participation_ratio_corrected(cloud), rel=1e-4
    )


def test_the_exponent_of_a_power_law_is_read_exactly():
    values = np.arange(1, 65, dtype=np.float32) ** -1.7
    fields = dict.fromkeys(("mean_outside", "kurtosis", "width", "points"), np.float32(1))
    exact = decomposition.Spectrum(values, np.zeros(64, np.float32), **fields)
    law = jax.jit(spectral.read_alpha_req, static_argnums=(1, 2))
    assert law(exact).exponent == pytest.approx(1.7, rel=1e-5)
    assert law(exact).r2 == pytest.approx(1.0, abs=1e-6)
    assert law(exact, 10, 12).exponent == pytest.approx(1.7, rel=1e-4)
    assert np.isnan(law(exact, 10, 11).exponent)


def test_the_isoscore_of_a_covariance_is_that_of_its_cloud_and_has_a_gradient():
    cloud = gaussian(300, 6) * np.arange(1, 7, dtype=np.float32)
    covariance = jnp.asarray(np.cov(cloud.T, bias=True), jnp.float32)
    score = jax.jit(lambda step: spectral.covariance_isoscore(covariance + step * jnp.eye(6)))
    assert score(0.0) == pytest.approx(reference.isoscore(cloud), rel=1e-5)
    assert score(1e5) == pytest.approx(1.0, rel=1e-5)
    slope = (score(0.1) - score(-0.1)) / 0.2
    assert jax.jit(jax.grad(score))(0.0) == pytest.approx(float(slope), rel=1e-2)


@pytest.mark.parametrize("value", [0.0, 0.1, 1234.567])
@pytest.mark.parametrize("shape", [SMALL, WIDE.shape])
def test_equal_points_have_no_spectrum(value, shape):
    cloud = np.full(shape, value, np.float32)
    spectra = spectrum(cloud, point_weights(4, len(cloud))) if shape == SMALL else spectrum(cloud)
    assert (np.asarray(spectra.eigenvalues_E) == 0).all()
    values = dict(read(spectra))
    uncentered = values.pop("anisotropy_uncentered")
    assert all(np.isnan(reading).all() for reading in values.values())
    assert np.isnan(uncentered).all() if value == 0 else uncentered == pytest.approx(1.0)


def test_isoscore_star_is_nan_where_a_point_holds_the_scatter_and_else_right():
    massive, few = gaussian(), gaussian(7, 3, seed=2)
    massive[7] *= 1000
    value = measured(massive)
    assert value["isoscore"][0] < 1e-4
    assert np.isnan(value["isoscore_star"][0])
    assert 7 / 4 < spectrum(few).kurtosis[0] < 3  # each of seven points holds much of the scatter
    assert measured(few)["isoscore_star"][0] == pytest.approx(
        reference.isoscore_star(few), rel=1e-4
    )


@pytest.mark.parametrize(
    "name", ["curved 5 with noise", "rogue coordinate", "bfloat16", "mean 1000 spreads"]
)
def test_small_eigenvalues_keep_their_digits(name):
    cloud = EVERY[f"zoo: {name}"]
    values, exact = spectrum(cloud).eigenvalues_E[0], reference.eigenvalues(cloud)
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
    values = np.asarray(spectrum(cloud).eigenvalues_E[0])
    np.testing.assert_allclose(values[small], exact[small], rtol=1e-4, atol=2e-10 * exact[0])


def test_a_batch_computes_a_fallback_only_if_an_element_needs_it():
    calls = []

    def costly(x, y):
        jax.debug.callback(lambda: calls.append(1))
        return {"sum": x + y}

    def read(needed, x, y):
        return eigen.fall_back(needed, costly, lambda x, _: {"sum": x}, x, y)

    # an operand without a batch, in a batch of batches
    batch = jax.jit(jax.vmap(jax.vmap(read, (0, 0, None)), (0, 0, None)))
    x, y = np.arange(6.0, dtype=np.float32).reshape(2, 3), np.float32(10)
    needed = np.zeros((2, 3), bool)
    np.testing.assert_array_equal(batch(needed, x, y)["sum"], x)
    jax.effects_barrier()
    assert not calls
    needed[1, 0] = True
    np.testing.assert_array_equal(batch(needed, x, y)["sum"], np.where(needed, x + y, x))
    jax.effects_barrier()
    assert calls
