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
from tests.sources.array_clouds import CLOUDS, HEADS, POINTS, WIDTH, Tensor, measured


def test_what_would_not_fit_is_refused_with_what_it_takes(monkeypatch):
    """Refused before it is read, or by the memory that the compiled program needs."""
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
EACH, FRAME = np.arange(POINTS), pd.DataFrame(CLOUDS[0])
FAR = CLOUDS[0] + 1e6  # from the origin: float32 loses 5e-3 of what they differ in
LENS = (None, np.ones((4, WIDTH)))


@pytest.mark.parametrize(
    ("vectors", "options", "words"),
    [
        (CLOUDS[0, 0], {}, "is needed"),
        (CLOUDS[:, :7], {}, "at least 8"),
        (CLOUDS, {"families": "twonn"}, "a quantity of the family dimension"),
        (BROKEN, {}, "layer 1: 1 of 576 numbers are not finite"),
        (CLOUDS * 1e18, {}, "the largest coordinate"),
        (CLOUDS.astype(np.float16).view("V2"), {}, "bfloat16"),
        (FAR.astype(">f8"), {}, "float32 would lose 5e-03 of the spread"),
        (np.int64(CLOUDS[0] * 10) + 2**60, {}, "of the spread of int64 numbers"),
        ((CLOUDS[0] + 0j).view(Tensor), {}, "pass their real part"),
        (FRAME.assign(c=pd.Categorical(EACH // 8)), {}, "column 'c' has type category"),
        (FRAME.assign(**{"Unnamed: 0": EACH + 7}), {}, "'Unnamed: 0' numbers the rows"),
        ([FRAME, FRAME[::-1]], {}, "have different labels"),
        (xr.DataArray(CLOUDS[0].T, dims=("embedding", "sample")), {}, "transpose"),
        (CLOUDS, {"clusters": np.arange(95)}, "clusters have shape"),
        (CLOUDS, {"clusters": np.float32(EACH // 8 + 2**25)}, "pass integers"),
        (CLOUDS, {"clusters": ["a", np.nan] * 48}, "48 of 96 labels are missing"),
        (FRAME, {"clusters": pd.Series(EACH, index=EACH + 1)}, "index differs"),
        (CLOUDS, {"token_positions": EACH}, "and clusters"),
        (CLOUDS, {"clusters": EACH, "token_positions": EACH - 8}, "must be whole"),
        (CLOUDS, {"clusters": EACH, "token_positions": EACH / 2}, "must be whole"),
        (CLOUDS, {"families": ("frequency",)}, "cannot be measured"),
        (CLOUDS, {"nulls": ("shuffled",)}, "cannot be made"),
        (CLOUDS, {"targets": EACH}, "unembedding"),
        (CLOUDS, {"num_chunks": 13}, "num_chunks is 13"),
        (CLOUDS, {"families": "logit_lens"}, "needs unembedding"),
        (CLOUDS, {"unembedding": LENS, "targets": np.full(POINTS, 4)}, "targets reach 4"),
    ],
)
def test_arrays_that_cannot_be_measured_are_refused(vectors, options, words):
    with pytest.raises(ValueError, match=words) as error:
        measure(vectors, **{"families": "similarity", "nulls": ()} | options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("keys", "options", "words"),
    [
        (HEADS, {"num_chunks": 4}, "num_chunks is 4"),
        (HEADS, {"mask": "forward"}, "mask is forward"),
        (HEADS, {"mask": np.zeros((4, 4), bool)}, "shows no key"),
        (HEADS[:, :1], {}, "repeat keys"),
        (HEADS + 1e9, {}, "layer 0, head 0: float32 would lose"),
    ],
)
def test_queries_and_keys_that_cannot_be_measured_are_refused(keys, options, words):
    with pytest.raises(ValueError, match=words):
        measure_attention(HEADS, keys, **{"mask": "causal"} | options)


def test_a_function_that_is_not_finite_or_no_array_is_refused():
    for found, words in (([CLOUDS], "returns a list; return one array"), (None, "a NoneType; ")):
        with pytest.raises(ValueError, match=words):
            make_measure(lambda *_, found=found: found, np.zeros((8, 12)))({})
    x = jnp.asarray(CLOUDS.reshape(2, 8, 12, WIDTH), jnp.float32)
    measure_x = make_measure(
        lambda x, _: x + jnp.where(x < -9, jnp.nan, 0), np.zeros((8, 12)), families="similarity"
    )
    with pytest.raises(ValueError, match="numbers are not finite"):
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
