"""Numbers, labels and positions of any library and type: the same ones are read, or the line says
why not.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import sparse

from anisoscope import make_measure, measure, measure_attention
from anisoscope.metrics import convert
from anisoscope.sources import array_checks
from tests.sources.array_clouds import CLOUDS, HEADS, UNEQUAL_P, measured

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


def test_arrays_lists_and_tables_give_the_same_in_pieces_too():
    x, options = CLOUDS.astype(np.float32), {"families": "similarity", "num_chunks": 2}
    expected = measured(x, **options)
    forms = [CLOUDS, jnp.asarray(x), x.view(Tensor), x.tolist(), [pd.DataFrame(n) for n in x]]
    for form in forms:
        xr.testing.assert_identical(measured(form, **options), expected)
    first = measured(x[0], **options)
    for form in (x[0].tolist(), list(x[0]), pd.DataFrame(x[0])):
        xr.testing.assert_identical(measured(form, **options), first)


@pytest.mark.slow
def test_values_do_not_depend_on_the_types_that_jax_has():
    """Those of float64 and of its integers; a function keeps its own."""
    seen = []

    def function(params, tokens):
        seen.append(params.dtype)
        return params

    def tables():
        layers = CLOUDS.reshape(2, 8, 12, 6)
        of_function = make_measure(function, np.zeros((8, 12)), families="similarity", folds=4)(
            layers
        )
        heads = measure_attention(HEADS, HEADS[..., ::-1], mask="causal", folds=1)
        return measured(CLOUDS), measured(jnp.asarray(CLOUDS)), heads, of_function

    expected = tables()
    with jax.enable_x64(True):
        found = tables()
    for own, other in zip(expected, found, strict=True):
        xr.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-6)
    assert [str(kind) for kind in seen] == ["float32", "float64"]
    with (
        jax.enable_x64(True),
        pytest.raises(ValueError, match="layer 0: float32 would lose"),
    ):
        make_measure(function, np.zeros((8, 12)), families="similarity")(
            CLOUDS.reshape(2, 8, 12, 6) + 1e9
        )


class Quantized(Tensor):
    is_quantized, layout = True, "torch.sparse_coo"

    def dequantize(self):
        return (self * 0.5).view(Quantized)

    def to_dense(self):
        return self[:].view(Tensor)


@pytest.mark.parametrize(
    ("given", "means"),
    [
        (CLOUDS[0].astype(">f8"), CLOUDS[0]),
        (np.asfortranarray(CLOUDS[0]), CLOUDS[0]),
        (CLOUDS[0, ::-1][::-1], CLOUDS[0]),
        (CLOUDS[0].view(np.matrix), CLOUDS[0]),
        (CLOUDS[0] > 0, (CLOUDS[0] > 0).astype(float)),
        (np.ma.masked_array(CLOUDS[0], False), CLOUDS[0]),
        (FRAME.astype("Float64"), CLOUDS[0]),
        ((FRAME * 9).astype(int).astype("Int64"), (CLOUDS[0] * 9).astype(int)),
        (FRAME.assign(flag=True), np.c_[CLOUDS[0], np.ones(96)]),
        (sparse.csr_array(CLOUDS[0]), CLOUDS[0]),
        (CLOUDS[0].view(Quantized), CLOUDS[0] / 2),
    ],
    ids=range(11),
)
@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_the_same_numbers_in_other_clothes_are_the_same(given, means):
    read_ = convert.as_float32(array_checks.read_vectors(given).layers[0], "vectors")
    np.testing.assert_array_equal(read_, np.float32(means))


@pytest.mark.parametrize(
    ("vectors", "words"),
    [
        (FAR.astype(">f8"), "float32 would lose 5e-03 of the spread"),
        (FAR.view(Tensor), "float32 would lose 5e-03"),
        (np.int64(CLOUDS[0] * 10) + 2**60, "of the spread of int64 numbers"),
        (
            np.float16(np.where(CLOUDS[0] > 9, np.inf, CLOUDS[0])),
            "numbers are not finite in float32",
        ),
        ((CLOUDS[0] + 0j).view(Tensor), "pass their real part"),
        (CLOUDS[0].astype(object), "pass them as .astype"),
        (FRAME.astype("Float64").mask(FRAME < -9), "numbers are not finite"),
        (FRAME.assign(c=pd.Categorical(TWELVE)), "column 'c' has type category"),
        ([FRAME, FRAME[::-1]], "rows have different labels"),
        (
            pd.DataFrame({"embedding": list(CLOUDS[0])}),
            "has type object",
        ),
        (
            xr.DataArray(CLOUDS[0].T, dims=("embedding", "sample")),
            "dimensions embedding, sample; transpose them",
        ),
    ],
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
        pd.Series(pd.date_range("2020", periods=12, tz="UTC")[TWELVE]),
        np.array([int(label) + 2**70 for label in TWELVE], object),
        [str(label // 2) if label % 2 else int(label // 2) for label in TWELVE],
    ],
)
def test_labels_of_any_kind_are_told_apart(clusters):
    number_P = array_checks.read_vectors(CLOUDS, clusters).cluster_P
    assert number_P.max() == 11
    assert len(np.unique(np.c_[number_P, TWELVE], axis=0)) == 12


@pytest.mark.parametrize(
    ("clusters", "words"),
    [
        (np.float32(TWELVE + 2**25), "float32 and reach .*pass integers"),
        (["a", np.nan] * 48, "clusters: 48 of 96 labels are missing"),
        (
            np.where(TWELVE == 1, np.datetime64("NaT", "D"), np.datetime64("2020-01-01")),
            "8 of 96 labels are missing",
        ),
    ],
)
def test_labels_that_would_be_others_are_refused(clusters, words):
    with pytest.raises(ValueError, match=words):
        measure(CLOUDS[0], clusters)


def test_labels_of_a_data_array_follow_its_coordinate():
    """Of vectors in layers too; without a coordinate, or beside plain arrays, by position."""
    x = xr.DataArray(CLOUDS, dims=("layer", "token", "width"), coords={"token": np.arange(96) + 5})
    label = xr.DataArray(UNEQUAL_P, dims="token", coords={"token": x.token})
    for vectors in (x, x[0], list(x)):
        np.testing.assert_array_equal(
            array_checks.align(label[::-1], vectors, "clusters"), UNEQUAL_P
        )
    for vectors, given in ((x, label[::-1].drop_vars("token")), (x.values, label[::-1])):
        np.testing.assert_array_equal(
            array_checks.align(given, vectors, "clusters"), UNEQUAL_P[::-1]
        )
    with pytest.raises(
        ValueError, match="clusters is a DataArray whose index differs from that of the vectors"
    ):
        array_checks.align(label[1:], x, "clusters")
