"""What cannot be measured of arrays, queries and keys, functions and readouts is refused in a
line.
"""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import xarray as xr

from anisoscope import make_measure, measure, measure_attention
from anisoscope.sources import array_checks, arrays
from anisoscope.sources.folds import cut_chunks
from anisoscope.utils import memory
from tests.sources.array_clouds import CLOUDS, HEADS, POINTS, UNEQUAL_P, WIDTH, Tensor, measured


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


pytestmark = pytest.mark.filterwarnings("ignore:clusters. 12 of 1 to 31 points:UserWarning")
BROKEN = CLOUDS.copy()
BROKEN[1, 3, 2] = np.nan
EACH, FRAME = np.arange(POINTS), pd.DataFrame(CLOUDS[0])
FAR = CLOUDS[0] + 1e6  # from the origin: float32 loses 5e-3 of what they differ in
LENS = (None, np.ones((4, WIDTH)))
RECORDS = np.rec.fromarrays(CLOUDS[0].T[:2].reshape(2, 48, 2), names="a,b")
TEXTS = CLOUDS[0].reshape(8, 12, WIDTH)
DELETED = jnp.asarray(CLOUDS[0])
DELETED.delete()


class Meta(Tensor):
    """A tensor of PyTorch that has a shape alone."""

    is_meta = True


class Table(list):
    """A data set of Hugging Face."""

    column_names = ("text", "vector")


