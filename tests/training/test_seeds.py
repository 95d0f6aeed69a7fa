"""Several seeds, trained together: each is its solo run."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.config import variants
from anisoscope.training import loop, train_program
from anisoscope.utils.processes import Stop
from anisoscope.utils.settings import replace
from tests import tiny
from tests.training.test_loop import everything, log_without_speed
from tests.training.test_step import assert_close, masked, trained


def config(**settings):
    """Weight seeds 3 and 4, each with data seeds 1 and 2, of the masked objective: more is drawn at
    random.
    """
    return masked(tiny.config(**{"seed": 3, "data_seed": 1, "num_seeds": 2} | settings))


def train(config, folder, **folders):
    paths = {name: folder / name for name in variants.single_runs(config)} | folders
    with Stop() as stop:
        loop.train(config, tiny.corpus(), paths, "group", stop)


def outcome(folder, config):
    """All that a run leaves, but for its speed."""
    return everything(folder, config), log_without_speed(folder), (folder / "test.json").read_text()


def outcomes(folder, config):
    return {name: outcome(folder / name, run) for name, run in variants.single_runs(config).items()}


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """The group, never stopped."""
    folder = tmp_path_factory.mktemp("together")
    train(config(), folder)
    return folder, outcomes(folder, config())


@pytest.fixture
def copied(together, tmp_path):
    folder = tmp_path / "group"
    shutil.copytree(together[0], folder)
    return folder


@pytest.mark.slow
def test_each_seed_is_bitwise_its_solo_run(together, tmp_path):
    """Parameters and optimizer state of all checkpoints, log and test score."""
    found, runs = together[1], list(variants.single_runs(config()).items())
    for name, run in (runs[i] for i in (0, 3)):  # of the last both seeds differ
        train(run, tmp_path, **{"": tmp_path / name})
        assert outcome(tmp_path / name, run) == found[name]
    assert len({str(result) for result in found.values()}) == 4
    # the weight seed alone is in step 0
    assert len({str(result[0][0]) for result in found.values()}) == 2


def test_runs_that_differ_in_seeds_alone_share_a_compiled_program():
    """Whose key is its text: a seed is nowhere in it."""
    texts = set()
    for seed in (3, 4):
        made = train_program.make_train_program(
            tiny.config(seed=seed, data_seed=seed + 7), tiny.corpus()
        )
        state = jax.eval_shape(made.stack, [made.abstract])
        texts.add(made.steps.lower(state, made.tokens_N, made.data_R, jnp.int32(1)).as_text())
    assert len(texts) == 1


@pytest.mark.parametrize(("data", "fsdp", "at_once"), [(8, 1, 1), (2, 4, 2)])
# the quick one: measuring on many devices, in tests/sources/test_sweep_programs.py
@pytest.mark.slow
@pytest.mark.usefixtures("eight_devices")
def test_eight_devices_equal_one(data, fsdp, at_once):
    settings, corpus = config(num_data_seeds=1), tiny.corpus()
    settings = replace(settings, {"mesh.data": data, "mesh.fsdp": fsdp, "mesh.seeds": at_once})
    many = train_program.make_train_program(settings, corpus)
    states, metrics = many.steps(many.create(), many.tokens_N, many.data_R, jnp.int32(3))
    kernel = states.params["blocks"]["mlp_up"]["kernel"]
    assert len({shard.device for shard in kernel.addressable_shards}) == 8
    assert kernel.addressable_shards[0].data.size == kernel.size // fsdp
    for i, (weights, seed) in enumerate(variants.seed_pairs(settings.train)):
        one, one_metrics = trained(config(seed=weights, data_seed=seed, num_seeds=1))
        np.testing.assert_allclose(metrics.loss[i, :3], [m.loss for m in one_metrics], rtol=1e-5)
        run = many.select_seed(states, i)
        assert jax.tree.map(lambda leaf: leaf.sharding, run) == jax.tree.map(
            lambda a: a.sharding, many.abstract
        )
        assert_close(one.params, run.params, atol=1e-4)


@pytest.mark.slow
def test_a_lost_member_sends_all_back_and_costs_the_others_nothing(
    together, copied, monkeypatch, capsys
):
    """Not even their logs, when that is interrupted and killed before the first save."""
    names = list(together[1])
    shutil.rmtree(copied / names[1])
    (copied / names[1]).mkdir()

    def kill(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loop, "validate", kill)
        with pytest.raises(KeyboardInterrupt):
            train(config(), copied)
    assert (
        f"{names[1]}: no checkpoint of step 6; all seeds resume from step 0\n"
        in capsys.readouterr().out
    )
    for name in {*names} - {names[1]}:
        assert outcome(copied / name, variants.single_runs(config())[name]) == together[1][name]
    train(config(), copied)
    assert outcomes(copied, config()) == together[1]
