"""The whole way round: a run trained here, exported, and measured as a model of others."""

import json
import shutil
from unittest import mock

import jax
import numpy as np
import pytest

from anisoscope.config.experiment_config import Config
from anisoscope.config.model_config import ModelConfig
from anisoscope.models.transformer import build
from anisoscope.results import joined_files
from anisoscope.results.excess import values_of
from anisoscope.sources.hf import folders
from anisoscope.sources.hf.folders import export_folder
from anisoscope.utils import folder
from anisoscope.utils.errors import UserError
from anisoscope.utils.files import temporary_path
from tests.program import here, refuse
from tests.sources.hf import tiny

TRAINED = (
    *(
        "--config=experiments/decoder_small.py",
        "--config.model.layers=2",
        "--config.model.width=24",
    ),
    *(
        "--config.model.heads=3",
        "--config.model.context=16",
        "--config.train.steps=24",
        "--config.train.batch_size=16",
    ),
    *(
        "--config.evaluate.windows=8",
        "--config.checkpoint.every=24",
        "--config.model.dtype=float32",
    ),
)
MEASURED = (
    *("--config.measure.points=64", "--config.measure.folds=2", "--config.measure.batches=2"),
    *(
        "--config.measure.families=('spectrum', 'similarity', 'attention')",
        "--config.measure.nulls=('gaussian',)",
    ),
)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_an_exported_run_is_measured_as_it_was(tmp_path, positions):
    text, run, again = tmp_path / "text.txt", tmp_path / "run", tmp_path / "again"
    text.write_text(tiny.text(20_000))
    source = f"--config.data.path={text}"
    flags = (
        *TRAINED,
        *MEASURED,
        source,
        f"--config.model.positions={positions}",
        f"--workdir={run}",
    )
    assert str(run / "export") in tiny.done(*flags, "--stages=train,measure,export").stdout
    assert "exported already" in here(*flags, "--stages=export").stdout

    theirs = (
        "--config.window=16",
        "--config.pretrained.most_bits=99",
        source,
        f"--workdir={again}",
    )
    tiny.done(
        f"--config=experiments/pretrained.py:{run / 'export'}",
        *MEASURED,
        *theirs,
        "--stages=measure",
    )
    ours, theirs = (
        joined_files.read_table(folder / "results.nc").isel(step=-1) for folder in (run, again)
    )
    numbers = [name for name in values_of(ours) if name in theirs]
    assert len(numbers) > 30
    for name in numbers:
        one, other = (table[name].sel(statistic="mean") for table in (theirs, ours))
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5, err_msg=name)

    shutil.rmtree(run / "checkpoints")
    tiny.one_line(
        here(*flags, "--stages=export"),
        "no checkpoint of the last step, 24; run --stages=train first",
    )


def test_what_cannot_be_expressed_is_refused_before_it_is_trained(tmp_path):
    words = "no class of transformers has the block of this model (model.norm=post)"
    flags = (
        *TRAINED,
        "--config.data.source=pydoc",
        "--config.model.norm=post",
        "--stages=train,export",
    )
    refuse(tmp_path / "run", words, *flags)


SMALL = Config(model=ModelConfig(layers=1, width=4, heads=1, context=4))
LETTERS = b"abc"


def store(*_, **__):
    """Checkpoints of a run whose parameters are all 1."""
    shapes = jax.eval_shape(build(SMALL.model, len(LETTERS) + 1, "float32").init, jax.random.key(0))
    params = jax.tree.map(lambda leaf: np.ones(leaf.shape, np.float32), shapes)
    found = mock.Mock(
        **{"steps.return_value": [SMALL.train.steps], "digest.return_value": "digest"}
    )
    found.restore_params.return_value = params
    return found


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A run that can be exported."""
    monkeypatch.setattr(export_folder, "Checkpoints", store)
    write_environment(tmp_path, {"name": "text", "sha256": "0", "vocabulary": list(LETTERS)})
    return tmp_path


def write_environment(root, corpus):
    (root / "environment.json").write_text(json.dumps({"corpus": corpus, "sessions": []}))


def refused(root, words):
    before = sorted(path.name for path in root.rglob("*"))
    with pytest.raises(UserError, match=words) as error:
        export_folder.run(SMALL, root, "run")
    assert "\n" not in str(error.value)
    assert sorted(path.name for path in root.rglob("*")) == before


@pytest.mark.parametrize("corpus", [None, {"name": "text", "sha256": "0"}])
def test_an_environment_without_a_vocabulary_is_one_line(root, corpus):
    write_environment(root, corpus)
    refused(root, r"environment\.json is damaged .*; move it elsewhere, and train again")


def test_what_was_exported_is_whole_or_refused(root, capsys):
    (half := temporary_path(root / "export")).mkdir()  # of a process that was killed
    (half / "model.safetensors").write_text("half")
    with folder.locked(root):
        export_folder.run(SMALL, root, "run")
    assert sorted(path.name for path in (root / "export").iterdir()) == sorted(folders.FILES)
    assert not half.exists()
    export_folder.run(SMALL, root, "run")
    assert "exported already" in capsys.readouterr().out
    for name in ("model.safetensors", "tokenizer.json"):
        (root / "export" / name).rename(root / name)
        refused(root, f"export lacks {name}; move it elsewhere")
        (root / name).rename(root / "export" / name)
    for content in ("", "{"):
        (root / "export" / "config.json").write_text(content)
        refused(root, r"export/config\.json cannot be read .*; move .*export elsewhere")


def test_a_folder_of_another_is_left_as_it_is(root):
    (root / "export").mkdir()
    (root / "export" / "model.safetensors").write_text("mine")
    refused(root, "export is not empty; move it elsewhere")
    assert (root / "export" / "model.safetensors").read_text() == "mine"


def test_a_folder_that_is_half_written_is_not_there(root, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("anisoscope.sources.hf.folders.convert_checkpoint.write_json", killed)
    with pytest.raises(KeyboardInterrupt):
        export_folder.run(SMALL, root, "run")
    assert not (root / "export").exists()
    monkeypatch.undo()
    monkeypatch.setattr(export_folder, "Checkpoints", store)
    export_folder.run(SMALL, root, "run")
    assert (root / "export" / "config.json").exists()
