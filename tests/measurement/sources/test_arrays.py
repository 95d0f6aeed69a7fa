"""Arrays through the panel."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import sparse, stats

from anisoscope import measure, measure_attention, measure_function
from anisoscope.measurement.intervals import summarise
from anisoscope.measurement.sources import convert, folds, pieces
from anisoscope.measurement.sources import validate as sources_given
from anisoscope.utils import memory
from tests import reference, reference_comparison, reference_leading, reference_readout, reference_spectrum

LAYERS, POINTS, WIDTH = 2, 96, 6
GENERATOR = np.random.default_rng(0)
CLOUDS = GENERATOR.normal(size=(LAYERS, POINTS, WIDTH)) * np.arange(1, WIDTH + 1)
UNEQUAL_P = np.repeat(np.arange(12), [3, 13, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8])
FAMILIES = ("spectrum", "dimension", "comparison")


def measured(vectors, clusters=None, **given):
    """One program for all tests that ask for this."""
    return measure(vectors, clusters, **{"families": FAMILIES, "folds": 4} | given)


def value(table, name, **where):
    return table[name].sel(statistic="mean", **where).values


def test_arrays_go_through_the_panel_without_a_model():
    table = measured(CLOUDS, names=("first", "second"))
    for label, cloud in zip(("first", "second"), CLOUDS, strict=True):
        anisotropy, twonn = reference_spectrum.anisotropy(cloud), reference.twonn(cloud)
        np.testing.assert_allclose(value(table, "anisotropy", layer=label), anisotropy, rtol=1e-5)
        np.testing.assert_allclose(value(table, "twonn", layer=label), twonn, rtol=1e-4)
    cka = reference_comparison.linear_cka(*CLOUDS)
    np.testing.assert_allclose(value(table, "cka_layers", layer="first", other_layer="second"), cka, rtol=1e-4)
    assert {"formula", "units", "source"} <= table.anisotropy.attrs.keys()
    assert np.isfinite(table.twonn_excess.sel(null="gaussian", statistic="low")).all()


@pytest.mark.slow
def test_the_value_is_of_all_points_whatever_their_clusters_and_order():
    shuffle = np.random.default_rng(1).permutation(POINTS)
    families = ("similarity", "comparison")
    tables = [
        measured(CLOUDS, UNEQUAL_P, families=families),
        measured(CLOUDS[:, shuffle], UNEQUAL_P[shuffle].astype(str), families=families),
        measured(CLOUDS[:, shuffle], families=families),
    ]
    assert tables[0].attrs["resampled_points"] < POINTS
    for name in ("mean_cosine", "overlap_layers", "cka_layers"):
        np.testing.assert_allclose(value(tables[1], name), value(tables[0], name), rtol=1e-5)
        np.testing.assert_allclose(value(tables[2], name), value(tables[0], name), rtol=1e-5)


def test_an_interval_of_unequal_clusters_is_that_of_their_folds():
    index_JM = folds.cut(POINTS, UNEQUAL_P, 4, 0)
    for fold in range(4):
        others = np.delete(index_JM, fold, axis=0)
        assert not np.isin(UNEQUAL_P[index_JM[fold]], UNEQUAL_P[others]).any()
    left = [np.linalg.norm(np.delete(CLOUDS[0, index_JM], fold, 0).mean(axis=(0, 1))) for fold in range(4)]
    values = np.array([[np.linalg.norm(CLOUDS[0].mean(axis=0)), *left]])
    expected = summarise(values, "jackknife")
    found = measured(CLOUDS, UNEQUAL_P, families=("similarity",)).drift.sel(layer=0)
    for end in ("mean", "low", "high"):
        np.testing.assert_allclose(found.sel(statistic=end), getattr(expected, end), rtol=1e-4)


@pytest.mark.slow
def test_positions_tell_how_much_hangs_on_the_first_tokens():
    """Of unequal clusters, and of the windows of a function: the values are those of all points."""
    place_P = np.concatenate([np.arange(size) for size in np.bincount(UNEQUAL_P)])
    cloud = CLOUDS[0] + 50 * (place_P == 0)[:, None]
    shuffle = np.random.default_rng(1).permutation(POINTS)
    table = measure(cloud[shuffle], UNEQUAL_P[shuffle], positions=place_P[shuffle], families="leading", folds=4)
    long = reference_leading.longest_of_each(cloud, UNEQUAL_P)
    np.testing.assert_allclose(value(table, "first_share"), reference_leading.share_between(cloud, place_P == 0), 1e-4)
    without = value(table, "anisotropy_without", without="longest of each window")
    np.testing.assert_allclose(without, reference_spectrum.anisotropy(cloud[~long]), rtol=1e-4)
    assert np.isfinite(table.first_share.sel(statistic="low"))
    unknown = measure(cloud, UNEQUAL_P, families="leading", folds=4)
    assert np.isnan(value(unknown, "first_share"))
    np.testing.assert_allclose(value(unknown, "anisotropy_without"), value(table, "anisotropy_without"), rtol=1e-4)
    windows = cloud.reshape(12, 8, WIDTH)
    found = measure_function(lambda params, windows: windows[None] * params, windows, families="leading", folds=4)(1.0)
    first = np.arange(POINTS) % 8 == 0
    np.testing.assert_allclose(value(found, "first_share"), reference_leading.share_between(cloud, first), rtol=1e-4)


@pytest.mark.slow
def test_one_layer_alone_has_no_dimension_of_layers_and_is_read_as_among_others():
    families = ("spectrum", "similarity")
    alone, among = (measured(x, UNEQUAL_P, families=families) for x in (CLOUDS[1], CLOUDS))
    assert "layer" not in alone.dims
    for name in ("anisotropy", "mean_cosine"):
        np.testing.assert_array_equal(alone[name], among[name].sel(layer=1))


def test_arrays_of_other_libraries_and_types_give_the_same():
    class Tensor:
        """What is asked of a PyTorch tensor."""

        def __init__(self, array):
            self.array, self.ndim, self.shape = array, array.ndim, array.shape

        def __len__(self):
            return len(self.array)

        def __getitem__(self, number):
            return Tensor(self.array[number])

        def detach(self):
            return self

        def numpy(self):
            return self.array

        float = cpu = detach

    single = CLOUDS.astype(np.float32)
    expected = measured(single, families=("spectrum",))
    for array in (CLOUDS, jnp.asarray(single), Tensor(single)):
        xr.testing.assert_identical(measured(array, families="spectrum"), expected)


def test_lists_and_tables_give_what_arrays_give_in_pieces_too():
    x = CLOUDS[0].astype(np.float32)
    expected = measured(x, families="spectrum", pieces=2)
    for given in (x.tolist(), list(x), pd.DataFrame(x)):
        xr.testing.assert_identical(measured(given, families="spectrum", pieces=2), expected)
    expected = measured(CLOUDS, families="spectrum", pieces=2)
    for given in (CLOUDS.tolist(), [pd.DataFrame(layer) for layer in CLOUDS]):
        xr.testing.assert_identical(measured(given, families="spectrum", pieces=2), expected)


def test_queries_and_keys_get_the_attention_family_with_mask_and_bias():
    layers, heads, windows, time = 2, 2, 9, 8  # a window more than folds take
    q, k = np.random.default_rng(2).normal(size=(2, layers, heads, windows, time, 5))
    causal = np.tril(np.ones((time, time), bool))
    masks = np.stack([causal, np.ones((time, time), bool)])
    bias = np.random.default_rng(3).normal(size=(heads, time, time))
    table = measure_attention(q, k, mask=masks, bias=bias, folds=4)
    assert table.sizes["block"] == layers
    assert table.attrs["resampled_windows"] == 8
    for block in range(layers):
        for head in range(heads):
            # the bias as further coordinates: row i of it times a one-hot vector of the key
            rows = np.broadcast_to(bias[head] * (5 + time) ** 0.5, (windows, time, time))
            scaled = q[block, head] * ((5 + time) / 5) ** 0.5
            hot = np.broadcast_to(np.eye(time), (windows, time, time))
            expected = reference.attention_statistics(
                np.concatenate([scaled, rows], -1), np.concatenate([k[block, head], hot], -1), masks[block]
            )
            at = {"block": block + 1, "head": head}
            np.testing.assert_allclose(value(table, "score_mean", **at), expected[0], rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(value(table, "attention_entropy", **at), expected[3], rtol=1e-4)
    assert np.isfinite(table.attention_entropy.sel(statistic="low")).all()


@pytest.mark.slow
def test_a_function_and_the_panel_are_one_program_for_all_parameters():
    traces = []
    tokens = np.random.default_rng(4).integers(0, 9, (5, 8))  # windows that no folds of equal size hold

    def function(params, tokens):
        traces.append(1)
        x = params["table"][tokens]
        return jnp.stack([x, jnp.tanh(x)])

    table_of = measure_function(function, tokens, families="similarity", folds=4)
    for seed in range(2):
        params = {"table": jax.random.normal(jax.random.key(seed), (9, WIDTH))}
        found = table_of(params)
        assert len(traces) == 1
        expected = measure(
            np.asarray(function(params, tokens)).reshape(2, -1, WIDTH),
            families="similarity",
            folds=1,
        )
        traces.pop()
        for name in ("drift", "mean_cosine"):
            np.testing.assert_allclose(value(found, name), value(expected, name), rtol=1e-5)
            assert np.isfinite(found[name].sel(statistic="low")).all()
            assert np.isnan(expected[name].sel(statistic="low")).all()
    with pytest.raises(ValueError, match="not finite"):
        table_of({"table": np.full((9, WIDTH), np.nan, np.float32)})


@pytest.mark.parametrize("there", [2_000, 12_000])
def test_what_would_not_fit_is_refused_with_what_it_takes(monkeypatch, there):
    """Before it is read, where no program could do with so little, or as the compiled program says."""
    expected = measured(CLOUDS[0], families="similarity")
    monkeypatch.setattr(memory, "available", lambda: there)
    with pytest.raises(ValueError, match=r"96 points of width 6 take \d+ kB to measure, and \d+ kB are") as error:
        measured(CLOUDS[0], families="similarity")
    assert re.search(r"name fewer families, or pass pieces=\d+, whose values", str(error.value))
    monkeypatch.setattr(memory, "available", lambda: 2_000)
    with pytest.raises(ValueError, match=r"queries and keys of width 5, of 2 heads at 12 positions, take \d+ kB"):
        measure_attention(HEADS, HEADS, mask="causal", folds=1)
    monkeypatch.setattr(memory, "available", lambda: 10**9)
    xr.testing.assert_identical(measured(CLOUDS[0], families="similarity"), expected)


def test_pieces_are_measured_by_themselves_and_averaged():
    """Of whole clusters; the interval is that of as many batches."""
    labels = np.arange(96) % 24  # no run of points is of whole clusters
    found = measure(CLOUDS, labels, families=("similarity", "leading"), folds=3, pieces=2)
    rows = folds.cut_pieces(96, labels, 2, 0)
    assert np.unique(rows).size == 96
    assert not set(labels[rows[0]]) & set(labels[rows[1]])
    each = [measure(CLOUDS[:, one], labels[one], families=("similarity", "leading"), folds=3) for one in rows]
    for name in ("mean_cosine", "drift", "norm_ratio"):
        expected = np.mean([value(one, name) for one in each], axis=0)
        np.testing.assert_allclose(value(found, name), expected, rtol=1e-6)
    widths = [one.mean_cosine.sel(statistic="high") - one.mean_cosine.sel(statistic="low") for one in (found, *each)]
    errors = [half / 2 / stats.t.ppf(0.975, freedom) for half, freedom in zip(widths, (4, 2, 2), strict=True)]
    np.testing.assert_allclose(errors[0], np.sqrt(errors[1] ** 2 + errors[2] ** 2) / 2, rtol=1e-5)
    assert found.attrs["batches"] == 2
    assert found.attrs["points"] == 96
    assert found.attrs["folds_in_words"] == "3 of 16 points in each of 2 pieces of 48 points, whole clusters, of 24"


def test_the_null_model_of_each_piece_is_a_draw_of_its_own(monkeypatch):
    """One draw for all would not average out, and the interval would be too narrow."""
    given, found = [], {}
    inner = pieces._measure
    monkeypatch.setattr(pieces, "_measure", lambda *args: (given.append(args), inner(*args))[1])
    measure(CLOUDS[0], families=("dimension",), nulls=("gaussian",), folds=1, pieces=2)
    first, second = given
    assert (first[3], second[3]) == (0, 1)
    for place in (0, 1):  # the same points at both
        found[place] = inner(*first[:3], place, *first[4:])
    assert found[0]["measured"]["twonn"] == found[1]["measured"]["twonn"]
    assert found[0]["gaussian"]["twonn"] != found[1]["gaussian"]["twonn"]


def test_heads_are_measured_in_pieces_of_windows():
    heads = {"queries": HEADS, "keys": HEADS[..., ::-1], "mask": "causal", "folds": 1}
    found = measure_attention(**heads, pieces=2)
    each = [measure_attention(**heads | {k: heads[k][:, :, [w]] for k in ("queries", "keys")}) for w in (0, 1)]
    expected = np.mean([value(one, "attention_entropy") for one in each], axis=0)
    np.testing.assert_allclose(value(found, "attention_entropy"), expected, rtol=1e-5)
    assert found.attrs["windows"] == 2  # of three


HEADS = GENERATOR.normal(size=(1, 2, 3, 4, 5))
BROKEN = CLOUDS.copy()
BROKEN[1, 3, 2] = np.nan


@pytest.mark.parametrize(
    ("vectors", "given", "words"),
    [
        (CLOUDS[0, 0], {}, r"\(layers, points, width\) is needed"),
        (CLOUDS[:, :7], {}, "7 points; at least 8"),
        (BROKEN, {}, "layer 1: 1 of 576 numbers are not finite"),
        (CLOUDS * 1e39, {}, "the largest coordinate is 2e.40"),
        (CLOUDS * 1e18, {}, "the largest coordinate is 2e.19, and values hold between 1e-16 and 1e.16; multiply"),
        (CLOUDS * 1e-21, {}, "layer 0: the largest coordinate is 2e-20"),
        (np.ma.masked_less(CLOUDS, -9), {}, "of 576 numbers are not finite"),
        (
            CLOUDS,
            {"clusters": pd.Series([None, *"ab" * 47, "b"], dtype="string")},
            "clusters: 1 of 96 labels are missing",
        ),
        (CLOUDS, {"seed": 1.5}, "seed is 1.5; it must be a whole number from 0"),
        (CLOUDS, {"seed": -1}, "seed is -1; it must be a whole number from 0"),
        (CLOUDS, {"nulls": None}, r"nulls is None; pass \(\) for no null model"),
        (CLOUDS + 1j, {}, "layer 0: numbers of type complex128 are no real ones"),
        (CLOUDS.astype(np.float16).view("V2"), {}, "NumPy keeps no bfloat16: save float32, or a .safetensors file"),
        (
            CLOUDS,
            {"clusters": np.arange(96), "positions": np.full(96, np.nan)},
            r"positions: nan is no whole number below 2\^31, as 96 of 96",
        ),
        (
            CLOUDS,
            {"clusters": np.arange(96) // 8, "positions": np.arange(96) % 8 - 8},
            "positions: -8 is below 0, the first token",
        ),
        (CLOUDS, {"clusters": np.arange(95)}, r"clusters have shape \(95,\)"),
        (CLOUDS, {"clusters": np.zeros(96)}, "of one cluster"),
        (CLOUDS, {"clusters": np.maximum(np.arange(96), 80)}, "holds 81 of 96 points"),
        (CLOUDS, {"positions": np.arange(96)}, "one for each of 96 points is needed, and clusters"),
        (CLOUDS, {"families": ("attention",)}, "'attention' cannot be measured of these arrays"),
        (CLOUDS, {"families": ("frequency",)}, "'frequency' cannot be measured of these arrays"),
        (CLOUDS[0], {"families": ("comparison",)}, "'comparison' cannot be measured"),
        (CLOUDS, {"families": "spectra"}, "'spectra' cannot be measured"),
        (CLOUDS, {"nulls": ("shuffled",)}, "'shuffled' cannot be made of arrays alone"),
        (CLOUDS, {"clusters": np.arange(96), "positions": np.full(96, "a")}, "positions are of type <U1"),
        (CLOUDS, {"clusters": np.arange(96), "positions": np.arange(96) / 2}, "0.5 is no whole number"),
        (CLOUDS, {"clusters": [None, *"ab" * 47, "b"]}, "clusters: 1 of 96 labels are missing"),
        (CLOUDS, {"clusters": np.array([np.nan, *range(95)])}, "clusters: 1 of 96 labels are missing"),
        (CLOUDS, {"clusters": np.array([1, "a"] * 48, object)}, "labels are of several kinds"),
        (CLOUDS, {"families": ()}, "families: none is named"),
        (CLOUDS, {"families": ("spectrum", "spectrum")}, "families are spectrum, spectrum; name each once"),
        (CLOUDS, {"nulls": ("gaussian", "gaussian")}, "nulls are gaussian, gaussian; name each once"),
        (CLOUDS, {"folds": 0}, "folds is 0"),
        (CLOUDS, {"folds": 2.5}, "folds is 2.5; it must be a whole number"),
        (CLOUDS, {"pieces": 0}, "pieces is 0; it must be a whole number from 1 to 12, 8 points each"),
        (CLOUDS, {"pieces": 13}, "pieces is 13; it must be a whole number from 1 to 12"),
        (
            CLOUDS,
            {"pieces": 3, "clusters": np.arange(96) // 60},
            "the largest holds 60 of 96 points; pass fewer pieces",
        ),
        (
            pd.DataFrame(CLOUDS[0]),
            {"clusters": pd.Series(np.arange(96), index=np.arange(1, 97))},
            "clusters is a Series whose index is not that of the vectors",
        ),
        (CLOUDS, {"clusters": np.arange(96) + 2.0**53}, "clusters are of type float64 and reach 9e.15"),
        (CLOUDS + 1e6, {}, "layer 0: float32 would lose 5e-03 of the spread of float64 numbers"),
        (CLOUDS, {"names": "ab"}, "names is 'ab', one word; pass a list of 2 names"),
        (xr.Dataset({"a": ("p", [1.0])}), {}, "vectors are a Dataset; pass one of its arrays: a"),
        (CLOUDS, {"names": ("a",), "families": ("spectrum",)}, "names are 1, 1 of them different, of 2 layers"),
    ],
)
def test_arrays_that_cannot_be_measured_are_refused(vectors, given, words):
    with pytest.raises(ValueError, match=words) as error:
        measure(vectors, **given)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("keys", "given", "words"),
    [
        (HEADS, {"mask": "causal", "pieces": 1.5}, "pieces is 1.5; of 3 windows"),
        (HEADS, {"mask": "causal", "pieces": 4}, "of 3 windows it must be a whole number from 1 to 3"),
        (HEADS[:, :1], {"mask": "causal"}, "repeat keys that several heads share"),
        (HEADS, {"mask": np.ones(3)}, "pass causal, bidirectional, or booleans"),
        (HEADS, {"mask": "causal", "bias": np.ones(3)}, r"bias has shape \(3,\)"),
    ],
)
def test_queries_and_keys_that_cannot_be_measured_are_refused(keys, given, words):
    with pytest.raises(ValueError, match=words) as error:
        measure_attention(HEADS, keys, **given)
    assert "\n" not in str(error.value)


def test_clusters_follow_the_labels_of_a_frame():
    """As a column that was sorted by itself comes."""
    frame, cluster = pd.DataFrame(CLOUDS[0]), pd.Series(UNEQUAL_P)
    expected = measured(frame, cluster, families="similarity")
    xr.testing.assert_identical(measured(frame, cluster[::-1], families="similarity"), expected)


FRAME, TWELVE = pd.DataFrame(CLOUDS[0]), np.repeat(np.arange(12), 8)
FAR = CLOUDS[0] + 1e6  # from the origin: float32 loses 5e-3 of what they differ in


class Tensor(np.ndarray):
    """As PyTorch has them: their own conversions, no NumPy's."""

    def detach(self):
        return self

    cpu = resolve_neg = resolve_conj = detach

    def numpy(self):
        return np.asarray(self)

    def float(self):
        return self.real.astype(np.float32).view(Tensor)


