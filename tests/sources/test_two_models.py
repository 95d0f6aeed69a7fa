"""Layers of two models of other widths on points that share clusters, and of two runs on one text:
planted clouds in place of what their models compute.
"""

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import anisoscope
from anisoscope.plot import draw
from anisoscope.sources import array_checks, two_arrays, two_models, two_runs
from anisoscope.sources.finished_run import OpenRun
from anisoscope.sources.folds import cut_folds
from anisoscope.sources.run_program import draw_probe
from anisoscope.utils import memory
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace
from tests import reference_comparison, tiny
from tests.plot.tables import with_excess

WIDTH, POINTS = 6, 256
SHOWN = ("cka_unbiased", "neighbor_overlap")
CONFIG = replace(tiny.config(), {"measure.points": POINTS, "measure.folds": 4})


class Planted(OpenRun):
    def vectors(self, params, tokens_BT):
        """Two independent normal layers, which the parameters name."""
        shape = (*tokens_BT.shape, WIDTH)
        normal = [jax.random.normal(jax.random.key(params + n), shape) for n in range(2)]
        return jax.numpy.stack(normal) + 0 * tokens_BT[None, ..., None]


def planted(first, config=CONFIG, text=None):
    text = text or tiny.corpus(8000)
    readers = (lambda step: first), (lambda: text)
    return Planted(Path("run"), config, text.vocab_size, [0, 6], *readers)


@pytest.fixture
def compare(monkeypatch):
    """The table of two planted runs."""

    def compared(first, second, *names):
        runs = {"runs/a": first, "runs/b": second}
        monkeypatch.setattr(two_runs, "open_finished_run", runs.__getitem__)
        return two_models.measure_pair(two_runs.open_run_pair(*(names or runs)))

    return compared


@pytest.mark.slow
def test_values_are_those_of_the_float64_twins_on_the_probe(compare):
    runs = planted(0), planted(1)  # layer 1 of the first is layer 0 of the second
    found, probe = compare(*runs), draw_probe(CONFIG, runs[0].corpus)
    for s, positions in enumerate(("all", "without_first_token")):
        values = []
        for tokens_WT, picks in zip(probe.tokens_GWT, probe.picks_SGP[s], strict=True):
            first, second = (
                np.asarray(run.vectors(run.params(6), tokens_WT)).reshape(2, -1, WIDTH)[:, picks]
                for run in runs
            )
            np.testing.assert_array_equal(first[1], second[0])
            values.append(
                [[reference_comparison.linear_cka_unbiased(x, y) for y in second] for x in first]
            )
        mean = found.cka_unbiased.sel(statistic="mean", positions=positions)
        np.testing.assert_allclose(mean, np.mean(values, axis=0), rtol=1e-3, atol=1e-5)
    assert found.attrs["first"] == "a"
    assert found.attrs["second_step"] == 6


def test_runs_without_common_points_or_without_the_checkpoint_are_refused(compare):
    text = tiny.corpus(8000)
    order = np.random.default_rng(0).permutation(len(text.valid))
    permuted = dataclasses.replace(text, valid=text.valid[order])  # of the same digest
    for other, words in (
        ({"config": replace(CONFIG, {"measure.seed": 1})}, r"measure\.seed="),
        ({"config": replace(CONFIG, {"model.context": 16})}, r"model\.context="),
        ({"text": permuted}, "no points in common: tokens_sha256="),
        ({"text": dataclasses.replace(text, sha256="another")}, "corpus_sha256="),
    ):
        with pytest.raises(UserError, match=words):
            compare(planted(0), planted(0, **other))
    for step in ("3", "²"):
        with pytest.raises(UserError, match=f"no checkpoint of step '{step}'"):
            compare(planted(0), planted(0), f"runs/a@{step}", "runs/b")


