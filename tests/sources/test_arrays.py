import jax.numpy as jnp
import numpy as np
import pytest

from panel.attention import Heads
from panel.config import MeasureConfig
from sources.arrays import measure_arrays
from tests import reference, reference_comparison, reference_spectrum

LAYERS, POINTS, WIDTH, GROUPS = 2, 96, 6, 4
CLOUDS = np.random.default_rng(0).normal(size=(LAYERS, POINTS, WIDTH)) * np.arange(1, WIDTH + 1)
FAMILIES = ("spectrum", "dimension", "comparison")
SETTINGS = MeasureConfig(points=POINTS, groups=GROUPS, families=FAMILIES, nulls=("gaussian",))


def measured(clouds, label_P, other=CLOUDS):
    """One program for all tests that ask for this."""
    return measure_arrays(clouds, label_P, SETTINGS, others={"last": other})


def test_arrays_go_through_the_panel_without_a_model():
    other = CLOUDS[::-1]
    found = measured(CLOUDS, None, other)
    assert found.keys() == {"measured", "gaussian"}
    values = found["measured"]
    assert values["anisotropy"].shape == (1, 1, LAYERS, 1 + GROUPS)
    for layer, cloud in enumerate(CLOUDS):
        np.testing.assert_allclose(
            values["anisotropy"][0, 0, layer, 0], reference_spectrum.anisotropy(cloud), rtol=1e-5
        )
        np.testing.assert_allclose(values["twonn"][0, 0, layer, 0], reference.twonn(cloud), rtol=1e-4)
        cka = reference_comparison.linear_cka(cloud, other[layer])
        np.testing.assert_allclose(values["cka_last"][0, 0, layer, 0], cka, rtol=1e-4)
    assert found["gaussian"].keys() < values.keys()


def test_groups_are_what_is_resampled_in_whatever_order_the_points_come():
    shuffle = np.random.default_rng(1).permutation(POINTS)
    label_P = np.repeat(np.arange(8), POINTS // 8)
    ordered = measured(CLOUDS, label_P)["measured"]
    shuffled = measured(CLOUDS[:, shuffle], label_P[shuffle])["measured"]
    np.testing.assert_allclose(shuffled["anisotropy"], ordered["anisotropy"], rtol=1e-5)
    mixed = measured(CLOUDS[:, shuffle], None)["measured"]
    np.testing.assert_allclose(mixed["anisotropy"][..., 0], ordered["anisotropy"][..., 0], rtol=1e-5)
    assert np.abs(mixed["anisotropy"][..., 1:] / ordered["anisotropy"][..., 1:] - 1).max() > 1e-4
    left = np.delete(CLOUDS[0], np.s_[: POINTS // GROUPS], axis=0)
    expected = reference_spectrum.anisotropy(left)
    np.testing.assert_allclose(ordered["anisotropy"][0, 0, 0, 1], expected, rtol=2e-2)  # to first order


def test_queries_and_keys_of_any_origin_get_the_attention_family():
    generator = np.random.default_rng(2)
    q, k = generator.normal(size=(2, 1, GROUPS, 8, 3, 5))
    heads = Heads(jnp.asarray(q), jnp.asarray(k), jnp.arange(GROUPS * 8), jnp.tril(jnp.ones((8, 8), bool)))
    settings = MeasureConfig(points=GROUPS * 8, groups=GROUPS, families=("attention",), nulls=())
    found = measure_arrays(np.zeros((1, GROUPS * 8, 2)), None, settings, heads)["measured"]
    expected = reference.attention_statistics(q[0, :, :, 1], k[0, :, :, 1], np.tril(np.ones((8, 8), bool)))
    np.testing.assert_allclose(found["score_mean"][0, 0, 0, 1, 0], expected[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found["attention_entropy"][0, 0, 0, 1, 0], expected[3], rtol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((CLOUDS[0], None, SETTINGS), r"\(layers, points, width\) is needed"),
        ((CLOUDS[:, 1:], None, SETTINGS), "95 points make no 4 groups"),
        ((CLOUDS, np.arange(95), SETTINGS), "95 group labels"),
        ((CLOUDS, np.repeat(np.arange(6), 16), SETTINGS), "a multiple of 4 labels"),
        ((CLOUDS, np.minimum(np.arange(96) // 10, 7), SETTINGS), "10 to 26 points each"),
        ((CLOUDS, None, MeasureConfig(groups=GROUPS)), "those of attention need heads"),
    ],
)
def test_arrays_that_cannot_be_measured_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words) as error:
        measure_arrays(*arguments)
    assert "\n" not in str(error.value)