class Sparse(Tensor):
    layout = "torch.sparse_coo"

    def to_dense(self):
        return self[:].view(Tensor)


class Quantised(Tensor):
    is_quantized = True

    def dequantize(self):
        return (self * 0.5).view(Tensor)


@pytest.mark.parametrize(
    ("given", "means"),
    [
        (CLOUDS[0].astype(">f8"), CLOUDS[0]),
        (np.asfortranarray(CLOUDS[0]), CLOUDS[0]),
        (CLOUDS[0, ::-1][::-1], CLOUDS[0]),
        (np.matrix(CLOUDS[0]), CLOUDS[0]),
        (CLOUDS[0] > 0, (CLOUDS[0] > 0).astype(float)),
        (np.ma.masked_array(CLOUDS[0], False), CLOUDS[0]),
        (FRAME.astype("Float64"), CLOUDS[0]),
        ((FRAME * 9).astype(int).astype("Int64"), (CLOUDS[0] * 9).astype(int)),
        (FRAME.assign(flag=True), np.c_[CLOUDS[0], np.ones(96)]),
        (sparse.csr_array(CLOUDS[0]), CLOUDS[0]),
        (CLOUDS[0].view(Sparse), CLOUDS[0]),
        (CLOUDS[0].view(Quantised), CLOUDS[0] / 2),
    ],
    ids=range(12),
)
@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_the_same_numbers_in_other_clothes_are_the_same(given, means):
    read_ = convert.as_float32(sources_given.layers_of(convert.as_arrays(given))[0], "vectors")
    np.testing.assert_array_equal(read_, np.float32(means))


