import pytest

from anisoscope.config import variants
from anisoscope.config.experiment_config import Config
from anisoscope.config.run_config import TrainConfig
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace


def test_a_varied_field_cannot_be_overridden_in_silence():
    config = Config(variants={"a": {"train.seed": 1}, "b": {"train.seed": 2}})
    assert [run.train.seed for run in variants.expand(config, ["train.steps"]).values()] == [1, 2]
    with pytest.raises(UserError, match=r"train\.seed differs between the runs"):
        variants.expand(config, ["train.seed"])


def test_members_are_every_weight_seed_with_every_data_seed_as_plain_runs():
    config = Config(train=TrainConfig(seed=5, data_seed=1, num_seeds=2, num_data_seeds=3))
    runs = variants.single_runs(config)
    assert list(runs) == [f"weights_{w}_data_{d}" for w in (5, 6) for d in (1, 2, 3)]
    assert [(run.train.seed, run.train.data_seed) for run in runs.values()] == variants.seed_pairs(
        config.train
    )
    for run in runs.values():
        assert list(variants.single_runs(run).values()) == [run]
        run = replace(
            run,
            {
                "train.seed": 5,
                "train.data_seed": 1,
                "train.num_seeds": 2,
                "train.num_data_seeds": 3,
            },
        )
        assert run == config
        assert run.model is not config.model


def test_variants_and_members_are_runs_named_by_both():
    config = Config(variants={"a": {"objective": "masked"}, "b": {"train.num_seeds": 2}})
    config = replace(config, {"train.num_data_seeds": 1})
    runs = variants.expand(config)
    assert list(runs) == ["a", "b_weights_0_data_0", "b_weights_1_data_0"]
    assert [(run.objective, run.train.seed) for run in runs.values()] == [
        ("masked", 0),
        ("next", 0),
        ("next", 1),
    ]
    assert list(variants.groups(config)) == ["a", "b"]
    alone = Config(train=TrainConfig(num_data_seeds=2))
    assert list(variants.expand(alone)) == ["weights_0_data_0", "weights_0_data_1"]


@pytest.mark.parametrize("field", ["train.seed", "train.data_seed"])
@pytest.mark.parametrize("count", ["train.num_seeds", "train.num_data_seeds"])
def test_seeds_are_set_or_counted_and_not_both(field, count):
    """Seeds 0 and 1, two of each, would be 0, 1 and 1, 2."""
    config = Config(variants={f"plain_{seed}": {field: seed} for seed in (0, 1)})
    assert len(variants.expand(config)) == 2
    with pytest.raises(
        UserError,
        match=rf"{count} is 2, but variant 'plain_0' sets its own seed; omit either",
    ):
        variants.expand(replace(config, {count: 2}))
    config = Config(variants={"low": {field: 0, count: 2}, "high": {field: 7, count: 2}})
    assert len(variants.expand(config)) == 4 * (1 + (count == "train.num_seeds"))


def test_an_experiment_with_an_unknown_or_ill_typed_variant_is_refused():
    for name, changes, words in (
        ("a", {"train.stps": 1}, "config field train.stps does not exist"),
        ("a", {"train.steps": "1"}, "train.steps is '1'"),
        ("a", {"modle.mask": "causal"}, "config field modle.mask does not exist"),
        ("a", {"objective.x": 1}, "config field objective.x does not exist"),
        ("../a", {}, "cannot be the name of a folder"),
        ("figures", {}, "variant 'figures'"),
    ):
        with pytest.raises(UserError, match=words):
            variants.expand(Config(variants={name: changes}))


@pytest.mark.parametrize(
    ("train", "seeds"),
    [({"seed": 7}, [(7, 7)]), ({"seed": 7, "num_seeds": 2}, [(7, 7), (7, 8), (8, 7), (8, 8)])],
)
def test_seeds_of_data_that_are_left_out_follow_those_of_weights(train, seeds):
    assert variants.seed_pairs(TrainConfig(**train)) == seeds
