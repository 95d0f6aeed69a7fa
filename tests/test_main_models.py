"""Lists of pretrained models and their settings, where nothing that reads one is installed."""

import importlib
import json

import pytest

from anisoscope.config.pretrained_models import (
    KINDS,
    MODALITIES,
    ModelsConfig,
    check_models,
    find_revisions,
    model_config,
    model_labels,
)
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import from_dict, to_dict
from tests.program import override


def config(name, size=""):
    return importlib.import_module(f"anisoscope.experiments.{name}").get_config(size)


@pytest.mark.parametrize(
    ("name", "size"),
    [(name, size) for name in ("shape_of_learning", "inherent") for size in ("", "paper")]
    + [("shape_of_learning", "small,paper")],
)
def test_every_list_validates_and_goes_through_json(name, size):
    found = config(name, size)
    check_models(found)
    assert found.paper == name
    assert from_dict(json.loads(json.dumps(to_dict(found))), ModelsConfig) == found
    assert set(found.models) <= set(found.listed)
    for known in found.listed.values():
        assert known["modality"] in MODALITIES
        assert known["kind"] in KINDS


def test_the_preparation_of_the_paper_is_one_word_and_every_part_of_it_a_flag():
    ours, theirs = config("shape_of_learning"), config("shape_of_learning", "paper")
    assert (ours.hidden_states, ours.data.clean, ours.characters) == ("blocks", False, None)
    assert (theirs.hidden_states, theirs.data.clean, theirs.characters) == ("reported", True, 512)
    assert (theirs.measure.points, theirs.measure.folds, theirs.special_tokens) == (4096, 1, True)
    assert theirs.models == ours.models
    again = override(theirs, {"hidden_states": "blocks", "measure.points": "64"})
    assert (again.hidden_states, again.measure.points, again.characters) == ("blocks", 64, 512)
    with pytest.raises(UserError, match="papre"):
        config("shape_of_learning", "small,papre")


def test_what_a_model_is_called():
    found = model_labels(("facebook/opt-125m", "/a/b/tiny.Q4.gguf", "MiniLM=/x/model", "../c/"))
    assert found == {
        "opt-125m": "facebook/opt-125m",
        "tiny.Q4": "/a/b/tiny.Q4.gguf",
        "MiniLM": "/x/model",
        "c": "../c/",
    }
    wrongs = (("a/model", "b/model"), "same label"), (("..",), "name"), (("x/figures",), "figures")
    for wrong, word in (*wrongs, (("name=",), "name")):
        with pytest.raises(UserError, match=word):
            model_labels(wrong)


def test_each_model_is_measured_as_one_alone(tmp_path):
    listed = config("shape_of_learning")
    found = model_config(listed, "pythia-2.8b")
    assert found.pretrained.name == "EleutherAI/pythia-2.8b"
    assert found.pretrained.revisions[0] == "step0"
    assert not model_config(listed, "opt-125m").pretrained.revisions
    for name in ("step100", "step1", "other", "step20", "step3"):
        (tmp_path / "training" / name).mkdir(parents=True)
        if name != "step3":  # which holds no model
            (tmp_path / "training" / name / "config.json").write_text("{}")
    assert find_revisions(str(tmp_path / "training")) == ("step1", "step20", "step100")
    assert (
        find_revisions(str(tmp_path / "training" / "step1"))
        == find_revisions("facebook/opt-125m")
        == ()
    )
    folder = override(listed, {"models": f"mine={tmp_path / 'training'}"})
    assert model_config(folder, "mine").pretrained.revisions == ("step1", "step20", "step100")