@pytest.mark.parametrize(
    ("vectors", "words"),
    [
        (FAR.astype(">f8"), "float32 would lose 5e-03 of the spread of float64 numbers"),
        (FAR.astype(np.longdouble), "float32 would lose 5e-03"),
        (FAR.view(Tensor), "float32 would lose 5e-03"),
        (np.int32(CLOUDS[0] * 10) + 2**30, "of the spread of int32 numbers"),
        (np.int64(CLOUDS[0] * 10) + 2**60, "of the spread of int64 numbers"),
        (np.float16(np.where(CLOUDS[0] > 9, np.inf, CLOUDS[0])), "numbers are not finite in float32"),
        ((CLOUDS[0] + 0j).view(Tensor), "pass their real part"),
        (CLOUDS[0].astype(object), "pass them as .astype"),
        (list(np.ma.masked_less(CLOUDS[0], -9)), "11 of 576 numbers are not finite"),
        (FRAME.astype("Float64").mask(FRAME < -9), "numbers are not finite"),
        (FRAME.assign(c=pd.Categorical(TWELVE)), "column 'c' is of type category"),
        (FRAME.assign(t=pd.Timestamp("2020")), "column 't' is of type datetime64"),
        (FRAME.astype(object), "column 0 is of type object"),
        ([FRAME, FRAME[::-1]], "rows have different labels"),
        ([[1.0] * (5 + (row == 3)) for row in range(96)], "lists of numbers must be of one length"),
        (np.zeros(96, [("a", "f4")]), r"vectors have shape \(96,\)"),
        (np.zeros((0, 6)), r"vectors have shape \(0, 6\)"),
        (FRAME.reset_index(), "column 'index' counts the rows; leave it out"),
        (pd.DataFrame({"embedding": list(CLOUDS[0])}), r"is of type object, .*; of vectors, pass list\(column\)"),
        (xr.DataArray(CLOUDS[0].T, dims=("embedding", "sample")), "dimensions embedding, sample; transpose them"),
        ({"layer 0": CLOUDS[0]}, "vectors are a dict; pass a list of arrays, and names="),
        ((row for row in CLOUDS[0]), "vectors are a generator; pass a list"),
        (CLOUDS[0].astype(np.float64) * 1e-60, "the largest coordinate is 2e-59, and values hold between"),
    ],
    ids=range(23),
)
def test_numbers_that_would_be_others_are_refused(vectors, words):
    with pytest.raises(ValueError, match=words) as error:
        measure(vectors)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "clusters",
    [
        TWELVE.astype(np.uint64) + 2**63,
        [int(label) + (2**63 if label % 2 else -1) for label in TWELVE],  # float64 to NumPy
        [2**60 + int(label) if label else 0.5 for label in TWELVE],
        pd.Categorical(TWELVE, categories=range(99)),
        pd.MultiIndex.from_arrays([TWELVE, TWELVE]),
        pd.Series(pd.date_range("2020", periods=12, tz="UTC")[TWELVE]),
        np.datetime64("2020") + TWELVE,
        pd.array(TWELVE, dtype="Int64"),
        np.array([int(label) + 2**70 for label in TWELVE], object),
    ],
    ids=range(9),
)
def test_labels_of_any_kind_are_told_apart(clusters):
    number_P, names = sources_given.labels(96, sources_given.aligned(clusters, CLOUDS, "clusters"))
    assert len(names) == 12
    assert len(np.unique(np.c_[number_P, TWELVE], axis=0)) == 12


