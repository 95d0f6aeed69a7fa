"""A list of models as users start it: local folders, a hub that holds some of them, figures of what
could be had.
"""

import json
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
import torch

from anisoscope.results import joined_files
from anisoscope.sources.hf.reading import guards
from anisoscope.sources.hf.reading.extract import forward, read_activations
from anisoscope.utils.errors import UserError
from tests.program import ROOT, command, environment, here
from tests.sources.hf import tiny
from tests.sources.hf.hub import serving

SMALL = (
    *(
        "--config.window=16",
        "--config.measure.points=64",
        "--config.measure.folds=2",
        "--config.measure.batches=2",
    ),
    *("--config.measure.families=('spectrum', 'similarity')", "--config.pretrained.most_bits=100"),
)


@pytest.fixture(scope="module")
def saved(training, tmp_path_factory):
    """Folders of tiny models, an encoder, an OPT and the three checkpoints of a training."""
    folder = tmp_path_factory.mktemp("models")
    for kind in ("bert", "opt"):
        tiny.save(tiny.model(kind), folder / kind)
    shutil.copytree(training, folder / "trained")
    return folder


def flags(training, file, models, run):
    wanted = f"--config.models={','.join(map(str, models))}"
    return (
        f"--config=experiments/{file}",
        wanted,
        f"--config.data.path={training / 'text.txt'}",
        *SMALL,
        run,
    )


def test_models_of_folders_are_measured_and_drawn_together(training, saved, tmp_path):
    run = tmp_path / "run"
    models = [saved / "bert", f"llama={saved / 'trained'}", saved / "none"]
    given = flags(training, "shape_of_learning.py", models, f"--workdir={run}")
    process = tiny.done(*given)
    (left,) = [line for line in process.stdout.splitlines() if line.startswith("left out")]
    assert left.startswith(f"left out: none: {saved / 'none'}: there is no such folder")
    about = json.loads((run / "models.json").read_text())
    assert {label: (one["modality"], one["kind"]) for label, one in about.items()} == {
        "bert": ("text", "encoder"),
        "llama": ("text", "decoder"),
    }
    assert joined_files.read_table(run / "llama" / "results.nc").step.values.tolist() == [0, 20, 60]
    names = {path.stem for path in (run / "figures").glob("*.png")}
    # the family dimension was left out
    assert names == {"anisotropy_over_depth", "anisotropy_by_checkpoint"}
    words = (run / "figures" / "anisotropy_over_depth.txt").read_text()
    assert "outputs of blocks" in words
    assert (run / "report.html").exists()
    assert "llama: 3 checkpoints measured (0 now)" in tiny.done(*given).stdout
    tiny.done(*given, "--config.paper=inherent", "--stages=figures")
    found = pd.read_csv(run / "figures" / "correlations_by_modality.csv")
    assert set(found.over) == {"layers", "layers, models", "models", "within"}


def test_a_model_larger_than_memory_is_left_out(training, saved, tmp_path, monkeypatch):
    monkeypatch.setattr("anisoscope.utils.memory.of_machine", lambda: 50_000)
    process = here(
        *flags(training, "inherent.py", [saved / "bert"], f"--workdir={tmp_path / 'run'}")
    )
    assert process.returncode == 2
    assert f"{saved / 'bert'} has" in process.stderr
    assert "of weights, and 50 kB of memory are available" in process.stderr


def test_hidden_states_as_the_papers_have_them():
    """Outputs of blocks, but for the last of a model with a final norm."""
    tokens = tiny.tokens(4, 12)
    for kind, last in (("opt", False), ("llama", False), ("bert", True)):
        loaded = tiny.loaded(kind)
        blocks, stated = (
            read_activations(loaded, tokens[None], 2, heads=False, reported=reported).resid_ZNWTD[0]
            for reported in (False, True)
        )
        own = forward(loaded, tokens, output_hidden_states=True)
        np.testing.assert_array_equal(stated, torch.stack(own.hidden_states).numpy())
        np.testing.assert_allclose(stated[:-1], blocks[:-1], atol=1e-6)
        assert np.allclose(stated[-1], blocks[-1], atol=1e-6) == last
        words = "all outputs of blocks;" if last else "all outputs of blocks but that of layer 3;"
        said = guards.check_reported(loaded, tokens[0])
        assert words in said
        assert said.endswith("the last one is the last hidden state")


def test_a_model_that_reports_others_is_refused(monkeypatch):
    loaded = tiny.loaded("bert")
    own = loaded.base.forward
    monkeypatch.setattr(
        loaded.base, "forward", lambda **given: own(**given | {"output_hidden_states": False})
    )
    with pytest.raises(UserError, match="BertModel reports 0 hidden states"):
        guards.check_reported(loaded, tiny.tokens()[0])


def test_tables_of_the_two_definitions_are_not_joined_and_a_damaged_list_is_told(
    training, saved, tmp_path
):
    given = (
        *flags(training, "inherent.py", [saved / "opt"], f"--workdir={tmp_path / 'run'}"),
        "--stages=measure",
    )
    tiny.done(*given)
    tiny.one_line(
        here(*given, "--config.hidden_states=reported"),
        "hidden_states='blocks' there, 'reported' now",
    )
    (tmp_path / "run" / "models.json").write_text("{")
    process = here(*given)
    assert process.returncode == 1, process.stderr
    assert "models.json has changed since it was written" in process.stderr.splitlines()[-1]


def test_models_of_a_hub_are_read_and_others_named(training, saved, tmp_path):
    """Of one the main revision is pickled: what the hub's bot proposes is read, and that of nobody
    else.
    """
    (tmp_path / "pickled").mkdir()
    for path in (saved / "opt").iterdir():
        if path.suffix != ".safetensors":
            shutil.copy(path, tmp_path / "pickled")
    torch.save({}, tmp_path / "pickled" / "pytorch_model.bin")
    models = {
        "made/opt": {
            "main": tmp_path / "pickled",
            "refs/pr/3": saved / "bert",
            "refs/pr/7": saved / "opt",
        }
    }
    models |= {"made/bert": {"main": saved / "bert"}}
    proposals = [("made/opt", 3, "somebody"), ("made/opt", 7, "SFconvertbot")]
    names = ["made/opt", "made/bert", "made/gated", "made/unknown"]
    given = flags(training, "inherent.py:paper", names, f"--workdir={tmp_path / 'run'}")

    def start(**where):
        words = command(*given, "--config.measure.families=('similarity',)", "--stages=measure")
        where = environment() | {"HF_HOME": str(tmp_path / "home")} | where
        return subprocess.run(
            words, cwd=ROOT, env=where, capture_output=True, text=True, timeout=600
        )

    with serving(models, proposals, gated=("made/gated",)) as address:
        process = start(HF_ENDPOINT=address)
    assert process.returncode == 0, process.stderr
    left = dict(
        line.split(": ", 2)[1:]
        for line in process.stdout.splitlines()
        if line.startswith("left out")
    )
    assert "gated" in left["gated"]
    assert "is not a valid model identifier" in left["unknown"]
    results = joined_files.read_table(tmp_path / "run" / "opt" / "results.nc")
    assert "OPTForCausalLM" in results.attrs["model"]
    assert "hidden states as transformers reports them" in results.attrs["provenance"]
    process = start(HF_HUB_OFFLINE="1")
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("1 checkpoint measured (0 now)") == 2
    assert "gated cannot be had: the hub does not answer" in process.stdout
