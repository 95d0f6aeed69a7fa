"""A trained run in one's own code; and the notebook that shows it."""

import jax
import numpy as np
import pytest

import anisoscope
from anisoscope import make_measure
from anisoscope.config.run_config import DataConfig
from anisoscope.sources import finished_run
from anisoscope.sources.finished_run import open_finished_run
from anisoscope.utils.errors import UserError
from tests import tiny
from tests.program import ROOT, run_examples, run_notebook


@pytest.fixture(autouse=True)
def same_text(monkeypatch):
    """The text of a run is that of the tests, whatever its settings name."""
    monkeypatch.setattr(finished_run.corpus, "load_corpus", lambda data, context: tiny.corpus())


@pytest.fixture
def finished(trained):
    return trained[0]


def test_a_run_gives_its_checkpoints_as_parameters_of_one_function(finished):
    opened = open_finished_run(finished)
    assert opened.steps == [0, 1, 2, 4, 5, 6]
    assert opened.config.data == DataConfig(source="pydoc")
    tokens_WT = opened.windows(4)
    assert len(np.unique(tokens_WT, axis=0)) > 1
    assert tokens_WT.shape == (4, 8)
    table_of = make_measure(opened.vectors, tokens_WT, families=("similarity",), nulls=())
    first, last = (table_of(opened.params(step)) for step in (0, 6))
    assert first.sizes["layer"] == 3
    assert not np.allclose(first.drift, last.drift, equal_nan=True)
    compiled_LBTD = jax.jit(opened.vectors)(opened.params(6), tokens_WT)
    np.testing.assert_allclose(
        opened.vectors(opened.params(6), tokens_WT), compiled_LBTD, rtol=1e-5, atol=1e-6
    )
    text = str(jax.make_jaxpr(opened.vectors)(opened.params(6), tokens_WT))
    exact = text.count("precision=(Precision.HIGHEST, Precision.HIGHEST)")
    assert text.count("dot_general[") == exact > 0
    with pytest.raises(ValueError, match="the validation split has 12 windows of 8"):
        opened.windows(13)
    with pytest.raises(ValueError, match="step"):
        opened.params(-1)


def test_the_example_of_open_run_runs(finished, tmp_path, monkeypatch):
    (tmp_path / "runs" / "quickstart").mkdir(parents=True)
    (tmp_path / "runs" / "quickstart" / "decoder").symlink_to(finished)
    monkeypatch.chdir(tmp_path)
    run_examples(anisoscope.open_run)


def test_what_is_no_run_is_refused(finished, tmp_path):
    with pytest.raises(ValueError, match="name the folder of a trained run"):
        anisoscope.open_run(tmp_path)
    (tmp_path / "config.json").write_text((finished / "config.json").read_text())
    with pytest.raises(UserError, match="has no checkpoints"):
        open_finished_run(tmp_path)


def test_a_text_that_has_changed_since_is_refused(finished, monkeypatch):
    monkeypatch.setattr(
        finished_run.corpus, "load_corpus", lambda data, context: tiny.corpus(seed=1)
    )
    with pytest.raises(UserError, match="trained on another corpus"):
        open_finished_run(finished)


@pytest.mark.slow  # what its cells call has quick tests, here and in test_arrays.py
def test_every_cell_of_the_notebook_runs(finished, monkeypatch, capsys):
    monkeypatch.setenv("ANISOSCOPE_RUN", str(finished))
    inner = finished_run.OpenRun.windows
    monkeypatch.setattr(finished_run.OpenRun, "windows", lambda self, count: inner(self, 8))
    monkeypatch.chdir(ROOT)
    space = run_notebook("measure.ipynb")
    assert space["tables"].keys() == {0, 6}
    assert "anisotropy" in space["table"]
    assert space["recorder"].rows == 20 * 8 * 16
    assert [line.get_label() for line in space["ax"].lines] == ["step 0", "step 6"]