@pytest.mark.parametrize(
    ("clusters", "words"),
    [
        (np.float32(TWELVE + 2**25), "are of type float32 and reach 3e.07; pass integers"),
        (np.float16(TWELVE + 4096), "are of type float16 and reach 4e.03; pass integers"),
        (np.array([float(label) + 2**54 for label in TWELVE], object), "reach 2e.16; pass integers"),
        (np.ma.masked_equal(TWELVE, 3), "clusters: 8 of 96 are masked"),
        (["a", np.nan] * 48, "clusters: 48 of 96 labels are missing"),
        ([1, "1"] * 48, "labels are of several kinds"),
        (np.where(TWELVE == 1, np.datetime64("NaT"), np.datetime64("2020-01-01")), "8 of 96 labels are missing"),
        (TWELVE + 1j, "clusters are of type complex128"),
    ],
    ids=range(8),
)
def test_labels_that_would_be_others_are_refused(clusters, words):
    with pytest.raises(ValueError, match=words):
        measure(CLOUDS[0], clusters)


def test_labels_of_a_data_array_follow_its_coordinate():
    """Of vectors in layers too; without a coordinate, or beside plain arrays, by position."""
    x = xr.DataArray(CLOUDS, dims=("layer", "token", "width"), coords={"token": np.arange(96) + 5})
    label = xr.DataArray(UNEQUAL_P, dims="token", coords={"token": x.token})
    for vectors in (x, x[0], list(x)):
        np.testing.assert_array_equal(sources_given.aligned(label[::-1], vectors, "clusters"), UNEQUAL_P)
    for vectors, given in ((x, label[::-1].drop_vars("token")), (x.values, label[::-1])):
        np.testing.assert_array_equal(sources_given.aligned(given, vectors, "clusters"), UNEQUAL_P[::-1])
    with pytest.raises(ValueError, match="clusters is a DataArray whose index is not that of the vectors"):
        sources_given.aligned(label[1:], x, "clusters")


