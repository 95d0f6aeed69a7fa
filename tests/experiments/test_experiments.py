import importlib
import inspect
import json
import pathlib
import re

import pytest

import experiments
from experiments import recipes, variants
from experiments.config import Config, check
from workdir.errors import UserError
from workdir.settings import from_dict, replace, to_dict

FILES = sorted(  # of trained runs
    path.stem
    for path in pathlib.Path(experiments.__file__).parent.glob("*.py")
    if "def get_config(" in path.read_text() and "-> Config:" in path.read_text()
)


def configs():
    for name in FILES:
        get_config = importlib.import_module(f"experiments.{name}").get_config
        yield name, get_config()
        if inspect.signature(get_config).parameters:
            yield f"{name}:tiny", get_config("tiny")
            for recipe in recipes.RECIPES:
                yield f"{name}:tiny,{recipe}", get_config(f"tiny,{recipe}")
                yield f"{name}:small,{recipe}", get_config(f"small,{recipe}")


@pytest.mark.parametrize(("name", "config"), list(configs()), ids=lambda v: v if isinstance(v, str) else "")
def test_every_experiment_validates_and_round_trips_through_json(name, config):
    assert from_dict(json.loads(json.dumps(to_dict(config))), type(config)) == config
    for run in variants.expand(config).values():
        check(run)
        assert not run.variants
        assert from_dict(to_dict(run), Config) == run


def test_the_twins_differ_in_mask_and_objective_only():
    for decoder, encoder in (
        [importlib.import_module(f"experiments.{n}_small").get_config() for n in ("decoder", "encoder")],
        list(variants.expand(importlib.import_module("experiments.twins_small").get_config()).values()),
        list(variants.expand(importlib.import_module("experiments.quickstart").get_config()).values()),
    ):
        assert (decoder.model.mask, decoder.objective) == ("causal", "next")
        assert (encoder.model.mask, encoder.objective) == ("bidirectional", "masked")
        encoder = replace(encoder, {"model.mask": "causal", "objective": "next"})
        assert encoder == decoder


@pytest.mark.parametrize("size", ["small", "tiny"])
@pytest.mark.parametrize("name", FILES)
def test_a_recipe_is_the_optimizer_and_positions_and_nothing_else(name, size):
    """No rate of one optimizer is left to another; what is not named is as without a recipe."""
    get_config = importlib.import_module(f"experiments.{name}").get_config
    if not inspect.signature(get_config).parameters:
        return
    default = get_config(size)
    for recipe, settings in recipes.RECIPES.items():
        config = get_config(f"{size},{recipe}")
        rate = config.train.learning_rate
        assert rate == settings["train.learning_rate"] if recipe == "muon" else rate <= 3e-3
        named = ("train.optimizer", "train.learning_rate", "train.schedule", "model.positions")
        values = {path: getattr(getattr(config, path.split(".")[0]), path.split(".")[1]) for path in named}
        assert values.items() >= settings.items()
        assert replace(default, values) == config


def test_an_unknown_size_or_recipe_is_refused():
    for argument, words in (("huge", "choose small or tiny"), ("tiny,sgd", "choose one of gpt2, rotary, muon")):
        with pytest.raises(UserError, match=words):
            importlib.import_module("experiments.twins_small").get_config(argument)


@pytest.mark.parametrize("size", ["small", "tiny"])
def test_runs_of_the_laboratory_differ_in_mask_objective_and_seed_only(size):
    runs = variants.expand(importlib.import_module("experiments.mask_laboratory").get_config(size))
    cells = {name.rpartition("_")[0] for name in runs}
    assert {f"{cell}_{seed}" for cell in cells for seed in (0, 1)} == set(runs)
    assert len({(run.model.mask, run.model.leak, run.objective) for run in runs.values()}) == len(cells) == 9
    for name, run in runs.items():
        assert name == f"{name.rpartition('_')[0]}_{run.train.seed}"
        alike = {"model.mask": "causal", "model.prefix": 0, "model.window": 0, "model.leak": 0.0}
        alike |= {"objective": "next", "train.seed": 0, "model.leak_seed": 0}
        assert replace(run, alike) == runs["causal_next_0"]


@pytest.mark.parametrize("size", ["small", "tiny"])
def test_each_intervention_changes_one_setting_of_the_plain_run_of_its_seed(size):
    runs = variants.expand(importlib.import_module("experiments.interventions_small").get_config(size))
    seeds = {name: int(name.rpartition("_")[2]) for name in runs}
    assert set(seeds.values()) == {0, 1}
    for name, run in runs.items():
        plain = to_dict(runs[f"softmax_{seeds[name]}"])
        run, same = to_dict(run), {"train", "model"} ^ set(plain)
        assert all(run[group] == plain[group] for group in same)
        changed = [
            field for group in ("model", "train") for field in run[group] if run[group][field] != plain[group][field]
        ]
        assert len(changed) == (not name.startswith(f"softmax_{seeds[name]}"))
        assert run["train"]["seed"] == seeds[name]
    assert len({str(to_dict(run)) for run in runs.values()}) == len(runs) == 16


@pytest.mark.parametrize(("path", "value"), [("penalty_layers", ["1"]), ("penalty_layers", 1), ("log_every", [])])
def test_a_tuple_of_the_wrong_type_is_refused(path, value):
    values = to_dict(Config())
    values["train"][path] = value
    with pytest.raises(UserError, match=rf"train\.{path} is {re.escape(repr(value))}, not"):
        from_dict(values, Config)
