"""What cannot be measured of arrays, queries and keys, and readouts is refused in a line that says
what helps.
"""

import re

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import xarray as xr

from anisoscope import measure, measure_attention, measure_function
from anisoscope.sources import array_chunks
from anisoscope.utils import memory
from tests.sources.clouds import CLOUDS, HEADS, POINTS, WIDTH, measured


def test_what_would_not_fit_is_refused_with_what_it_takes(monkeypatch):
    """Before it is read, where no program could do with so little, or as the compiled program
    says.
    """
    expected = measured(CLOUDS[0], families="similarity")
    monkeypatch.setattr(memory, "available", lambda: 12_000)
    with pytest.raises(
        ValueError, match=r"96 points of width 6 take \d+ kB to measure, and \d+ kB are"
    ) as error:
        measured(CLOUDS[0], families="similarity")
    assert re.search(r"name fewer families, or pass pieces=\d+, whose values", str(error.value))
    monkeypatch.setattr(memory, "available", lambda: 2_000)
    with pytest.raises(
        ValueError, match=r"queries and keys of width 5, of 2 heads at 12 positions, take \d+ kB"
    ):
        measure_attention(HEADS, HEADS, mask="causal", folds=1)
    monkeypatch.setattr(memory, "available", lambda: 10**9)
    xr.testing.assert_identical(measured(CLOUDS[0], families="similarity"), expected)


BROKEN = CLOUDS.copy()
BROKEN[1, 3, 2] = np.nan


@pytest.mark.parametrize(
    ("vectors", "given", "words"),
    [
        (CLOUDS[0, 0], {}, r"\(layers, points, width\) is needed"),
        (CLOUDS[:, :7], {}, "7 points; at least 8"),
        (BROKEN, {}, "layer 1: 1 of 576 numbers are not finite"),
        (
            CLOUDS * 1e18,
            {},
            "the largest coordinate is 2e.19, and values hold between 1e-16 and 1e.16; multiply",
        ),
        (CLOUDS * 1e-21, {}, "layer 0: the largest coordinate is 2e-20"),
        (
            CLOUDS,
            {"clusters": pd.Series([None, *"ab" * 47, "b"], dtype="string")},
            "clusters: 1 of 96 labels are missing",
        ),
        (
            CLOUDS.astype(np.float16).view("V2"),
            {},
            "NumPy keeps no bfloat16: save float32, or a .safetensors file",
        ),
        (
            CLOUDS,
            {"clusters": np.arange(96) // 8, "positions": np.arange(96) % 8 - 8},
            "positions: -8 is below 0, the first token",
        ),
        (CLOUDS, {"clusters": np.arange(95)}, r"clusters have shape \(95,\)"),
        (CLOUDS, {"positions": np.arange(96)}, "one for each of 96 points is needed, and clusters"),
        (CLOUDS, {"families": ("frequency",)}, "'frequency' cannot be measured of these arrays"),
        (CLOUDS, {"nulls": ("shuffled",)}, "'shuffled' cannot be made of arrays alone"),
        (
            CLOUDS,
            {"clusters": np.arange(96), "positions": np.full(96, "a")},
            "positions are of type <U1",
        ),
        (
            CLOUDS,
            {"clusters": np.arange(96), "positions": np.arange(96) / 2},
            r"positions: 0.5 is no whole number below 2\^31, as 48 of 96",
        ),
        (
            CLOUDS,
            {"pieces": 13},
            "pieces is 13; it must be a whole number from 1 to 12, 8 points each",
        ),
        (
            pd.DataFrame(CLOUDS[0]),
            {"clusters": pd.Series(np.arange(96), index=np.arange(1, 97))},
            "clusters is a Series whose index is not that of the vectors",
        ),
        (xr.Dataset({"a": ("p", [1.0])}), {}, "vectors are a Dataset; pass one of its arrays: a"),
        (
            CLOUDS,
            {"names": ("a",), "families": ("spectrum",)},
            "a list of 2 different names",
        ),
    ],
)
def test_arrays_that_cannot_be_measured_are_refused(vectors, given, words):
    with pytest.raises(ValueError, match=words) as error:
        measure(vectors, **given)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("keys", "given", "words"),
    [
        (
            HEADS,
            {"mask": "causal", "pieces": 4},
            "of 3 windows it must be a whole number from 1 to 3",
        ),
        (HEADS[:, :1], {"mask": "causal"}, "repeat keys that several heads share"),
        (
            HEADS + 1e9,
            {"mask": "causal"},
            "keys of layer 0, head 0: float32 would lose .* of the spread of float64",
        ),
        (
            HEADS * 1e25,
            {"mask": "causal"},
            "keys of layer 0, head 0: the largest coordinate is .*; multiply",
        ),
        (
            np.float32(HEADS) * np.float32(1e-41),
            {"mask": "causal"},
            "keys: the largest coordinate is .*; multiply",
        ),
    ],
)
def test_queries_and_keys_that_cannot_be_measured_are_refused(keys, given, words):
    with pytest.raises(ValueError, match=words) as error:
        measure_attention(HEADS, keys, **given)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (
            lambda x: (x * 9).astype(int) + 2**30,
            "vectors of layer 0: float32 would lose their spread",
        ),
        (lambda x: x + jnp.where(x < -9, jnp.nan, 0), "vectors that are not finite"),
    ],
)
def test_functions_of_what_cannot_be_measured_are_refused(function, words):
    x = jnp.asarray(CLOUDS.reshape(2, 8, 12, WIDTH), jnp.float32)
    table_of = measure_function(
        lambda params, tokens: function(params), np.zeros((8, 12)), families="similarity"
    )
    with pytest.raises(ValueError, match=words) as error:
        table_of(x)
    assert "\n" not in str(error.value)


def test_out_of_memory_says_what_helps_here(monkeypatch):
    def fails(*given):
        raise RuntimeError("RESOURCE_EXHAUSTED: all")

    monkeypatch.setattr(array_chunks, "run_panel", fails)
    words = r"out of memory \(.*\) at .* points of width 6: name fewer families, or pass pieces=4,"
    with pytest.raises(ValueError, match=words):
        measure(CLOUDS[0], families="similarity", pieces=2)
    with pytest.raises(ValueError, match=r"out of memory .* pass pieces=2"):
        measure_attention(HEADS, HEADS, mask="causal")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"families": "readout"}, r"needs readout=\(norm, W\)"),
        (
            {"readout": (None, np.ones((4, WIDTH + 1)))},
            rf"shape \(4, {WIDTH + 1}\); \(vocabulary, {WIDTH}\) is needed",
        ),
        (
            {"readout": (None, np.ones((4, WIDTH))), "targets": np.full(POINTS, 4)},
            "targets reach 4; readout's W has 4 tok",
        ),
        (
            {"readout": (None, np.ones((4, WIDTH))), "targets": np.ones(POINTS)},
            "dtype float64; a whole number for each",
        ),
    ],
)
def test_what_is_no_readout_is_told_in_a_line(given, words):
    with pytest.raises(ValueError, match=words) as told:
        measure(CLOUDS, **given)
    assert "\n" not in str(told.value)