def test_positions_follow_the_labels_of_a_frame_and_are_not_masked():
    place = pd.Series(np.arange(96) % 8)
    np.testing.assert_array_equal(sources_given.aligned(place[::-1], FRAME, "positions"), place)
    with pytest.raises(ValueError, match="positions: 12 of 96 are masked"):
        measure(CLOUDS[0], TWELVE, positions=np.ma.masked_equal(place.to_numpy(), 3))


def test_zeros_copies_and_ties_are_counted():
    cloud = CLOUDS[1].copy()
    cloud[4:7], cloud[40] = 0, cloud[50]
    cloud[5] = -0.0
    cloud = np.c_[cloud, np.zeros((96, 2))]
    given = {"families": "similarity", "folds": 1}
    table = measure(np.stack([np.c_[CLOUDS[0], CLOUDS[0, :, :2]], cloud]), **given)
    assert table.attrs["degenerate"] == "3 zero rows, 2 constant columns, 3 duplicates in layer 1"
    close = np.concatenate([CLOUDS[0], CLOUDS[0, :9] * (1 + 1e-7), CLOUDS[0, :1]])
    assert measure(close, **given).attrs["degenerate"] == "10 duplicates (9 but for rounding) in layer 0"
    assert measure(cloud, pieces=2, **given).attrs["degenerate"].startswith("3 zero rows, 2 constant columns, ")
    bits = np.repeat((CLOUDS[:1] > 0).astype(np.int8), 2, axis=0)
    assert "whole numbers from 0 to 1 alone (many distances tie) in layers 0, 1" in measure(bits, **given).degenerate
    assert "degenerate" not in measure(CLOUDS, **given).attrs
    unit = cloud[cloud.any(axis=1)]
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    cosine = (unit @ unit.T)[~np.eye(93, dtype=bool)].mean()  # zeros have no direction
    np.testing.assert_allclose(value(measure(cloud, **given), "mean_cosine"), cosine, rtol=1e-5)


