import importlib
import inspect
import json
import pathlib
import re

import pytest

from errors import UserError
from experiments import base

FILES = sorted(
    path.stem
    for path in pathlib.Path(base.__file__).parent.glob("*.py")
    if "def get_config(" in path.read_text() and "untrained" not in path.stem
)


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


@pytest.mark.parametrize("size", ["small", "tiny"])
def test_runs_of_the_laboratory_differ_in_mask_objective_and_seed_only(size):
    runs = base.expand(importlib.import_module("experiments.mask_laboratory").get_config(size))
    cells = {name.rpartition("_")[0] for name in runs}
    assert {f"{cell}_{seed}" for cell in cells for seed in (0, 1)} == set(runs)
    assert len({(run.model.mask, run.model.leak, run.objective) for run in runs.values()}) == len(cells) == 9
    for name, run in runs.items():
        assert name == f"{name.rpartition('_')[0]}_{run.train.seed}"
        run.model.mask, run.model.prefix, run.model.window, run.model.leak = "causal", 0, 0, 0.0
        run.objective, run.train.seed, run.model.leak_seed = "next", 0, 0
    assert all(run == runs["causal_next_0"] for run in runs.values())


@pytest.mark.parametrize("size", ["small", "tiny"])
def test_each_intervention_changes_one_setting_of_the_plain_run_of_its_seed(size):
    runs = base.expand(importlib.import_module("experiments.interventions_small").get_config(size))
    seeds = {name: int(name.rpartition("_")[2]) for name in runs}
    assert set(seeds.values()) == {0, 1}
    for name, run in runs.items():
        plain = base.to_dict(runs[f"softmax_{seeds[name]}"])
        run, same = base.to_dict(run), {"train", "model"} ^ set(plain)
        assert all(run[group] == plain[group] for group in same)
        changed = [
            field for group in ("model", "train") for field in run[group] if run[group][field] != plain[group][field]
        ]
        assert len(changed) == (not name.startswith(f"softmax_{seeds[name]}"))
        assert run["train"]["seed"] == seeds[name]
    assert len({str(base.to_dict(run)) for run in runs.values()}) == len(runs) == 16


def test_a_varied_field_cannot_be_overridden_in_silence():
    config = base.Config(variants={"a": {"train.seed": 1}, "b": {"train.seed": 2}})
    assert [run.train.seed for run in base.expand(config, ["train.steps"]).values()] == [1, 2]
    with pytest.raises(UserError, match=r"train\.seed differs between the runs"):
        base.expand(config, ["train.seed"])


def test_members_are_every_weight_seed_with_every_data_seed_as_plain_runs():
    config = base.Config(train=base.TrainConfig(seed=5, data_seed=1, num_seeds=2, num_data_seeds=3))
    runs = base.members(config)
    assert list(runs) == [f"weights_{w}_data_{d}" for w in (5, 6) for d in (1, 2, 3)]
    assert [(run.train.seed, run.train.data_seed) for run in runs.values()] == base.seeds(config.train)
    for run in runs.values():
        assert list(base.members(run).values()) == [run]
        run.train.seed, run.train.data_seed, run.train.num_seeds, run.train.num_data_seeds = 5, 1, 2, 3
        assert run == config
        assert run.model is not config.model


@pytest.mark.parametrize(
    ("train", "seeds"),
    [
        ({}, [(0, 0)]),
        ({"seed": 7}, [(7, 7)]),
        ({"seed": 7, "data_seed": 0}, [(7, 0)]),
        ({"seed": 7, "num_seeds": 2}, [(7, 7), (7, 8), (8, 7), (8, 8)]),
        ({"num_data_seeds": 2}, [(0, 0), (0, 1)]),
    ],
)
def test_seeds_left_out_follow_those_given(train, seeds):
    assert base.seeds(base.TrainConfig(**train)) == seeds


def test_variants_and_members_are_runs_named_by_both():
    config = base.Config(variants={"a": {"objective": "masked"}, "b": {"train.num_seeds": 2}})
    config.train.num_data_seeds = 1
    runs = base.expand(config)
    assert list(runs) == ["a", "b_weights_0_data_0", "b_weights_1_data_0"]
    assert [(run.objective, run.train.seed) for run in runs.values()] == [("masked", 0), ("next", 0), ("next", 1)]
    assert list(base.groups(config)) == ["a", "b"]
    assert list(base.expand(base.Config(train=base.TrainConfig(num_data_seeds=2)))) == [
        "weights_0_data_0",
        "weights_0_data_1",
    ]


def test_two_runs_of_one_name_are_refused():
    config = base.Config(variants={"a": {"train.num_data_seeds": 2}, "a_weights_0_data_0": {}})
    with pytest.raises(UserError, match="two runs of this experiment are named a_weights_0_data_0"):
        base.expand(config)


