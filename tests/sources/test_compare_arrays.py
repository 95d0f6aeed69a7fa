"""Compare layers of two models of other widths, on points that share clusters."""

import numpy as np
import pandas as pd
import pytest

import anisoscope
from anisoscope.utils import memory
from tests import reference_comparison as reference

SIZES = [5, 11] * 8  # folds of unequal size: values are of all points, intervals are weighted
LABEL_P = np.repeat(np.arange(16), SIZES)
RNG = np.random.default_rng(3)
A = RNG.standard_normal((3, 128, 6)) + RNG.standard_normal((1, 16, 6)).repeat(SIZES, axis=1)
B = np.stack(
    [A[1] @ np.linalg.qr(RNG.standard_normal((6, 6)))[0] * 5, RNG.standard_normal((128, 6))]
)
B = np.concatenate([B, np.zeros((2, 128, 3))], axis=2)


@pytest.fixture(scope="module")
def table():
    return anisoscope.compare(A, B, LABEL_P, folds=5, labels=("first", "second"))


def test_each_pair_of_layers_has_the_value_of_float64(table):
    mean = table.sel(statistic="mean")
    assert mean.cka.dims == ("layer", "other_layer")
    assert mean.cka.shape == (3, 2)
    for n, m in np.ndindex(3, 2):
        place = {"layer": n, "other_layer": m}
        assert mean.cka.sel(place) == pytest.approx(reference.linear_cka(A[n], B[m]), rel=1e-5)
        overlap = reference.neighbor_overlap(A[n], B[m], 10)
        assert mean.neighbor_overlap.sel(place) == pytest.approx(overlap, rel=1e-5)
    assert mean.cka.sel(layer=1, other_layer=0) == pytest.approx(1, abs=1e-5)  # rotated, scaled


def test_an_interval_holds_the_value_and_points_that_do_not_correspond_are_the_null_model(table):
    low, mean, high = (table.cka_unbiased.sel(statistic=end) for end in ("low", "mean", "high"))
    assert bool(((low <= mean) & (mean <= high)).all())
    excess = table.cka_unbiased_excess.sel(statistic="mean", null="permuted")
    assert excess.sel(layer=1, other_layer=0) > 0.8
    assert abs(excess.sel(layer=1, other_layer=1)) < 0.15  # independent layers
    axes = anisoscope.plot.layer_map(table, "cka")
    np.testing.assert_array_equal(axes.images[0].get_array(), table.cka.sel(statistic="mean"))
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("layer of first", "layer of second")


def test_points_that_differ_are_refused(monkeypatch):
    with pytest.raises(ValueError, match="a has 128 points and b 120"):
        anisoscope.compare(A, B[:, :120])
    infinite = B.copy()
    infinite[1, 3, 2] = np.inf
    with pytest.raises(ValueError, match="layer 1 of b: 1 of 1152 numbers are not finite"):
        anisoscope.compare(A, infinite)
    frame = pd.DataFrame(A[0])
    with pytest.raises(ValueError, match="indexes of a and b differ"):
        anisoscope.compare(frame, frame[::-1])
    with pytest.raises(ValueError, match="'gpt2' names no vectors; compare_models"):
        anisoscope.compare("gpt2", "gpt2")
    monkeypatch.setattr(memory, "available", lambda: 10_000)
    with pytest.raises(ValueError, match=r"3 and 2 layers of 128 points take .* pass fewer layers"):
        anisoscope.compare(A, B)
