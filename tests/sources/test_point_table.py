"""Numbers of each point are NumPy's, and say which token of which text a point is."""

import numpy as np
import pytest

from anisoscope import measure_points

TEXTS = np.random.default_rng(0).normal(size=(2, 6, 12, 4)) + 1  # layers, texts, tokens, width
MASK = np.ones((6, 12), int)
MASK[::2, 8:] = 0


def local_dimensions(cloud_PD, count=20):
    distance_PP = np.linalg.norm(cloud_PD[:, None] - cloud_PD, axis=-1)
    near_PC = np.sort(distance_PP, axis=1)[:, 1 : count + 1]
    return (count - 2) / np.log(near_PC[:, -1:] / near_PC[:, :-1]).sum(axis=1)


def test_values_of_each_token_of_each_layer():
    table = measure_points({"a": TEXTS[0], "b": TEXTS[1]}, mask=MASK)
    text_P, token_P = np.nonzero(MASK)
    np.testing.assert_array_equal(table.text, text_P)
    np.testing.assert_array_equal(table.token, token_P)
    for name, layer in zip("ab", TEXTS, strict=True):
        cloud_PD, own = layer[MASK == 1], table.sel(layer=name)
        mean_D, norm_P = cloud_PD.mean(axis=0), np.linalg.norm(cloud_PD, axis=1)
        cosine_P = cloud_PD @ mean_D / norm_P / np.linalg.norm(mean_D)
        np.testing.assert_allclose(own.norm, norm_P, rtol=1e-6)
        np.testing.assert_allclose(own.cosine_to_mean, cosine_P, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(own.local_dimension, local_dimensions(cloud_PD), rtol=1e-4)


def test_one_layer_has_no_dimension_layer_and_a_zero_vector_no_direction():
    cloud_PD = TEXTS[0].reshape(-1, 4)[:60].copy()
    cloud_PD[7] = 0
    table = measure_points(cloud_PD)
    assert table.norm.dims == ("point",)
    assert np.isnan(table.cosine_to_mean).values.nonzero()[0].tolist() == [7]
    with pytest.raises(ValueError, match="at least 8 are needed"):
        measure_points(cloud_PD[:4])
