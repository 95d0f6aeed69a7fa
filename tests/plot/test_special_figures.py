"""What figures of a kind of their own show is what the tables and the log say."""

import dataclasses
import itertools

import numpy as np
import pytest

from anisoscope.analysis import correlations
from anisoscope.plot.draw import MODELS, RUN_FIGURES
from anisoscope.plot.run_figures import log_curve
from anisoscope.plot.run_tables import Run, average_tables
from tests.plot.reading import caption_of, curve_is, footer_of, inside
from tests.plot.tables import make_tangents


def test_layer_similarity_shows_every_pair_on_one_scale(runs):
    figure = RUN_FIGURES["layer_similarity"](runs)
    names = ("cka_unbiased_layers", "neighbor_overlap_layers")
    for ax, (run, name) in zip(figure.axes, itertools.product(runs.values(), names), strict=False):
        means = run.results[name].sel(step=1000, positions="all", statistic="mean")
        np.testing.assert_array_equal(ax.images[0].get_array(), means)
        assert ax.images[0].get_clim() == (0, 1)


def test_cosine_and_drift_have_a_row_for_each_modality(runs):
    decoder, encoder = runs["decoder"], runs["encoder"]
    made = {"BERT": (encoder, "text"), "OPT": (decoder, "text"), "Hu": (encoder, "speech")}
    made = {name: dataclasses.replace(run, modality=kind) for name, (run, kind) in made.items()}
    figure = MODELS["inherent"]["cosine_and_drift"](made)
    inside(figure, "cosine_and_drift")
    for ax, modality in zip(figure.axes[1::2], ("text", "speech"), strict=True):
        own = {name: run for name, run in made.items() if run.modality == modality}
        pair = ["drift", "mean_cosine"]
        own = {name: run.results[pair].isel(step=[-1]) for name, run in own.items()}
        found = correlations.correlations(own).query("x == 'drift' and positions == 'all'")
        for row in found[found.over.isin(["layers, runs", "layers within runs"])].itertuples():
            assert f"{row.spearman:.2f}" in ax.get_title().replace("\N{MINUS SIGN}", "-")
    last = made["OPT"].results.isel(step=-1).sel(positions="all", statistic="mean")
    points = [line.get_xydata().tolist() for line in figure.axes[1].lines]
    assert np.transpose([last.drift[1:], last.mean_cosine[1:]]).tolist() in points
    curve_is(figure.axes[0].lines[1], made["OPT"].results.mean_cosine.isel(step=-1, positions=0))


def test_a_training_curve_keeps_objectives_apart_and_shows_what_needs_no_context(runs):
    figure = RUN_FIGURES["training_curve"](runs)
    for ax, run in zip(figure.axes, runs.values(), strict=True):
        for line, kind in zip(ax.lines, ("train", "valid"), strict=False):
            own = [line for line in run.log if line["kind"] == kind]
            np.testing.assert_array_equal(line.get_xdata(), [one["step"] for one in own])
            np.testing.assert_array_equal(
                line.get_ydata(), [one["bits_per_character"] for one in own]
            )
        assert ax.lines[-1].get_ydata()[0] == 5.0
    assert "not comparable" in footer_of(figure)
    begun = dataclasses.replace(runs["decoder"], log=runs["decoder"].log[:1])
    (ax,) = RUN_FIGURES["training_curve"]({"decoder": begun}).axes
    assert [len(line.get_xdata()) for line in ax.lines] == [1, 0]
    assert RUN_FIGURES["training_curve"]({"decoder": dataclasses.replace(begun, log=[])}) is None


def test_a_step_that_was_trained_twice_counts_once():
    lines = [(1, "train", 5.0), (2, "train", 4.0), (2, "valid", 4.5), (2, "train", 3.9)]
    log = [dict(zip(("step", "kind", "bits_per_character"), line, strict=True)) for line in lines]
    assert log_curve(log, "train") == ([1, 2], [5.0, 3.9])


@pytest.fixture(scope="module")
def subspaces():
    tables = {"decoder": make_tangents(0), "encoder": make_tangents(1)}
    return {label: Run(table, [], table) for label, table in tables.items()}


def test_tangents_lie_on_the_paper_over_steps_and_of_one_checkpoint_over_layers(subspaces):
    figure = RUN_FIGURES["tangent_energy"](subspaces)
    inside(figure, "tangent_energy")
    assert "reconstructions after Bernas et al. 2026" in caption_of(figure)
    assert "fitted at steps 1, 2" in caption_of(figure)
    assert "over batches" not in caption_of(figure)  # controls are random subspaces
    assert RUN_FIGURES["tangent_energy"]({"none": Run(make_tangents(), [])}) is None
    alone = make_tangents(layers=5).isel(step=[-1])
    for quantity, values in alone.items():
        if "fit" in values.dims:
            alone[quantity] = values.where(alone.fit == "here")
    alone.attrs |= {"early_steps": "[]", "provenance": "a text; a model", "batches": 1}
    figure = RUN_FIGURES["tangent_energy"]({"a model": Run(alone, [], alone)})
    inside(figure, "tangent_energy, one checkpoint")
    assert "fitted at the checkpoint itself" in caption_of(figure)
    lines = [line for ax in figure.axes for line in ax.lines if len(line.get_xdata()) == 5]
    values = alone.energy.sel(rank=16, kind="semi-NMF", fit="here", rows="raw").isel(step=0)
    curve_is(lines[2], values)


def test_energy_stands_beside_variance_and_all_control_frames(subspaces):
    names = ("control_energy", "variance", "energy")
    axes = RUN_FIGURES["tangent_energy"](subspaces).axes[: 2 * 3 + 1]
    panels = itertools.product(subspaces.values(), range(3))
    axes = [ax for ax in axes if ax.lines]
    for ax, (run, layer) in zip(axes, panels, strict=True):
        for line, band, name in zip(ax.lines, ax.collections, names, strict=False):
            table = run.tangents.sel(rank=16, kind="semi-NMF", fit="early", rows="raw", layer=layer)
            curve_is(line, table[name], band)


def test_seeds_are_one_curve_with_their_range_and_the_controls_of_all():
    members = [make_tangents(0), make_tangents(1), make_tangents(2)]
    found = average_tables(members, "seeds 0, 1, 2 together")
    means = np.stack([one.energy.sel(statistic="mean") for one in members])
    for end, expected in {"mean": means.mean(0), "low": means.min(0), "high": means.max(0)}.items():
        np.testing.assert_allclose(found.energy.sel(statistic=end), expected)
    ends = np.stack([one.control_energy.sel(statistic="high") for one in members])
    np.testing.assert_allclose(found.control_energy.sel(statistic="high"), ends.max(0))
    np.testing.assert_allclose(found.control_p, np.mean([one.control_p for one in members], axis=0))
