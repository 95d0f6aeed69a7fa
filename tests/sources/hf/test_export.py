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
from tests.sources.hf import tiny_models

TRAINED = [
    "--config=experiments/decoder_small.py",
    *(
        f"--config.{setting}"
        for setting in (
            *("model.layers=2", "model.width=24", "model.heads=3", "model.context=16"),
            *("model.dtype=float32", "train.steps=24", "train.batch_size=16"),
            *("evaluate.windows=8", "checkpoint.every=24"),
        )
    ),
]
MEASURED = [
    f"--config.measure.{setting}"
    for setting in (
        *("points=64", "folds=2", "batches=2", "nulls=('gaussian',)"),
        "families=('spectrum', 'similarity', 'attention')",
    )
]


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_an_exported_run_is_measured_as_it_was(tmp_path, positions):
    text, run, again = (tmp_path / name for name in ("text.txt", "run", "again"))
    text.write_text(tiny_models.text(20_000))
    shared = (*MEASURED, f"--config.data.path={text}")
    flags = *TRAINED, *shared, f"--config.model.position_encoding={positions}", f"--workdir={run}"
    assert str(run / "export") in tiny_models.done(*flags, "--stages=train,measure,export").stdout
    assert "exported already" in here(*flags, "--stages=export").stdout

    pretrained = f"--config=experiments/pretrained.py:{run / 'export'}", "--config.window=16"
    own = "--config.pretrained.max_bits_per_byte=99", f"--workdir={again}", "--stages=measure"
    tiny_models.done(*pretrained, *shared, *own)
    ours, theirs = (
        joined_files.read_table(folder / "results.nc").isel(step=-1) for folder in (run, again)
    )
    numbers = [name for name in values_of(ours) if name in theirs]
    assert len(numbers) > 30
    for name in numbers:
        found, expected = (table[name].sel(statistic="mean") for table in (theirs, ours))
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5, err_msg=name)

    shutil.rmtree(run / "checkpoints")
    tiny_models.one_line(here(*flags, "--stages=export"), "no checkpoint of the last step, 24")


def test_what_cannot_be_expressed_is_refused_before_it_is_trained(tmp_path):
    words = "no class of transformers has the block of this model (model.norm=post)"
    flags = "--config.data.source=pydoc", "--config.model.norm=post", "--stages=train,export"
    refuse(tmp_path / "run", words, *TRAINED, *flags)


SMALL = Config(model=ModelConfig(layers=1, width=4, heads=1, context=4))
LETTERS = b"abc"


def store(*_, **__):
    """Checkpoints of a run whose parameters are all 1."""
    shapes = jax.eval_shape(build(SMALL.model, len(LETTERS) + 1, "float32").init, jax.random.key(0))
    params = jax.tree.map(lambda leaf: np.ones(leaf.shape, np.float32), shapes)
    returned = {"steps": [SMALL.train.steps], "digest": "digest", "restore_params": params}
    return mock.Mock(**{f"{name}.return_value": value for name, value in returned.items()})


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A run that can be exported."""
    monkeypatch.setattr(export_folder, "Checkpoints", store)
    corpus = {"name": "text", "sha256": "0", "vocabulary": list(LETTERS)}
    (tmp_path / "environment.json").write_text(json.dumps({"corpus": corpus, "sessions": []}))
    return tmp_path


def refused(root, words):
    before = {path: path.is_file() and path.read_bytes() for path in root.rglob("*")}
    with pytest.raises(UserError, match=words) as error:
        export_folder.run(SMALL, root, "run")
    assert "\n" not in str(error.value)
    assert {path: path.is_file() and path.read_bytes() for path in root.rglob("*")} == before


def test_what_was_exported_is_whole_or_refused(root, capsys):
    export = root / "export"
    (half := temporary_path(export)).mkdir()  # of a process that was killed
    (half / "model.safetensors").write_text("half")
    with folder.locked(root):
        export_folder.run(SMALL, root, "run")
    assert sorted(path.name for path in export.iterdir()) == sorted(folders.FILES)
    assert not half.exists()
    export_folder.run(SMALL, root, "run")
    assert "exported already" in capsys.readouterr().out
    (export / "tokenizer.json").rename(root / "tokenizer.json")
    refused(root, "export lacks tokenizer.json; move it elsewhere")
    (export / "config.json").write_text("{")
    refused(root, r"export/config\.json cannot be read .*; move .*export elsewhere")
    (export / "config.json").unlink()
    refused(root, "export is not empty; move it elsewhere")


def test_a_folder_that_is_half_written_is_not_there(root, monkeypatch):
    with monkeypatch.context() as patch:
        killed = mock.Mock(side_effect=KeyboardInterrupt)
        patch.setattr("anisoscope.sources.hf.folders.convert_checkpoint.write_json", killed)
        with pytest.raises(KeyboardInterrupt):
            export_folder.run(SMALL, root, "run")
    assert not (root / "export").exists()
    export_folder.run(SMALL, root, "run")
    assert (root / "export" / "config.json").exists()
