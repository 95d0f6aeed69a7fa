"""Metrics as a user calls them: one number of one matrix."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from anisoscope import metrics
from tests import (
    reference,
    reference_comparison,
    reference_leading,
    reference_scale,
    reference_spectrum,
)

SLOW = pytest.mark.slow
X = np.random.default_rng(0).standard_normal((96, 6)) * np.arange(1, 7)
Y = np.random.default_rng(1).standard_normal((96, 4)) + X[:, :4]
TWINS = {  # the published formulas in float64, written apart from the metrics
    "alpha_req": lambda x: reference_spectrum.alpha_req(x)[0],
    "anisotropy": reference_spectrum.anisotropy,
    "anisotropy_uncentered": reference_spectrum.anisotropy_uncentered,
    "cka": reference_comparison.linear_cka,
    "cka_unbiased": reference_comparison.linear_cka_unbiased,
    "correlation_dimension": reference_scale.correlation_dimension,
    "curvature": lambda x: np.mean(
        [*reference_leading.turning_angles(x, np.zeros(96), np.arange(96)).values()]
    ),
    "drift": reference.drift,
    "effective_rank": reference_spectrum.effective_rank,
    "gride": lambda x: reference_scale.gride(reference_scale.distances(x), 4),
    "information_imbalance": reference_comparison.information_imbalance,
    "isoscore": reference_spectrum.isoscore,
    "isoscore_star": reference_spectrum.isoscore_star,
    "levina_bickel": lambda x: reference_scale.levina_bickel(reference_scale.distances(x), 8),
    "linearity": lambda x, y: reference_comparison.linearity(x, y)[0],
    "mean_cosine": reference.mean_cosine,
    "mean_norm": reference.mean_norm,
    "neighbor_overlap": lambda x, y: reference_comparison.neighbor_overlap(x, y, 5),
    "participation_ratio": reference_spectrum.participation_ratio,
    "participation_ratio_corrected": reference_spectrum.participation_ratio_corrected,
    "ph_dimension": reference_scale.ph_dimension,
    "procrustes": reference_comparison.procrustes,
    "rankme": reference_spectrum.rankme,
    "rankme_centered": reference_spectrum.rankme_centered,
    "relative_drift": lambda x: reference.drift(x) / np.sqrt(np.square(x).sum(axis=1).mean()),
    "rsa": reference_comparison.rsa,
    "stable_rank": lambda x: 1 / reference_spectrum.anisotropy(x),
    "twonn": reference.twonn,
    "twonn_microscope": lambda x: reference.twonn_microscope(x)[0],
    "twonn_mle": reference.twonn_mle,
}
FLAT = ("correlation_dimension", "information_imbalance", "neighbor_overlap")  # between jumps
FLAT += ("ph_dimension",)  # its derivative is NaN
# no derivative where singular values are equal, or a path stands still
SINGULAR = ("curvature", "linearity", "procrustes", "rsa")
PAIRS = ("cka", "cka_unbiased", "information_imbalance", "linearity", "neighbor_overlap")
PAIRS += ("procrustes", "rsa")
SETTINGS = {"gride": {"k": 4}, "levina_bickel": {"k": 8}, "neighbor_overlap": {"k": 5}}
OF_ORIGIN = ("anisotropy_uncentered", "rankme", "mean_cosine", "drift", "mean_norm")
OF_ORIGIN += ("relative_drift",)
OF_SIZE = ("drift", "mean_norm")


def call(name, x):
    others = (Y,) if name in PAIRS else ()
    return getattr(metrics, name)(x, *others, **SETTINGS.get(name, {}))


def twin(name, x):
    return TWINS[name](x, *((Y,) if name in PAIRS else ()))


@pytest.mark.parametrize("name", metrics.__all__)
def test_the_value_is_that_of_the_float64_twin(name):
    """Also away from the origin, and of other types, sizes and settings of JAX."""
    far = X + np.arange(6)
    for x in (X, far):
        value = call(name, x)
        assert value.shape == ()
        np.testing.assert_allclose(value, twin(name, x), rtol=1e-4)
    with jax.enable_x64(True):
        for same in (
            far,
            jnp.asarray(far),
            jnp.asarray(far, jnp.float32),
            jnp.asarray(far, jnp.float32)[:, ::-1],
        ):
            np.testing.assert_allclose(call(name, same), value, rtol=1e-4)
    if name not in OF_SIZE:
        for size in (1e-38, 1e-100, 1e30):
            np.testing.assert_allclose(call(name, far * size), value, rtol=1e-4)
    if name not in OF_ORIGIN:
        whole = np.rint(X * 1000).astype(np.int64)
        expected = call(name, whole)
        for offset in (10**9, 2**60 + 1):
            np.testing.assert_allclose(call(name, whole + offset), expected, rtol=1e-5)
        np.testing.assert_allclose(call(name, X + 1e8), call(name, X), rtol=1e-3)


# quick: of each way to compute, an eigendecomposition, neighbors, sums, a pair
QUICK = ("anisotropy", "twonn", "mean_cosine", "cka", "drift")


def degenerate(x):
    """Clouds at which square roots, logarithms and eigenvectors have no derivative of their own."""
    zero, constant = x.copy(), x.copy()
    zero[3], constant[:, 2] = 0, 5
    even = np.eye(*x.shape, dtype=np.float32)  # equal eigenvalues, and copies
    opposite = np.concatenate([x[:48], -x[:48]])  # of mean 0
    flat = x * np.float32([1, 1, 0, 0, 0, 0])
    return zero, constant, even, opposite, np.repeat(x[:48], 2, axis=0), flat


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=SLOW) for name in metrics.__all__],
)
def test_it_is_a_function_of_jax(name):
    """Under vmap as one after another; its gradient is that of a small step, and is finite wherever
    the value is.
    """
    x, read = np.float32(X), functools.partial(call, name)
    clouds = np.stack([x, x[::-1] ** 2, *degenerate(x)])
    if name in FLAT:
        both = jax.jit(jax.vmap(read))(clouds[:2])
    else:
        both, gradients = map(np.asarray, jax.jit(jax.vmap(jax.value_and_grad(read)))(clouds))
    np.testing.assert_allclose(both[:2], [read(one) for one in clouds[:2]], rtol=1e-4)
    if name in FLAT:
        return
    assert name in SINGULAR or np.isfinite(gradients[np.isfinite(both)]).all()
    along = np.random.default_rng(2).standard_normal(X.shape).astype(np.float32)
    step = np.float32(3e-4)  # longer ones change which points are neighbors
    ends = [float(read(x + sign * step * along)) for sign in (1, -1)]
    slope = (gradients[0] * along).sum()
    np.testing.assert_allclose(
        slope, (ends[0] - ends[1]) / (2 * step), rtol=0.05, atol=5e-3 * abs(ends[0])
    )


def test_frames_are_paired_by_their_labels():
    x, y = pd.DataFrame(X, np.arange(96) + 5), pd.DataFrame(Y, np.arange(96) + 5)
    expected = metrics.cka(X, Y)
    np.testing.assert_array_equal(metrics.cka(x, y[::-1]), expected)
    arrays = [frame.to_xarray().to_dataarray("width").T for frame in (x, y[::-1])]
    np.testing.assert_array_equal(metrics.cka(*arrays), expected)
    with pytest.raises(
        ValueError, match="y is a DataFrame whose index differs from that of the vectors"
    ):
        metrics.cka(x, pd.DataFrame(Y))


def test_what_cannot_be_told_of_a_traced_array_is_nan():
    """A CPU takes 1e-38 for zero; float32 has no such squares, nor such whole numbers."""
    for x in (X * 1e-38, X * np.inf, np.int32(X) + 2**30):
        assert np.isnan(
            jax.jit(metrics.anisotropy)(jnp.asarray(x, jnp.int32 if x.dtype.kind == "i" else None))
        )
    single = jnp.asarray(X, jnp.float32)
    assert np.isnan(jax.jit(metrics.drift)(single * 1e-20))
    np.testing.assert_allclose(
        jax.jit(metrics.anisotropy)(single * 1e-20), metrics.anisotropy(X), rtol=1e-5
    )


@pytest.mark.parametrize(
    ("called", "words"),
    [
        (lambda: metrics.twonn(X[0]), r"x has shape \(6,\)"),
        (lambda: metrics.twonn(X[:1]), r"x has shape \(1, 6\)"),
        (lambda: metrics.twonn(np.ma.masked_less(X, -15)), r"x: \d+ of 576 numbers are masked"),
        (lambda: metrics.mean_cosine(X + 1e8), "x: float32 would lose .* of the spread of float64"),
        (lambda: metrics.drift(X * 1e-38), "the largest coordinate is .*; rescale the vectors"),
        (lambda: jax.jit(metrics.drift)(jnp.asarray(X) * 1j), "x: values of type complex64"),
        (lambda: metrics.cka(X, Y[1:]), "x has 96 points and y has 95"),
        (
            lambda: metrics.ph_dimension(np.arange(3e6)[:, None]),
            "has 3,000,000 points, .* at most 40,000",
        ),
        (lambda: metrics.levina_bickel(X, k=2), "k is 2; pass 3 to 95"),
        (lambda: metrics.neighbor_overlap(X, Y, k=96), "k is 96; pass 1 to 95"),
        (lambda: metrics.neighbor_overlap(X, Y, k=3.0), "k is 3.0; pass 1 to 95"),
        (lambda: metrics.neighbor_overlap(X, Y, k=True), "k is True; pass 1 to 95"),
    ],
)
def test_what_is_no_matrix_is_one_line(called, words):
    with pytest.raises(ValueError, match=words) as error:
        called()
    assert "\n" not in str(error.value)