def test_the_figure_shows_what_position_0_hides():
    """Of models with other numbers of layers, in one of which one vector hides all others."""
    about = dict.fromkeys(("corpus", "first", "second", "first_model", "second_model"), "a")
    about |= {"measure.points": 64, "measure.batches": 2, "points_are": "where tokens of both end"}
    labels = {"statistic": ["mean", "std", "low", "high"]}
    labels |= {"positions": ["all", "without_first_token"]}
    labels |= {"layer": range(3), "other_layer": range(5)}
    values = {name: (tuple(labels), np.full((4, 2, 3, 5), 0.6)) for name in SHOWN}
    found = with_excess(xr.Dataset(values, labels, about), "permuted")
    plain = draw.SIMILARITY_FIGURES["similarity_of_models"](found)
    assert sum(len(ax.images) for ax in plain.axes) == 4
    found.cka_unbiased.loc[{"positions": "all", "other_layer": 4}] = 0.02
    hidden = draw.SIMILARITY_FIGURES["similarity_of_models"](found)
    shown = [ax.images[0].get_array() for ax in hidden.axes if ax.images]
    assert len(shown) == 6
    assert shown[0][0, 4] == 0.02 < shown[2][0, 4] == 0.6


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
    options = {"folds": 5, "labels": ("first", "second"), "families": ("comparison", "alignment")}
    return anisoscope.compare([*A], [*B], LABEL_P, **options)


def test_each_pair_of_layers_has_the_value_of_float64(table):
    mean = table.sel(statistic="mean")
    assert mean.cka.dims == ("layer", "other_layer")
    assert mean.cka.shape == (3, 2)
    for n, m in np.ndindex(3, 2):
        place = {"layer": n, "other_layer": m}
        assert mean.cka.sel(place) == pytest.approx(
            reference_comparison.linear_cka(A[n], B[m]), rel=1e-5
        )
        overlap = reference_comparison.neighbor_overlap(A[n], B[m], 10)
        assert mean.neighbor_overlap.sel(place) == pytest.approx(overlap, rel=1e-5)
        for name in ("rsa", "procrustes"):
            expected = getattr(reference_comparison, name)(A[n], B[m])
            assert mean[name].sel(place) == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert mean.cka.sel(layer=1, other_layer=0) == pytest.approx(1, abs=1e-5)  # rotated, scaled


def test_an_interval_holds_the_value_and_points_that_do_not_correspond_are_the_null_model(table):
    for name in ("cka_unbiased", "rsa", "procrustes"):
        low, mean, high = (table[name].sel(statistic=end) for end in ("low", "mean", "high"))
        assert bool(((low <= mean) & (mean <= high)).all())
    excess = table.cka_unbiased_excess.sel(statistic="mean", null="permuted")
    assert excess.sel(layer=1, other_layer=0) > 0.8
    assert abs(excess.sel(layer=1, other_layer=1)) < 0.15  # independent layers
    axes = anisoscope.plot.layer_map(table, "cka")
    np.testing.assert_array_equal(axes.images[0].get_array(), table.cka.sel(statistic="mean"))
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("layer of first", "layer of second")