@pytest.mark.parametrize("error", [MemoryError("Unable to allocate 3 GiB"), RuntimeError("RESOURCE_EXHAUSTED: all")])
def test_out_of_memory_says_what_helps_here(monkeypatch, error):
    def fails(*given):
        raise error

    monkeypatch.setattr(pieces, "_measure", fails)
    words = r"out of memory \(.*\) at .* points of width 6: name fewer families, or pass pieces=4,"
    with pytest.raises(ValueError, match=words):
        measure(CLOUDS[0], families="similarity", pieces=2)
    with pytest.raises(ValueError, match=r"out of memory .* pass pieces=2"):
        measure_attention(HEADS, HEADS, mask="causal")


def test_a_readout_beside_arrays_reads_every_layer_as_the_last():
    unembedding, scale = GENERATOR.normal(size=(11, WIDTH)), GENERATOR.normal(size=WIDTH)
    targets = GENERATOR.integers(-1, 11, POINTS)
    norm = {"kind": "rms", "scale": scale, "epsilon": 1e-6}
    given = {"readout": (norm, unembedding), "targets": targets, "families": "similarity", "folds": 4}
    table = measure(CLOUDS, UNEQUAL_P, **given)
    expected = reference_readout.lens(CLOUDS, targets, unembedding.T, "rms", scale, 0.0, 1e-6)
    named = {"readout_entropy": expected[0], "readout_divergence": expected[1], "readout_rank": expected[3]}
    for name, value_NP in named.items():
        np.testing.assert_allclose(value(table, name), np.nanmean(value_NP, axis=1), rtol=1e-4, atol=1e-5)
        assert (table[name].sel(statistic="low") <= table[name].sel(statistic="high")).all()
    assert "mean_cosine" in table
    alone = measure(CLOUDS, readout=(None, unembedding), families="readout", folds=2)
    assert np.isnan(value(alone, "readout_loss")).all()
    assert np.isfinite(value(alone, "readout_entropy")).all()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"families": "readout"}, r"needs readout=\(norm, W\)"),
        ({"targets": np.zeros(POINTS, int)}, r"pass readout=\(norm, W\) too"),
        ({"readout": np.eye(WIDTH)}, r"a pair \(norm, W\) is needed"),
        ({"readout": (None, np.ones((4, WIDTH + 1)))}, rf"shape \(4, {WIDTH + 1}\); \(vocabulary, {WIDTH}\) is needed"),
        ({"readout": ({"kind": "batch"}, np.ones((4, WIDTH)))}, "kind is one of layer, rms, none"),
        ({"readout": ({"kind": "rms", "scale": np.ones(3)}, np.ones((4, WIDTH)))}, r"scale has shape \(3,\)"),
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