@pytest.mark.parametrize(
    ("vectors", "options", "words"),
    [
        (CLOUDS[0, 0], {}, r"shape \(6,\); pass \(points, width\)"),
        ([*CLOUDS[:, :7]], {}, "at least 8"),
        ([*CLOUDS], {"families": "twonn"}, "a quantity of the family dimension"),
        ([*BROKEN], {}, "layer 1: 1 of 576 numbers are not finite"),
        ([*CLOUDS * 1e18], {}, "the largest coordinate"),
        (CLOUDS[0].astype(np.float16).view("V2"), {}, "bfloat16"),
        (FAR.astype(">f8"), {}, "float32 would lose 5e-03 of the spread"),
        (np.int64(CLOUDS[0] * 10) + 2**60, {}, "of the spread of int64 numbers"),
        ((CLOUDS[0] + 0j).view(Tensor), {}, "pass their real part"),
        (FRAME.assign(c=pd.Categorical(EACH // 8)), {}, "column 'c' has type category"),
        (FRAME.assign(**{"Unnamed: 0": EACH + 7}), {}, "'Unnamed: 0' numbers the rows"),
        ([FRAME, FRAME[::-1]], {}, "have different labels"),
        (xr.DataArray(CLOUDS[0].T, dims=("embedding", "sample")), {}, "transpose"),
        ([*CLOUDS], {"clusters": np.arange(95)}, "clusters have shape"),
        ([*CLOUDS], {"clusters": np.float32(EACH // 8 + 2**25)}, "pass integers"),
        ([*CLOUDS], {"clusters": ["a", np.nan] * 48}, "48 of 96 labels are missing"),
        (FRAME, {"clusters": pd.Series(EACH, index=EACH + 1)}, "index differs"),
        ([*CLOUDS], {"token_positions": EACH}, "and clusters"),
        ([*CLOUDS], {"clusters": EACH, "token_positions": EACH - 8}, "must be whole"),
        ([*CLOUDS], {"clusters": EACH, "token_positions": EACH / 2}, "must be whole"),
        ([*CLOUDS], {"families": ("frequency",)}, "cannot be measured"),
        ([*CLOUDS], {"nulls": ("shuffled",)}, "cannot be made"),
        ([*CLOUDS], {"targets": EACH}, "unembedding"),
        ([*CLOUDS], {"num_chunks": 13}, "num_chunks is 13"),
        ([*CLOUDS], {"families": "logit_lens"}, "needs unembedding"),
        (CLOUDS, {}, r"\(2, 96, 6\) may be \(layers, points, width\) or \(texts, tokens, width\)"),
        (CLOUDS, {"axes": ("tokens", "width")}, "choose from"),
        (CLOUDS[0], {"mask": np.ones(POINTS)}, "mask is for"),
        ([TEXTS], {"mask": np.ones((8, 11))}, "8 texts and 12 tokens"),
        ([TEXTS], {"mask": np.full((8, 12), 2)}, r"the values \[2\]; pass 1 or 0"),
        ([TEXTS], {"clusters": np.arange(8)}, "leave them out"),
        ([TEXTS[:1]], {}, "there is one text"),
        (TEXTS.reshape(2, 48, 1, WIDTH), {}, "0 tokens without their first"),
        ([TEXTS, CLOUDS[0]], {}, "the same axes in each"),
        ([CLOUDS[0], CLOUDS[0, :50]], {}, "the same points in each"),
        ([[TEXTS, TEXTS]], {}, r"as generate\(\) returns"),
        ({"hidden_states": (TEXTS,), "logits": TEXTS}, {}, "pass 'hidden_states' of it alone"),
        ({"a": CLOUDS[0]}, {"layer_names": ["b"]}, "leave layer_names out"),
        ({"a": CLOUDS[0], "labels": EACH}, {}, r"layer 'labels' has shape \(96,\); pass layers"),
        ({}, {}, "an empty dict"),
        (Table(), {}, "a Table of the columns text, vector"),
        (RECORDS, {}, "the fields a, b"),
        (DELETED, {}, "deleted or donated"),
        (CLOUDS[0].view(Meta), {}, "no values"),
        (np.zeros((0, 64)), {}, r"shape \(0, 64\), which holds none"),
        (CLOUDS[0], {"clusters": [object() for _ in EACH]}, "of type object; pass numbers"),
        (CLOUDS[0], {"clusters": [{} for _ in EACH]}, "of type dict; pass numbers"),
        (CLOUDS[0], {"folds": 2.5}, "pass whole numbers"),
        (CLOUDS[0], {"seed": "1"}, "pass whole numbers"),
        (CLOUDS[0], {"families": None}, "pass a list of names"),
        (CLOUDS[0], {"unembedding": LENS[1]}, "pass the pair"),
        (CLOUDS[0], {"unembedding": (None, np.ones((4, 5)))}, "layers have width 6"),
        (CLOUDS[0], {"unembedding": ({"kind": "batch"}, LENS[1])}, "choose from layer, rms, none"),
        (CLOUDS[0], {"unembedding": ({"kind": "rms", "gain": 1}, LENS[1])}, "has 'gain'"),
        (CLOUDS[0], {"unembedding": ({"kind": "rms", "scale": [1, 2]}, LENS[1])}, r"pass \(6,\)"),
        ([*CLOUDS], {"unembedding": LENS, "targets": np.full(POINTS, 4)}, "targets reach 4"),
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
    for found, words in (
        ({"a": CLOUDS}, "returns a dict; return an array, or a list of layers"),
        ([CLOUDS, CLOUDS[0]], r"returns shapes \[\(2, 96, .*; return one shape"),
        (None, "a NoneType; "),
    ):
        with pytest.raises(ValueError, match=words):
            make_measure(lambda *_, found=found: found, np.zeros((8, 12)))({})
    x = jnp.asarray(CLOUDS.reshape(2, 8, 12, WIDTH), jnp.float32)
    measure_x = make_measure(
        lambda x, _: x + jnp.where(x < -9, jnp.nan, 0), np.zeros((8, 12)), families="similarity"
    )
    with pytest.raises(ValueError, match="numbers are not finite"):
        measure_x(x)


def test_quantities_without_a_value_or_an_interval_are_named_with_the_reason(caplog):
    table = measured([*CLOUDS], families="similarity", nulls=())
    chunks = cut_chunks(array_checks.read_vectors([*CLOUDS], UNEQUAL_P), 1, 4, 0)
    caplog.clear()  # where compiling took long, a line says so
    arrays.warn_of_missing(table, CLOUDS, chunks)
    assert not caplog.text
    table.drift[:] = np.nan
    table.mean_cosine.loc[{"statistic": ["low", "high"]}] = np.nan
    arrays.warn_of_missing(table, CLOUDS, chunks)
    assert "NaN in every layer: drift; they need more distinct points" in caplog.text
    assert "no interval in any layer: mean_cosine; " in caplog.text
    assert "folds have 21 to 31 points" in caplog.text
    arrays.warn_of_missing(table, 0 * CLOUDS + 1, chunks)
    assert "NaN in every layer: drift; all vectors are equal" in caplog.text
    arrays.warn_of_missing(table, [CLOUDS[0], CLOUDS[1] * (1 + 99 * (EACH[:, None] == 0))], chunks)
    assert "drift; a vector is massive, " in caplog.text


def test_points_that_may_be_columns_are_told(caplog):
    options = {"families": "similarity", "nulls": (), "folds": 1}
    measure(np.tile(CLOUDS[0][:12], 20), **options)
    assert "vectors have 12 points of width 120; rows are points" in caplog.text
    caplog.clear()
    measure(np.tile(CLOUDS[0][:12], 2), **options)
    assert "rows are points" not in caplog.text


@pytest.mark.parametrize(("clusters", "said"), [(None, True), (EACH // 8, False)])
def test_many_copies_without_clusters_are_told(caplog, clusters, said):
    copied = CLOUDS.copy()
    copied[:, 48:] = copied[:, :48]
    measure([*copied], clusters, families="similarity", nulls=())
    assert ("48 of 96 points are copies of others in every layer" in caplog.text) == said


def test_the_output_of_a_model_and_a_misspelled_null_model_say_what_to_pass():
    class ModelOutput(dict):
        hidden_states = None

    with pytest.raises(ValueError, match=r"output of a model; pass its \.hidden_states$"):
        measure(ModelOutput(hidden_states=[*CLOUDS]))
    with pytest.raises(ValueError, match=r"'gausian' cannot .*; did you mean gaussian\? choose"):
        measure(CLOUDS[0], nulls="gausian")
