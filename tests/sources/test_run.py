"""A trained run in one's own code; and the notebook that shows it."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import anisoscope
from anisoscope import make_measure
from anisoscope.config.experiment_config import Config
from anisoscope.config.run_config import DataConfig
from anisoscope.sources import finished_run
from anisoscope.sources.finished_run import open_finished_run
from anisoscope.training import checkpoint
from anisoscope.training.step import State
from anisoscope.utils.errors import UserError
from anisoscope.utils.folder import digest_run
from anisoscope.utils.settings import from_dict
from tests import tiny
from tests.program import ROOT, run_examples, run_notebook


@pytest.fixture(autouse=True)
def same_text(monkeypatch):
    """The text of a run is that of the tests, whatever its settings name."""
    monkeypatch.setattr(
        finished_run.corpus, "load_corpus", lambda data, context, download: tiny.corpus()
    )


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
        finished_run.corpus, "load_corpus", lambda data, context, download: tiny.corpus(seed=1)
    )
    opened = anisoscope.open_run(finished)
    with pytest.raises(ValueError, match=r"another corpus: letters from tests/tiny\.py, now"):
        opened.windows(1)


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("train.seed", 1, "checkpoints/0 is damaged: it is of a run with other settings"),
        ("model.heads", 4, "checkpoints/0 is damaged: it is of a run with other settings"),
        ("model.heads", 3, "model.heads is 3; it must divide"),
        ("model.width", 10**9, "model.width is 1000000000"),
        ("train.steps", 10**23, "train.steps is 1"),
    ],
)
def test_a_run_whose_settings_have_changed_is_refused(finished, tmp_path, setting, value, words):
    folder = shutil.copytree(finished, tmp_path / "run")
    settings = json.loads((folder / "config.json").read_text())
    group, name = setting.split(".")
    settings[group][name] = value
    (folder / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=words):
        anisoscope.open_run(folder)


def test_nothing_outside_of_the_folder_is_read_or_written_until_the_text_is_used(
    finished, tmp_path, monkeypatch
):
    """The settings of a stranger may name any folder for downloads."""
    monkeypatch.undo()  # the text that the settings name
    folder, cache = shutil.copytree(finished, tmp_path / "run"), tmp_path / "cache"
    settings = json.loads((folder / "config.json").read_text())
    settings["data"] |= {"source": "enwik8", "cache": str(cache)}
    config = from_dict(settings, Config)
    (folder / "config.json").write_text(json.dumps(settings))
    shutil.rmtree(folder / "checkpoints")
    identity = digest_run(config, tiny.corpus().sha256)
    with checkpoint.Checkpoints(folder / "checkpoints", None, identity) as store:
        params = open_finished_run(finished).params(6)
        store.save(6, State(params, {}, jnp.int32(6)))
    before = sorted(tmp_path.rglob("*"))
    opened = anisoscope.open_run(folder)
    assert opened.vectors(opened.params(6), np.zeros((1, 8), int)).shape == (3, 1, 8, 16)
    with pytest.raises(ValueError, match=r"holds no enwik8; pass text="):
        opened.windows(1)
    assert sorted(tmp_path.rglob("*")) == before


def test_tokens_and_parameters_that_the_run_does_not_have_are_refused(finished):
    opened = anisoscope.open_run(finished)
    params = opened.params(6)
    for tokens, words in (
        ([[0, 9999]], "tokens go from 0 to 9999; this run has the tokens 0 to 7"),
        ([[-5, 0]], "tokens go from -5 to 0"),
        ([[0.0]], "pass whole numbers"),
        ([0, 1], r"shape \(2,\); pass \(windows, T\) with T from 1 to 8"),
        (np.zeros((1, 9), int), r"shape \(1, 9\)"),
    ):
        with pytest.raises(ValueError, match=words):
            opened.vectors(params, tokens)
    with pytest.raises(ValueError, match="params are not of this run's model"):
        opened.vectors({}, [[0]])
    with pytest.raises(ValueError, match=r"step 3 has no checkpoint; .* 0, 1, 2, 4, 5, 6"):
        opened.params(3)
    traced = jax.jit(opened.vectors)(params, np.array([[0, 1], [0, 8]]))
    assert np.isfinite(traced[:, 0]).all()
    assert np.isnan(traced[:, 1]).all()
    assert len(repr(opened).splitlines()) == 3


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
