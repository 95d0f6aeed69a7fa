"""A list of models as users start it: local folders, a hub that holds some of them, figures of what
could be had.
"""

import json
import shutil
from unittest import mock

import pandas as pd
import pytest

from anisoscope.results import joined_files
from anisoscope.sources.hf import load_model, pretrained_weights
from anisoscope.utils.errors import UserError
from tests.program import here
from tests.sources.hf import tiny_models


@pytest.fixture(scope="module")
def saved(training, tmp_path_factory):
    """Folders of tiny models, an encoder, an OPT and the three checkpoints of a training."""
    folder = tmp_path_factory.mktemp("models")
    for kind in ("bert", "opt"):
        tiny_models.save(tiny_models.model(kind), folder / kind)
    ignored = shutil.ignore_patterns("step4", "step8")
    shutil.copytree(training, folder / "trained", ignore=ignored)
    return folder


def flags(training, file, models, run):
    return (
        f"--config=experiments/{file}",
        f"--config.models={','.join(map(str, models))}",
        f"--config.data.path={training / 'text.txt'}",
        *tiny_models.SMALL,
        "--config.measure.families=spectrum,similarity",
        "--config.pretrained.max_bits_per_byte=100",
        f"--workdir={run}",
    )


def test_models_of_folders_are_measured_and_drawn_together(training, saved, tmp_path):
    run = tmp_path / "run"
    models = [saved / "bert", f"llama={saved / 'trained'}", saved / "none"]
    given = flags(training, "shape_of_learning.py", models, run)
    process = tiny_models.run(*given)
    (left,) = [line for line in process.stdout.splitlines() if line.startswith("left out")]
    assert left.startswith(f"left out: none: {saved / 'none'}: no such folder exists")
    about = json.loads((run / "models.json").read_text())
    kinds = {label: (model["modality"], model["kind"]) for label, model in about.items()}
    assert kinds == {"bert": ("text", "encoder"), "llama": ("text", "decoder")}
    assert joined_files.read_table(run / "llama" / "results.nc").step.values.tolist() == [0, 20, 60]
    names = {path.stem for path in (run / "figures").glob("*.png")}
    assert names == {"anisotropy_over_depth", "anisotropy_by_checkpoint"}
    assert "outputs of blocks" in (run / "figures" / "anisotropy_over_depth.txt").read_text()
    again = tiny_models.run(*given, "--stages=measure")
    assert "llama: 3 checkpoints measured (0 now)" in again.stdout
    tiny_models.run(*given, "--config.paper=inherent", "--stages=figures")
    found = pd.read_csv(run / "figures" / "correlations.csv")
    assert {"layers", "layers, runs", "layers within runs"} <= set(found.over)


def test_a_model_larger_than_memory_is_left_out(training, saved, tmp_path, monkeypatch):
    monkeypatch.setattr("anisoscope.utils.memory.machine_memory", lambda: 50_000)
    process = here(*flags(training, "inherent.py", [saved / "bert"], tmp_path / "run"))
    assert process.returncode == 2
    assert f"{saved / 'bert'} has" in process.stderr
    assert "50 kB of memory are available" in process.stderr


@pytest.mark.parametrize("answers", [True, False])
def test_of_pickled_weights_the_bot_s_proposal_is_read(answers, monkeypatch, tmp_path):
    """Not others' proposals; without an answer of the hub, what the cache of downloads has."""
    names = [(3, "somebody"), (7, pretrained_weights.BOT)]
    proposals = [
        mock.Mock(author=author, title="Adding `safetensors`", git_reference=f"refs/pr/{number}")
        for number, author in names
    ]
    api = mock.Mock(**{"get_repo_discussions.return_value": proposals})
    monkeypatch.setattr(pretrained_weights.huggingface_hub, "HfApi", lambda: api)
    monkeypatch.setattr(pretrained_weights, "hub_answers", lambda: answers)
    monkeypatch.setattr(pretrained_weights.constants, "HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "models--made--opt"
    offline = {} if answers else {"local_files_only": True}
    for file, revision in (("pytorch_model.bin", "refs/pr/7"), ("model.safetensors", None)):
        api.list_repo_files.return_value = [file]
        for reference, name in (("main", file), ("refs/pr/7", "model.safetensors")):
            commit = reference.replace("/", "")
            for path, content in (
                (f"refs/{reference}", commit),
                (f"snapshots/{commit}/{name}", ""),
            ):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_text(content)
        pretrained_weights.safe_revision.cache_clear()
        location = pretrained_weights.find_weights("made/opt", None)
        assert location.options == ({} if revision is None else {"revision": revision}) | offline
    pretrained_weights.safe_revision.cache_clear()
    if not answers:
        with pytest.raises(UserError, match="the hub does not answer, and the cache has no copy"):
            load_model.read_settings(location._replace(name="made/unknown"))
