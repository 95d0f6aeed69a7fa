"""What a pretrained model's settings may be, where nothing that reads one is installed."""

import importlib.util
import json
import sys

import pytest

from anisoscope.cli.flags import experiment_name, load
from anisoscope.config.pretrained_config import (
    PretrainedConfig,
    WeightsConfig,
    check_pretrained,
    revision_steps,
)
from anisoscope.experiments import pretrained as experiment
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import from_dict, to_dict
from tests.program import override, refuse

FILE = "--config=experiments/pretrained.py"


def test_a_name_may_hold_slashes_and_colons(tmp_path):
    config = load("experiments/pretrained.py:https:/hub/model")
    assert config.pretrained.name == "https:/hub/model"
    assert (
        experiment_name("experiments/pretrained.py:EleutherAI/pythia-160m")
        == "pretrained_EleutherAI_pythia-160m"
    )
    assert experiment_name(f"experiments/pretrained.py:{tmp_path}") == f"pretrained_{tmp_path.name}"


def test_settings_go_through_json_and_flags():
    config = override(
        experiment.get_config("a/b"),
        {"pretrained.revisions": "('step1', 'step20')", "window": "64"},
    )
    assert config.pretrained.revisions == ("step1", "step20")
    assert from_dict(json.loads(json.dumps(to_dict(config))), PretrainedConfig) == config
    check_pretrained(config)


def test_what_counts_the_text_of_a_training_is_refused():
    config = experiment.get_config("a/b")
    assert "frequency" not in config.measure.families
    with pytest.raises(UserError, match="frequency"):
        check_pretrained(override(config, {"measure.families": "spectrum,frequency"}))


def test_steps_are_read_from_names():
    names = ("step1000", "checkpoint-20", "stage1-step7-tokens4B", "step0")
    found = revision_steps(WeightsConfig(name="a", revisions=names))
    assert found == {0: "step0", 7: "stage1-step7-tokens4B", 20: "checkpoint-20", 1000: "step1000"}
    # at 0 it would be its own untrained null model
    assert revision_steps(WeightsConfig(name="a")) == {1: None}
    for wrong in (("main",), ("step1", "step01"), ("a1-b2",)):
        with pytest.raises(UserError, match=r"pretrained\.revisions"):
            revision_steps(WeightsConfig(name="a", revisions=wrong))


@pytest.mark.skipif(bool(importlib.util.find_spec("torch")), reason="it is installed")
def test_without_torch_one_line_says_what_installs_it(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "anisoscope.sources.hf.revision_sweep", raising=False)
    refuse(tmp_path / "run", "in a checkout, make .venv-pretrained", f"{FILE}:a/b")
