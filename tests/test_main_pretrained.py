"""Settings of pretrained models and lists of them, where nothing that reads a model is installed."""

import importlib.util
import json
import sys

import pytest

from anisoscope.cli.flags import experiment_name, load_experiment
from anisoscope.config import pretrained_config
from anisoscope.config.pretrained_config import (
    WeightsConfig,
    check_models,
    check_pretrained,
    model_labels,
    revision_steps,
    select_model,
)
from anisoscope.experiments import inherent, pretrained, shape_of_learning
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import from_dict, to_dict
from tests.program import override, refuse

FILE = "--config=experiments/pretrained.py"


def test_a_name_may_hold_slashes_and_colons(tmp_path):
    config = load_experiment("experiments/pretrained.py:https:/hub/model")
    assert config.pretrained.name == "https:/hub/model"
    name = experiment_name("experiments/pretrained.py:EleutherAI/pythia-160m")
    assert name == "pretrained_EleutherAI_pythia-160m"
    assert experiment_name(f"experiments/pretrained.py:{tmp_path}") == f"pretrained_{tmp_path.name}"


def test_settings_go_through_json_and_flags():
    texts = {"pretrained.revisions": "('step1', 'step20')", "window": "64"}
    config = override(pretrained.get_config("a/b"), texts)
    assert config.pretrained.revisions == ("step1", "step20")
    assert from_dict(json.loads(json.dumps(to_dict(config))), type(config)) == config
    check_pretrained(config)


def test_what_counts_the_text_of_a_training_is_refused():
    config = pretrained.get_config("a/b")
    assert "frequency" not in config.measure.families
    with pytest.raises(UserError, match="frequency"):
        check_pretrained(override(config, {"measure.families": "spectrum,frequency"}))


def test_steps_are_read_from_names():
    names = ("step1000", "checkpoint-20", "stage1-step7-tokens4B", "step0")
    found = revision_steps(WeightsConfig(name="a", revisions=names))
    assert found == {0: "step0", 7: "stage1-step7-tokens4B", 20: "checkpoint-20", 1000: "step1000"}
    # at 0 it would be its own untrained null model
    assert revision_steps(WeightsConfig(name="a")) == {1: None}
    stages = ("stage1-step9-tokens4B", "stage2-step1-tokens4B")
    for wrong in (("main",), ("step1", "step01"), ("a1-b2",), ("step20k",), stages):
        with pytest.raises(UserError, match=r"pretrained\.revisions"):
            revision_steps(WeightsConfig(name="a", revisions=wrong))


@pytest.mark.skipif(bool(importlib.util.find_spec("torch")), reason="it is installed")
def test_without_torch_one_line_says_what_installs_it(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "anisoscope.sources.hf.revision_sweep", raising=False)
    refuse(tmp_path / "run", "anisoscope[pretrained]", f"{FILE}:a/b")


@pytest.mark.parametrize("experiment", [shape_of_learning, inherent])
@pytest.mark.parametrize("size", ["", "paper"])
def test_every_list_validates_and_goes_through_json(experiment, size):
    found = experiment.get_config(size)
    check_models(found)
    assert from_dict(json.loads(json.dumps(to_dict(found))), type(found)) == found
    assert set(found.models) <= set(found.listed)
    for known in found.listed.values():
        assert known["modality"] in pretrained_config.MODALITIES
        assert known["kind"] in pretrained_config.MODEL_KINDS


def test_the_preparation_of_the_paper_is_one_word_and_every_part_of_it_a_flag():
    ours, theirs = (shape_of_learning.get_config(size) for size in ("", "paper"))
    assert (ours.hidden_states, ours.data.clean, ours.characters) == ("blocks", False, None)
    assert (theirs.hidden_states, theirs.data.clean, theirs.characters) == ("reported", True, 512)
    assert (theirs.measure.points, theirs.measure.folds, theirs.special_tokens) == (4096, 1, True)
    assert theirs.models == ours.models
    again = override(theirs, {"hidden_states": "blocks", "measure.points": "64"})
    assert (again.hidden_states, again.measure.points, again.characters) == ("blocks", 64, 512)
    with pytest.raises(UserError, match="papre"):
        shape_of_learning.get_config("small,papre")


def test_what_a_model_is_called():
    names = {"opt-125m": "facebook/opt-125m", "tiny.Q4": "/a/b/tiny.Q4.gguf", "c": "../c/"}
    assert model_labels((*names.values(), "MiniLM=/x/model")) == names | {"MiniLM": "/x/model"}
    wrongs = (("a/model", "b/model"), "same label"), (("..",), "name"), (("x/figures",), "figures")
    for wrong, word in (*wrongs, (("name=",), "name")):
        with pytest.raises(UserError, match=word):
            model_labels(wrong)


def test_each_model_is_measured_as_one_alone(tmp_path):
    listed = shape_of_learning.get_config()
    found = select_model(listed, "pythia-2.8b")
    assert found.pretrained.name == "EleutherAI/pythia-2.8b"
    assert found.pretrained.revisions[0] == "step0"
    assert not select_model(listed, "opt-125m").pretrained.revisions
    steps = tmp_path / "training"
    for name in ("step100", "step1", "other", "a1-b2", "step20", "step30-tokens4B"):
        (steps / name).mkdir(parents=True)
        (steps / name / "config.json").write_text("{}")
    (steps / "step3").mkdir()  # which holds no model
    find = pretrained_config.find_revisions
    revisions = ("step1", "step20", "step30-tokens4B", "step100")
    assert find(str(steps)) == revisions
    assert find(str(steps / "step1")) == find("facebook/opt-125m") == ()
    folder = override(listed, {"models": f"mine={steps}"})
    assert select_model(folder, "mine").pretrained.revisions == revisions
