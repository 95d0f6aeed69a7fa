"""Numbers and labels of any library and type: the same ones are read."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import sparse

from anisoscope import make_measure, measure_attention
from anisoscope.metrics import convert
from anisoscope.sources import array_checks
from tests.sources.array_clouds import CLOUDS, HEADS, UNEQUAL_P, Tensor, measured

FRAME, TWELVE = pd.DataFrame(CLOUDS[0]), np.repeat(np.arange(12), 8)


def test_arrays_lists_and_tables_give_the_same_in_pieces_too():
    x, options = CLOUDS.astype(np.float32), {"families": "similarity", "num_chunks": 2}
    expected = measured([*x], **options)
    forms = [CLOUDS, jnp.asarray(x), x.view(Tensor), x.tolist(), [pd.DataFrame(n) for n in x]]
    for form in forms:
        axes = None if form is forms[-1] else "layer,point,width"
        xr.testing.assert_identical(measured(form, axes=axes, **options), expected)
    first = measured(x[0], **options)
    for form in (x[0].tolist(), list(x[0]), pd.DataFrame(x[0])):
        xr.testing.assert_identical(measured(form, **options), first)


class Quantized(Tensor):
    is_quantized, layout = True, "torch.sparse_coo"

    def dequantize(self):
        return (self * 0.5).view(Quantized)

    def to_dense(self):
        return self[:].view(Tensor)


CLOTHES = [
    (CLOUDS[0].astype(">f8"), CLOUDS[0]),
    (np.asfortranarray(CLOUDS[0]), CLOUDS[0]),
    (CLOUDS[0] > 0, (CLOUDS[0] > 0).astype(float)),
    (np.ma.masked_array(CLOUDS[0], False), CLOUDS[0]),
    (FRAME.astype("Float64"), CLOUDS[0]),
    ((FRAME * 9).astype(int).astype("Int64"), (CLOUDS[0] * 9).astype(int)),
    (FRAME.assign(flag=True), np.c_[CLOUDS[0], np.ones(96)]),
    (sparse.csr_array(CLOUDS[0]), CLOUDS[0]),
    (CLOUDS[0].view(Quantized), CLOUDS[0] / 2),
]


@pytest.mark.parametrize(("given", "means"), CLOTHES, ids=range(len(CLOTHES)))
def test_the_same_numbers_in_other_clothes_are_the_same(given, means):
    read = convert.as_float32(array_checks.read_vectors(given).layers[0], "vectors")
    np.testing.assert_array_equal(read, np.float32(means))


@pytest.mark.parametrize(
    "clusters",
    [
        TWELVE.astype(np.uint64) + 2**63,
        [int(label) + (2**63 if label % 2 else -1) for label in TWELVE],  # float64 to NumPy
        [2**60 + int(label) if label else 0.5 for label in TWELVE],
        np.array([int(label) + 2**70 for label in TWELVE], object),
        [str(label // 2) if label % 2 else int(label // 2) for label in TWELVE],
    ],
)
def test_labels_of_any_kind_are_told_apart(clusters):
    number_P = array_checks.read_vectors([*CLOUDS], clusters).cluster_P
    assert number_P.max() == 11
    assert len(np.unique(np.c_[number_P, TWELVE], axis=0)) == 12


def test_labels_of_a_data_array_follow_its_coordinate():
    """Of vectors in layers too; without a coordinate, or beside plain arrays, by position."""
    x = xr.DataArray(CLOUDS, dims=("layer", "token", "width"), coords={"token": np.arange(96) + 5})
    label = xr.DataArray(UNEQUAL_P, dims="token", coords={"token": x.token})
    turned = label[::-1]
    for vectors, given, order in (
        *((vectors, turned, 1) for vectors in (x, x[0], list(x))),
        (x, turned.drop_vars("token"), -1),
        (x.values, turned, -1),
    ):
        aligned = array_checks.align(given, vectors, "clusters")
        np.testing.assert_array_equal(aligned, UNEQUAL_P[::order])
    with pytest.raises(ValueError, match="clusters is a DataArray whose index differs from that"):
        array_checks.align(label[1:], x, "clusters")


@pytest.mark.slow
def test_values_do_not_depend_on_the_types_that_jax_has():
    layers = CLOUDS.reshape(2, 8, 12, 6)
    measure_layers = make_measure(
        lambda params, _: params, np.zeros((8, 12)), families="similarity", folds=4
    )

    def tables():
        heads = measure_attention(HEADS, HEADS[..., ::-1], mask="causal", folds=1)
        clouds = (measured(x, families="similarity") for x in ([*CLOUDS], [*jnp.asarray(CLOUDS)]))
        return *clouds, heads, measure_layers(layers)

    expected = tables()
    with jax.enable_x64(True):
        for own, other in zip(tables(), expected, strict=True):
            xr.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-6)
        with pytest.raises(ValueError, match="layer 0: float32 would lose"):
            measure_layers(layers + 1e9)
