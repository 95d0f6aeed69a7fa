"""What users have in their hands: hidden states with padding, dicts, layers of several widths."""

import os
import signal
import warnings

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import xarray as xr

from anisoscope import measure
from anisoscope.sources import array_checks
from tests import reference, reference_comparison
from tests.sources.array_clouds import Tensor

QUICK = {"families": "similarity", "nulls": (), "folds": 4}
LENGTHS = np.array([12, 5, 9, 2, 12, 7, 8, 11])
MASK = np.arange(12) < LENGTHS[:, None]
STATES = np.random.default_rng(0).normal(size=(2, 8, 12, 4)) + np.arange(12)[:, None] / 9
LEFT = np.stack(
    [[np.roll(x, 12 - n, axis=0) for x, n in zip(y, LENGTHS, strict=True)] for y in STATES]
)
READ = array_checks.read_vectors


@pytest.mark.parametrize(
    ("x", "options"),
    [
        ((STATES[0], STATES[1]), {"mask": MASK}),
        (STATES, {"mask": MASK.astype(int).tolist()}),
        ([*jnp.asarray(STATES)], {"mask": jnp.asarray(MASK)}),
        ([*STATES.view(Tensor)], {"mask": MASK.view(np.int8).view(Tensor)}),
        ({"a": LEFT[0], "b": LEFT[1]}, {"mask": MASK[:, ::-1]}),
        (xr.DataArray(STATES, dims=("layer", "batch", "seq", "hidden_size")), {"mask": MASK}),
        (STATES[0], {"mask": MASK}),
        (STATES[0], {"mask": MASK, "axes": ("text", "token", "width")}),
        (xr.DataArray(STATES[0], dims=("sentence", "token", "width")), {"mask": MASK}),
    ],
)
def test_texts_are_clusters_without_their_padding(x, options):
    vectors = READ(x, **options)
    for layer, expected in zip(vectors.layers, STATES, strict=False):
        np.testing.assert_allclose(np.asarray(layer), expected[MASK], rtol=1e-6)
    np.testing.assert_array_equal(vectors.cluster_P, np.nonzero(MASK)[0])
    np.testing.assert_array_equal(vectors.time_P, np.nonzero(MASK)[1])
    rest = vectors.without_first_token()
    np.testing.assert_allclose(np.asarray(rest.layers[0]), STATES[0][:, 1:][MASK[:, 1:]], rtol=1e-6)
    assert rest.time_P.min() == 1


def test_hidden_states_are_measured_with_and_without_the_first_token():
    x, y = (np.where(MASK[..., None], state, np.inf) for state in STATES)  # padding is never read
    table = measure((x, y), mask=MASK, **QUICK)
    assert table.attrs["points_of"] == "all 66, without_first_token 58"
    for positions, first in (("all", 0), ("without_first_token", 1)):
        for layer in range(2):
            cloud = STATES[layer, :, first:][MASK[:, first:]]
            found = table.drift.sel(statistic="mean", positions=positions, layer=layer)
            np.testing.assert_allclose(found, reference.drift(cloud), rtol=1e-4)


def test_layers_of_several_widths_are_measured_alone_and_compared():
    """Under the names of their dict; a comparison needs no common width."""
    x, y = STATES[0].reshape(96, 4), STATES[1, ..., :3].reshape(96, 3)
    table = measure({"x": x, "y": y}, families=("similarity", "comparison"), nulls=(), folds=1)
    mean = table.sel(statistic="mean")
    np.testing.assert_allclose(mean.drift, [reference.drift(z) for z in (x, y)], rtol=1e-4)
    expected = reference_comparison.linear_cka(x, y)
    found = mean.cka_layers.sel(layer="x", other_layer="y")
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert table.attrs["width"] == "3 to 4"
    assert "degenerate" not in table.attrs  # columns that fill up a layer are not its own


class Cache:
    """Activations by name, as TransformerLens keeps them."""

    def __init__(self, arrays):
        self.arrays = arrays
        self.keys, self.items = arrays.keys, arrays.items

    def __getitem__(self, name):
        return self.arrays[name]


@pytest.mark.parametrize(
    ("x", "shape", "layers"),
    [
        (Cache({"a": STATES[0, 0], "b": STATES[1, 0]}), (12, 4), 2),
        (memoryview(STATES[0, 0]), (12, 4), 1),
        (pd.Series([*STATES[0, 0]] * 2), (24, 4), 1),
        (np.array([*map(list, STATES[0, 0]), None], object)[:-1], (12, 4), 1),
        (xr.DataArray(STATES[0], dims=("layer", "token", "width")), (12, 4), 8),
        (xr.DataArray(STATES[0], dims=("hook_points", "points", "width")), (12, 4), 8),
    ],
)
def test_rows_of_vectors_and_named_axes_are_read(x, shape, layers):
    vectors = READ(x)
    assert (vectors.shape, len(vectors.layers), vectors.texts) == (shape, layers, None)


def test_labels_in_the_order_of_another_machine_and_targets_of_texts():
    label_P = np.arange(24) // 4
    x = STATES[0, :2].reshape(24, 4)
    for kind in (">i4", ">f8", ">U3"):
        np.testing.assert_array_equal(READ(x, label_P.astype(kind)).cluster_P, label_P)
    lens = {"unembedding": (None, np.eye(4)), "targets": np.where(MASK, np.arange(12) % 4, -1)}
    table = measure([*STATES], mask=MASK, nulls=(), folds=1, families="logit_lens", **lens)
    log_p = STATES[1] - np.log(np.exp(STATES[1]).sum(axis=-1, keepdims=True))
    own = np.take_along_axis(log_p, (np.arange(12) % 4)[None, :, None], axis=-1)[..., 0]
    found = table.logit_lens_loss.sel(statistic="mean", layer=1).values * -np.log(2)
    np.testing.assert_allclose(found, [own[MASK].mean(), own[:, 1:][MASK[:, 1:]].mean()], rtol=1e-4)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_process_forked_after_jax_started_says_so():
    jnp.zeros(2).block_until_ready()
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python and JAX warn of forks too
        child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            measure(STATES[0, 0], **QUICK)
        except RuntimeError as error:
            os.write(write, str(error).encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with open(read) as said:
        assert "forked after JAX had started" in said.read()


def test_a_mask_of_another_shape_than_texts_and_tokens_is_named():
    vectors = np.ones((12, 20, 4), np.float32)
    with pytest.raises(
        ValueError, match=r"mask has shape \(12, 10\).* \(12, 20\) for \(texts, tokens"
    ):
        measure(vectors, mask=np.ones((12, 10), bool))
