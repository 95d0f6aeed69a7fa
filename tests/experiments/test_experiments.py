import importlib
import inspect
import json
import pathlib

import pytest

from errors import UserError
from experiments import base

FILES = sorted(p.stem for p in pathlib.Path(base.__file__).parent.glob("*.py") if p.stem not in ("base", "__init__"))


def configs():
    for name in FILES:
        get_config = importlib.import_module(f"experiments.{name}").get_config
        yield name, get_config()
        if inspect.signature(get_config).parameters:
            yield f"{name}:tiny", get_config("tiny")


@pytest.mark.parametrize(("name", "config"), list(configs()), ids=lambda v: v if isinstance(v, str) else "")
def test_every_experiment_validates_and_round_trips_through_json(name, config):
    assert base.from_dict(json.loads(json.dumps(base.to_dict(config)))) == config
    for run in base.expand(config).values():
        base.validate(run)
        assert not run.variants
        assert base.from_dict(base.to_dict(run)) == run


def test_the_twins_differ_in_mask_and_objective_only():
    for decoder, encoder in (
        [importlib.import_module(f"experiments.{n}_small").get_config() for n in ("decoder", "encoder")],
        list(base.expand(importlib.import_module("experiments.twins_small").get_config()).values()),
        list(base.expand(importlib.import_module("experiments.quickstart").get_config()).values()),
    ):
        assert (decoder.model.mask, decoder.objective) == ("causal", "next")
        assert (encoder.model.mask, encoder.objective) == ("bidirectional", "masked")
        encoder.model.mask, encoder.objective = "causal", "next"
        assert encoder == decoder


def test_a_varied_field_cannot_be_overridden_in_silence():
    config = base.Config(variants={"a": {"train.seed": 1}, "b": {"train.seed": 2}})
    assert [run.train.seed for run in base.expand(config, ["train.steps"]).values()] == [1, 2]
    with pytest.raises(UserError, match=r"train\.seed differs between the runs"):
        base.expand(config, ["train.seed"])


def test_an_experiment_with_an_unknown_or_ill_typed_variant_is_refused():
    for name, changes, words in (
        ("a", {"train.stps": 1}, "train.stps is unknown"),
        ("a", {"train.steps": "1"}, "train.steps is '1'"),
        ("a", {"modle.mask": "causal"}, "no config field modle.mask"),
        ("a", {"objective.x": 1}, "no config field objective.x"),
        ("../a", {}, "becomes a folder"),
    ):
        with pytest.raises(UserError, match=words):
            base.expand(base.Config(variants={name: changes}))


def change(path, value):
    config = base.Config()
    group, _, name = path.rpartition(".")
    setattr(getattr(config, group) if group else config, name, value)
    return config


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("data.source", "enwik9"),
        ("model.mask", "diagonal"),
        ("model.norm", "none"),
        ("model.heads", 7),
        ("model.layers", 0),
        ("model.dtype", "float16"),
        ("objective", "both"),
        ("train.steps", -1),
        ("train.accumulate", 3),
        ("train.learning_rate", -1.0),
        ("train.learning_rate", float("nan")),
        ("train.beta2", 1.5),
        ("train.beta1", 1.0),
        ("train.learning_rate", float("inf")),
        ("train.seed", 2**64),
        ("measure.families", ()),
        ("train.log_every", 0),
        ("evaluate.stride", 513),
        ("measure.families", ("spectra",)),
        ("measure.points", 2),
        ("mesh.data", 0),
        ("model.mask", "bidirectional"),
    ],
)
def test_what_cannot_run_is_refused_in_one_line_that_names_it(path, value):
    with pytest.raises(UserError) as error:
        base.validate(change(path, value))
    assert path in str(error.value)
    assert "\n" not in str(error.value)


def test_rotary_needs_an_even_head_width():
    config = base.Config(model=base.ModelConfig(width=6, heads=2, positions="rotary"))
    with pytest.raises(UserError, match="even head width"):
        base.validate(config)
