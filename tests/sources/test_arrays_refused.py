"""What cannot be measured of arrays, queries and keys, functions and readouts is refused in a
line.
"""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import xarray as xr

from anisoscope import make_measure, measure, measure_attention
from anisoscope.sources import arrays
from anisoscope.utils import memory
from tests.sources.array_clouds import CLOUDS, HEADS, POINTS, WIDTH, measured


def test_what_would_not_fit_is_refused_with_what_it_takes(monkeypatch):
    """Before it is read, or as the compiled program says."""
    expected = measured(CLOUDS[0], families="similarity")
    monkeypatch.setattr(memory, "available", lambda: 12_000)
    with pytest.raises(ValueError, match=r"96 points of width 6 take \d+ kB to .*num_chunks=\d+"):
        measured(CLOUDS[0], families="similarity")
    monkeypatch.setattr(memory, "available", lambda: 2_000)
    with pytest.raises(ValueError, match=r"of 2 heads at 12 positions, take \d+ kB"):
        measure_attention(HEADS, HEADS, mask="causal", folds=1)
    monkeypatch.setattr(memory, "available", lambda: 10**9)
    xr.testing.assert_identical(measured(CLOUDS[0], families="similarity"), expected)


BROKEN = CLOUDS.copy()
BROKEN[1, 3, 2] = np.nan
EACH = np.arange(POINTS)
LENS = (None, np.ones((4, WIDTH)))


@pytest.mark.parametrize(
    ("vectors", "options", "words"),
    [
        (CLOUDS[0, 0], {}, r"\(layers, points, width\) is needed"),
        (CLOUDS[:, :7], {}, "7 points; at least 8"),
        (CLOUDS, {"families": "twonn"}, "a quantity of the family dimension"),
        (BROKEN, {}, "layer 1: 1 of 576 numbers are not finite"),
        (CLOUDS * 1e18, {}, "the largest coordinate is 2e.19"),
        (CLOUDS.astype(np.float16).view("V2"), {}, "NumPy keeps no bfloat16"),
        (xr.Dataset({"a": ("p", [1.0])}), {}, "vectors are a Dataset"),
        (CLOUDS, {"clusters": np.arange(95)}, r"clusters have shape \(95,\)"),
        (
            pd.DataFrame(CLOUDS[0]),
            {"clusters": pd.Series(EACH, index=EACH + 1)},
            "a Series whose index differs",
        ),
        (CLOUDS, {"token_positions": EACH}, "and clusters"),
        (CLOUDS, {"clusters": EACH, "token_positions": EACH - 8}, "must be whole"),
        (CLOUDS, {"clusters": EACH, "token_positions": np.full(96, "a")}, "must be whole"),
        (CLOUDS, {"clusters": EACH, "token_positions": EACH / 2}, "must be whole"),
        (CLOUDS, {"families": ("frequency",)}, "'frequency' cannot be measured"),
        (CLOUDS, {"nulls": ("shuffled",)}, "'shuffled' cannot be made"),
        (CLOUDS, {"folds": 0}, "folds is 0"),
        (CLOUDS, {"seed": 2**32}, "seed is 4294967296; pass 0 to"),
        (CLOUDS, {"targets": EACH}, r"pass unembedding=\(norm, W\) too"),
        (CLOUDS, {"num_chunks": 13}, "num_chunks is 13; it must be a whole number from 1 to 12"),
        (CLOUDS, {"layer_names": ("a",)}, "a list of 2 different names"),
        (CLOUDS, {"families": "logit_lens"}, r"needs unembedding=\(norm, W\)"),
        (CLOUDS, {"unembedding": LENS, "targets": np.full(POINTS, 4)}, "targets reach 4"),
        (CLOUDS, {"unembedding": LENS, "targets": np.ones(POINTS)}, "dtype float64"),
    ],
)
def test_arrays_that_cannot_be_measured_are_refused(vectors, options, words):
    with pytest.raises(ValueError, match=words) as error:
        measure(vectors, **{"families": "similarity", "nulls": ()} | options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("keys", "options", "words"),
    [
        (HEADS, {"num_chunks": 4}, "a whole number from 1 to 3"),
        (HEADS, {"mask": "forward"}, "mask is forward; pass causal"),
        (HEADS, {"mask": np.zeros((4, 4), bool)}, "mask shows no key to any query"),
        (HEADS[:, :1], {}, "repeat keys that several heads share"),
        (HEADS + 1e9, {}, "keys of layer 0, head 0: float32 would lose"),
        (np.float32(HEADS) * np.float32(1e-41), {}, "keys: the largest coordinate"),
    ],
)
def test_queries_and_keys_that_cannot_be_measured_are_refused(keys, options, words):
    with pytest.raises(ValueError, match=words):
        measure_attention(HEADS, keys, **{"mask": "causal"} | options)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: (x * 9).astype(int) + 2**30, "layer 0: float32 would lose"),
        (lambda x: x + jnp.where(x < -9, jnp.nan, 0), "numbers are not finite"),
    ],
)
def test_functions_of_what_cannot_be_measured_are_refused(function, words):
    x = jnp.asarray(CLOUDS.reshape(2, 8, 12, WIDTH), jnp.float32)
    measure_x = make_measure(
        lambda params, tokens: function(params), np.zeros((8, 12)), families="similarity"
    )
    with pytest.raises(ValueError, match=words):
        measure_x(x)


def test_quantities_without_a_value_are_named(caplog):
    table = measured(CLOUDS, families="similarity", nulls=())
    arrays.warn_of_missing(table)
    assert "NaN" not in caplog.text
    table.drift[:] = np.nan
    arrays.warn_of_missing(table)
    assert "NaN in every layer: drift; they need more points" in caplog.text


@pytest.mark.parametrize(("clusters", "said"), [(None, True), (EACH // 8, False)])
def test_many_copies_without_clusters_are_told(caplog, clusters, said):
    copied = CLOUDS.copy()
    copied[:, 48:] = copied[:, :48]
    measure(copied, clusters, families="similarity", nulls=())
    assert ("48 of 96 points are copies of others in every layer" in caplog.text) == said
