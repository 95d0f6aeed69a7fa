"""Metrics as a user calls them: one number of one matrix."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from anisoscope import metrics
from tests import reference, reference_comparison, reference_spectrum

X = np.random.default_rng(0).standard_normal((96, 6)) * np.arange(1, 7)
Y = np.random.default_rng(1).standard_normal((96, 4)) + X[:, :4]
TWINS = {
    "anisotropy": reference_spectrum.anisotropy,
    "anisotropy_uncentred": reference_spectrum.anisotropy_uncentred,
    "participation_ratio": reference_spectrum.participation_ratio,
    "effective_rank": reference_spectrum.effective_rank,
    "rankme": reference_spectrum.rankme,
    "twonn": reference.twonn,
    "mean_cosine": reference.mean_cosine,
    "drift": lambda x: np.linalg.norm(x.mean(axis=0)),
}
PAIRS = ("cka", "cka_unbiased", "neighbourhood_overlap")
SETTINGS = {"levina_bickel": {"k": 8}, "neighbourhood_overlap": {"k": 5}}
ABOUT_MEAN = [name for name in metrics.__all__ if name not in ("anisotropy_uncentred", "rankme", "mean_cosine")]
ABOUT_MEAN = [name for name in ABOUT_MEAN if name not in ("drift", "mean_norm")]


def call(name, x):
    others = (Y,) if name in PAIRS else ()
    return getattr(metrics, name)(x, *others, **SETTINGS.get(name, {}))


@pytest.mark.parametrize("name", TWINS)
def test_the_value_is_that_of_the_float64_twin(name):
    value = call(name, X)
    assert value.shape == ()
    np.testing.assert_allclose(value, TWINS[name](X), rtol=1e-4)


def test_pairs_are_those_of_the_float64_twin():
    np.testing.assert_allclose(metrics.cka(X, Y), reference_comparison.linear_cka(X, Y), rtol=1e-4)
    np.testing.assert_allclose(metrics.cka_unbiased(X, X * 2 + 1), 1, rtol=1e-5)
    assert metrics.neighbourhood_overlap(X, X[:, ::-1], k=5) == 1
    assert metrics.levina_bickel(X, k=8) != metrics.levina_bickel(X, k=9)


QUICK = ("anisotropy", "twonn", "mean_cosine", "participation_ratio", "cka", "drift")  # one of each way to compute
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in metrics.__all__ if name not in QUICK]


@pytest.mark.parametrize("name", [*QUICK, *SLOW])
def test_it_is_a_function_of_jax(name):
    """Under vmap as one after another; and its gradient is that of a small step."""
    x = jnp.asarray(X, jnp.float32)
    both = jax.vmap(lambda one: call(name, one))(jnp.stack([x, x[::-1] ** 2]))
    np.testing.assert_allclose(both, [call(name, x), call(name, x[::-1] ** 2)], rtol=1e-4)
    if name == "neighbourhood_overlap":  # a share of points: flat between jumps
        return
    along = jnp.asarray(np.random.default_rng(2).standard_normal(X.shape), jnp.float32)
    slope = (jax.jit(jax.grad(lambda one: call(name, one)))(x) * along).sum()
    step = 3e-4  # longer ones change which points are neighbours
    ends = [float(call(name, x + sign * step * along)) for sign in (1, -1)]
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / (2 * step), rtol=0.05, atol=5e-3 * abs(ends[0]))


def test_the_gradient_of_the_uncentred_anisotropy_is_whole():
    """Where the mean matters, along every coordinate of a point: that of the float64 twin's small steps."""
    x = X + 2
    assert metrics.anisotropy_uncentred(x[:4]) == pytest.approx(
        reference_spectrum.anisotropy_uncentred(x[:4]), rel=1e-5
    )
    gradient_PD = jax.grad(metrics.anisotropy_uncentred)(jnp.asarray(x, jnp.float32))
    step = 1e-5
    for d in range(x.shape[1]):
        along = step * (np.arange(x.size).reshape(x.shape) == d)
        ends = [reference_spectrum.anisotropy_uncentred(x + sign * along) for sign in (1, -1)]
        np.testing.assert_allclose(gradient_PD[0, d], (ends[0] - ends[1]) / (2 * step), rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("name", ABOUT_MEAN)
def test_float64_far_from_the_origin_is_read_about_its_mean(name):
    np.testing.assert_allclose(call(name, X + 1e8), call(name, X), rtol=1e-3)


def test_the_offset_of_a_bug_report():
    """512 × 16, columns 1 to 15 a tenth as wide: 0.8637 with any offset."""
    x = np.random.default_rng(0).standard_normal((512, 16))
    x[:, 1:] *= 0.1
    values = [float(metrics.anisotropy(x + offset)) for offset in (0, 1e6, 1e7, 1e8)]
    np.testing.assert_allclose(values, values[0], rtol=1e-4)
    np.testing.assert_allclose(values[0], reference_spectrum.anisotropy(x), rtol=1e-5)


def test_matrices_of_other_kinds():
    single = X.astype(np.float32)
    expected = metrics.anisotropy(single)
    for same in (jnp.asarray(single), pd.DataFrame(single), np.asfortranarray(single), single.astype(">f4")):
        np.testing.assert_array_equal(metrics.anisotropy(same), expected)


@pytest.mark.parametrize(
    ("called", "words"),
    [
        (lambda: metrics.twonn(X[0]), r"x has shape \(6,\)"),
        (lambda: metrics.twonn(X[:1]), r"x has shape \(1, 6\)"),
        (lambda: metrics.twonn(X * 1j), "real numbers is needed"),
        (lambda: metrics.twonn(np.array([["a"]])), "real numbers is needed"),
        (lambda: metrics.cka(X, Y[1:]), "x has 96 points, y 95"),
        (lambda: metrics.levina_bickel(X, k=2), "k is 2; from 3 to 95"),
        (lambda: metrics.neighbourhood_overlap(X, Y, k=96), "k is 96; from 1 to 95"),
    ],
)
def test_what_is_no_matrix_is_one_line(called, words):
    with pytest.raises(ValueError, match=words) as error:
        called()
    assert "\n" not in str(error.value)
