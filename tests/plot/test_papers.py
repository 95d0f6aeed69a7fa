"""Figures of two papers, of made-up models: what they show is what the tables say."""

import numpy as np
import pytest

from anisoscope.analysis import correlations
from anisoscope.plot import papers
from anisoscope.plot.papers import FIGURES, Model
from tests.plot.reading import caption_of, inside, title_of
from tests.plot.tables import make_run

FEW = (0, 10, 1000)


@pytest.fixture(scope="module")
def models():
    """Text in both kinds, one of them with checkpoints; speech."""
    return {
        "BERT": Model(make_run(False, (1000,), layers=3, seed=1, heads=2), "text", "encoder"),
        "OPT": Model(make_run(True, (1000,), layers=4, seed=2, heads=2), "text", "decoder"),
        "Pythia": Model(make_run(True, FEW, layers=6, heads=2), "text", "decoder"),
        "HuBERT": Model(make_run(False, (1000,), layers=4, seed=3, heads=2), "speech", "encoder"),
    }


def test_encoders_stand_beside_decoders(models):
    figure = papers.anisotropy_over_depth(models)
    assert [ax.get_title() for ax in figure.axes[:2]] == [
        "encoders, all positions",
        "decoders, all positions",
    ]
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["encoders", "BERT", "HuBERT", "decoders", "OPT", "Pythia"]
    assert title_of(figure) == "Anisotropy over depth, last checkpoint"
    for ax, names in zip(figure.axes, (("BERT", "HuBERT"), ("OPT", "Pythia")), strict=False):
        for line, name in zip(ax.lines, names, strict=False):
            values = models[name].run.results.anisotropy.isel(step=-1).sel(positions="all")
            np.testing.assert_array_equal(line.get_ydata(), values.sel(statistic="mean"))
    colours = [line.get_color() for ax in figure.axes[:2] for line in ax.lines[:2]]
    assert len(set(colours)) == 4


def test_cosine_and_drift_have_a_row_for_each_modality(models):
    figure = papers.cosine_and_drift(models)
    assert [ax.get_title() for ax in figure.axes[::2]] == ["text", "speech"]
    tables = {name: one.run.results for name, one in models.items()}
    found = correlations.by_modality(tables, {name: one.modality for name, one in models.items()})
    found = found.set_index(["modality", "positions", "over"])
    for ax, kind in zip(figure.axes[1::2], ("text", "speech"), strict=True):
        shown = correlations.value(found.loc[(kind, "all", correlations.POOLED)], "spearman")
        assert f"all points: {shown}" in ax.get_title()
        assert ("within models" in ax.get_title()) == (kind == "text")
    last = models["OPT"].run.results.isel(step=-1).sel(positions="all", statistic="mean")
    points = [line.get_xydata().tolist() for line in figure.axes[1].lines]
    assert np.transpose([last.drift[1:], last.mean_cosine[1:]]).tolist() in points
    assert "a reconstruction" in caption_of(figure)
    assert "all, all positions: all layers of 4 models, n = 21" in caption_of(figure)


def test_everything_lies_on_the_paper_and_apart(models):
    for name, build in {k: v for own in FIGURES.values() for k, v in own.items()}.items():
        inside(build(models), name)