@pytest.mark.parametrize("sizes", [[16] * 8, [4, 5, 9, 30, 31, 60], [3, 4, 9]])
def test_the_null_model_pairs_clusters_of_similar_size_whatever_the_order_of_the_rows(sizes):
    label_P, rng = np.repeat(np.arange(len(sizes)), sizes), np.random.default_rng(0)
    order_P = np.argsort(rng.random(len(label_P)))  # clusters and their points are scattered
    for own_P in (label_P, label_P[order_P]):
        vectors = array_checks.read_vectors(np.zeros((len(own_P), 2)), own_P)
        row_Q, other_Q = two_arrays.pair_points(vectors, 0)
        assert len(np.unique(row_Q)) == len(row_Q) == len(np.unique(other_Q))
        pairs = {*zip(own_P[row_Q], own_P[other_Q], strict=True)}
        assert len(pairs) == len(sizes) == len({k for k, _ in pairs}) == len({k for _, k in pairs})
        for k, other in pairs:
            shorter = min(sizes[k], sizes[other])
            assert k != other
            assert abs(k - other) <= (1 if len(sizes) == 6 else len(sizes))
            assert (own_P[row_Q] == k).sum() == shorter
        folds = cut_folds(len(own_P), own_P, 4, 0)
        cut = two_arrays.cut_pairs(folds, vectors.cluster_P, row_Q)
        assert cut.fold_sizes[0].sum() == len(row_Q)
        np.testing.assert_array_equal(cut.fold_P, folds.fold_P[row_Q])
    a_PD = rng.standard_normal((128, 4)) + np.arange(128)[:, None] // 64
    two = anisoscope.compare(a_PD, a_PD, np.arange(128) // 64, folds=1)
    assert (two.cka_excess.sel(statistic="mean") > 0.05).all()  # exchanged, not left in place
    alone = anisoscope.compare(a_PD, a_PD, np.zeros(128), folds=1)
    assert alone.cka_excess.isnull().all()
    np.testing.assert_allclose(alone.cka.sel(statistic="mean"), 1, rtol=1e-5)


def test_texts_are_compared_without_padding_and_with_the_names_of_layers():
    mask_BT = np.arange(10) < np.array([9, 8, 7, 9, 5, 8, 9, 8])[:, None]  # of one padded size
    states = np.random.default_rng(1).standard_normal((8, 10, 4))
    options = {"mask": mask_BT, "folds": 4}
    table = anisoscope.compare({"x": states}, [states, states[..., :2]], **options)
    states = np.where(mask_BT[..., None], states, 9.0)
    again = anisoscope.compare({"x": states}, [states, states[..., :2]], **options)
    xr.testing.assert_identical(table, again)
    assert table.layer.values.tolist() == ["x"]
    assert table.attrs["points_of"] == "all 63, without_first_token 55"
    for positions, keep_BT in (("all", mask_BT), ("without_first_token", mask_BT)):
        keep_BT = keep_BT & ((positions == "all") | (np.arange(10) > 0))
        x_PD = states[keep_BT]
        vectors = array_checks.read_vectors([states], mask=mask_BT)
        vectors = array_checks.position_sets(vectors)[positions]
        row_Q, other_Q = two_arrays.pair_points(vectors, 0)
        cka = reference_comparison.linear_cka
        above = cka(x_PD[row_Q], x_PD[row_Q, :2]) - cka(x_PD[other_Q], x_PD[row_Q, :2])
        found = table.sel(statistic="mean", positions=positions, layer="x", other_layer=1)
        assert found.cka == pytest.approx(cka(x_PD, x_PD[:, :2]), rel=1e-5)
        assert found.cka_excess.item() == pytest.approx(above, rel=1e-4)


def test_a_step_is_what_stands_behind_the_last_at_unless_that_is_of_the_folder(tmp_path):
    folder = tmp_path / "me@lab" / "run@5"
    folder.mkdir(parents=True)
    assert two_models.split_step(f"{folder}@7") == (str(folder), "7")
    assert two_models.split_step(str(folder)) == (str(folder), None)
    assert two_models.split_step(f"{folder.parent}/none") == (f"{folder.parent}/none", None)


def test_points_that_differ_are_refused(monkeypatch):
    with pytest.raises(ValueError, match="a has 128 points and b 120"):
        anisoscope.compare([*A], [*B[:, :120]])
    infinite = B.copy()
    infinite[1, 3, 2] = np.inf
    with pytest.raises(ValueError, match="layer 1 of b: 1 of 1152 numbers are not finite"):
        anisoscope.compare([*A], [*infinite])
    frame = pd.DataFrame(A[0])
    array = xr.DataArray(A[0], dims=("point", "width"), coords={"point": np.arange(128)})
    rows = (
        [pd.Series(row) for row in x] for x in (A[0], B[0])
    )  # of two widths: no labels of points
    anisoscope.compare(*rows, folds=1)
    for a, b in ((frame, frame[::-1]), ([frame], [frame[::-1]]), (array[::-1], frame)):
        with pytest.raises(ValueError, match="different labels"):
            anisoscope.compare(a, b)
    labels = pd.Series(np.arange(128) // 8, index=np.arange(128))[::-1]
    with pytest.raises(ValueError, match="another order for a than for b"):
        anisoscope.compare(A[0], frame, clusters=labels)
    for bad in ({"folds": 2.5}, {"seed": None}, {"seed": -1}, {"labels": None}):
        with pytest.raises(ValueError, match=r"folds is|seed is|labels is"):
            anisoscope.compare(A[0], A[0], **bad)
    with pytest.raises(ValueError, match="families: pass comparison, with or without alignment"):
        anisoscope.compare(A[0], A[0], families=("comparison", "linearity"))
    with pytest.raises(ValueError, match=r"a: vectors of shape \(3, 128, 6\) may be"):
        anisoscope.compare(A, B)
    with pytest.raises(ValueError, match="a has 6 texts x 4 tokens and b 24 points; both"):
        anisoscope.compare([np.ones((6, 4, 2))], np.ones((24, 2)))
    with pytest.raises(ValueError, match="'gpt2' names no vectors; compare_models"):
        anisoscope.compare("gpt2", "gpt2")
    monkeypatch.setattr(memory, "available", lambda: 10_000)
    with pytest.raises(ValueError, match=r"3 and 2 layers of 128 points take .* pass fewer layers"):
        anisoscope.compare([*A], [*B])