def validate_all(config):
    for run in base.expand(config).values():
        base.validate(run)


@pytest.mark.parametrize(
    ("train", "words"),
    [
        ({"num_seeds": 0}, r"train\.num_seeds is 0; it must be at least 1"),
        ({"num_seeds": 2, "num_data_seeds": 0}, r"train\.num_data_seeds is 0"),
        ({"num_seeds": 33}, r"33 × 33; 1024 runs at most"),
        ({"seed": 2**32 - 1, "num_seeds": 2}, r"train\.(data_)?seed is 4294967296; it must lie in"),
        ({"data_seed": 2**32 - 1, "num_data_seeds": 2}, r"train\.data_seed is 4294967296; it must lie in"),
        ({"data_seed": -1}, r"train\.data_seed is -1"),
    ],
)
def test_seeds_that_cannot_be_are_refused(train, words):
    with pytest.raises(UserError, match=words) as error:
        validate_all(base.Config(train=base.TrainConfig(**train)))
    assert "\n" not in str(error.value)


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
        ("model.attention", "linear"),
        ("model.prefix", 4),
        ("model.window", 4),
        ("model.leak", 0.5),
        ("model.leak", -0.1),
        ("model.leak", float("nan")),
        ("model.leak_seed", -1),
        ("model.mask", "prefix"),
        ("model.mask", "window"),
        ("train.penalty", float("inf")),
        ("train.penalty_layers", (7,)),
        ("train.penalty_layers", (-1,)),
        ("train.penalty_layers", (2, 2)),
        ("train.penalty_layers", ("a",)),
        ("train.penalty_layers", (1.5,)),
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
        ("measure.families", ("spectrum", "spectrum")),
        ("measure.families", ("projection",)),
        ("measure.projected_head", 8),
        ("measure.projected_head", -1),
        ("measure.nulls", ("gauss",)),
        ("measure.nulls", ("shuffled", "shuffled")),
        ("measure.groups", 3),
        ("measure.groups", 0),
        ("measure.points", 2),
        ("mesh.data", 0),
        ("mesh.members", 0),
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


def many(**settings):
    config = base.Config()
    for path, value in settings.items():
        group, _, name = path.rpartition("__")
        setattr(getattr(config, group) if group else config, name, value)
    return config


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model__mask": "window", "model__window": 513}, r"model\.window is 513.*context=512"),
        ({"model__mask": "prefix", "model__prefix": 513}, r"model\.prefix is 513.*context=512"),
        ({"model__mask": "leak", "model__leak": 1.5, "objective": "masked"}, r"model\.leak is 1\.5"),
        ({"model__mask": "leak", "model__leak": 0.01}, r"model\.mask=leak shows the answer"),
        ({"model__mask": "prefix", "model__prefix": 512}, r"model\.mask=prefix shows the answer"),
        (
            {"model__mask": "prefix", "model__prefix": 500, "evaluate__stride": 14},
            r"evaluate\.stride is 14.* 13 targets",
        ),
        ({"model__sink": True, "model__attention": "sigmoid"}, r"model\.sink .* attention=sigmoid"),
        ({"model__sink": True, "model__attention": "softmax_one"}, r"model\.sink .* attention=softmax_one"),
        ({"train__penalty": 0.1, "train__accumulate": 2}, r"train\.penalty .* train\.accumulate=2"),
    ],
)
def test_settings_that_do_not_go_together(settings, words):
    with pytest.raises(UserError, match=words) as error:
        base.validate(many(**settings))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"model__mask": "window", "model__window": 512},
        {"model__mask": "prefix", "model__prefix": 511},
        {"model__mask": "prefix", "model__prefix": 500, "evaluate__stride": 13},
        {"model__mask": "prefix", "model__prefix": 512, "objective": "masked"},
        {"model__mask": "leak"},
        {"model__mask": "leak", "model__leak": 1.0, "objective": "masked"},
        {"train__penalty": -1.0, "train__penalty_layers": (0, 6)},
    ],
)
def test_settings_at_their_limits_go(settings):
    base.validate(many(**settings))
    config = many(**settings)
    assert base.from_dict(base.to_dict(config)) == config


@pytest.mark.parametrize(("path", "value"), [("penalty_layers", ["1"]), ("penalty_layers", 1), ("log_every", [])])
def test_a_tuple_of_the_wrong_type_is_refused(path, value):
    values = base.to_dict(base.Config())
    values["train"][path] = value
    with pytest.raises(UserError, match=rf"train\.{path} is {re.escape(repr(value))}, not"):
        base.from_dict(values)
