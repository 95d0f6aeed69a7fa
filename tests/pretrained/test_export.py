"""The whole way round: a run trained here, exported, and measured as a model of others."""

import shutil

import numpy as np
import pytest

from tables import files
from tests.pretrained import tiny
from tests.program import here

TRAINED = (
    *("--config=experiments/decoder_small.py", "--config.model.layers=2", "--config.model.width=24"),
    *("--config.model.heads=3", "--config.model.context=16", "--config.train.steps=24", "--config.train.batch_size=16"),
    *("--config.evaluate.windows=8", "--config.checkpoint.every=24", "--config.model.dtype=float32"),
)
MEASURED = (
    *("--config.measure.points=64", "--config.measure.groups=2", "--config.measure.batches=2"),
    *("--config.measure.families=('spectrum', 'similarity', 'attention')", "--config.measure.nulls=('gaussian',)"),
)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_an_exported_run_is_measured_as_it_was(tmp_path, positions):
    text, run, again = tmp_path / "text.txt", tmp_path / "run", tmp_path / "again"
    text.write_text(tiny.text(20_000))
    source = f"--config.data.path={text}"
    flags = (*TRAINED, *MEASURED, source, f"--config.model.positions={positions}", f"--workdir={run}")
    process = here(*flags, "--stages=train,measure,export")
    assert process.returncode == 0, process.stderr
    assert str(run / "export") in process.stdout
    assert "exported already" in here(*flags, "--stages=export").stdout

    theirs = ("--config.window=16", "--config.pretrained.most_bits=99", source, f"--workdir={again}")
    process = here(f"--config=experiments/pretrained.py:{run / 'export'}", *MEASURED, *theirs, "--stages=measure")
    assert process.returncode == 0, process.stderr
    ours, theirs = files.read(run / "results.nc").sel(step=24), files.read(again / "results.nc").isel(step=0)
    numbers = [name for name in ours if "less" in ours[name].dims and name in theirs]
    assert len(numbers) > 30
    for name in numbers:
        places = {"less": "nothing", "statistic": "mean"}
        np.testing.assert_allclose(theirs[name].sel(places), ours[name].sel(places), rtol=1e-3, atol=1e-5, err_msg=name)

    shutil.rmtree(run / "checkpoints")
    process = here(*flags, "--stages=export")
    assert process.returncode == 2
    assert "no checkpoint of the last step, 24; run --stages=train first" in process.stderr


def test_what_cannot_be_expressed_is_refused_before_it_is_trained(tmp_path):
    flags = (*TRAINED, "--config.data.source=pydoc", "--config.model.norm=post", f"--workdir={tmp_path / 'run'}")
    process = here(*flags, "--stages=train,export")
    assert process.returncode == 2
    assert "no class of transformers has the block of this model (model.norm=post)" in process.stderr
    assert not (tmp_path / "run").exists()
