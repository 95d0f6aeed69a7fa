"""A run replayed up to a gain over unigram is the run itself, stopped there."""

import json
import shutil
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.training import log, loop, replay, train_program
from anisoscope.training.step import State
from anisoscope.utils.errors import RunError, UserError
from anisoscope.utils.processes import Stop
from anisoscope.utils.settings import replace
from tests import tiny
from tests.program import checkpoint_digests
from tests.training.test_loop import everything, train

CONFIG = replace(
    tiny.config(steps=12, schedule="constant", learning_rate=3e-2), {"evaluate.every": 12}
)
KEPT = [0, 1, 12]


def retrain(folder, brackets, config=CONFIG, stopped=False):
    with Stop() as stop:
        stop.requested = stopped
        return replay.crossings(config, tiny.corpus(), folder, brackets, "run", stop)


def keep(patch, steps):
    """Checkpoints of these steps."""
    for module in (loop, replay):
        patch.setattr(module, "checkpoint_steps", lambda *_: steps)


def kept_run(folder, steps):
    with pytest.MonkeyPatch.context() as patch:
        keep(patch, steps)
        train(CONFIG, folder)
    return folder


@pytest.fixture(scope="module")
def every_step(tmp_path_factory):
    """Digests and gains of all steps of a run that keeps them all."""
    folder = kept_run(tmp_path_factory.mktemp("all"), [*range(13)])
    lines = [line for line in log.read_log(folder) if line["kind"] == "valid"]
    gains = {line["step"]: line["gain_over_unigram"] for line in lines}
    return everything(folder, CONFIG), gains


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """A run that keeps few checkpoints."""
    return kept_run(tmp_path_factory.mktemp("few"), KEPT)


@pytest.fixture
def folder(few, tmp_path, monkeypatch):
    keep(monkeypatch, KEPT)
    return shutil.copytree(few, tmp_path / "run")


@pytest.mark.slow
def test_it_ends_at_the_first_step_with_that_gain_and_is_the_run_there_bitwise(
    folder, every_step, monkeypatch
):
    digests, gains = every_step
    assert gains[1] < gains[6] < gains[12]  # it learns
    ends = train_program.optimizer.constant_part(CONFIG.train)[1]
    validated = [line["step"] for line in log.read_log(folder) if line["kind"] == "valid"]
    assert validated == [0, 1, ends, 12]  # its best at a constant rate is known
    assert 1 < ends < 12
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    levels = {(gains[5] + gains[6]) / 2, gains[8], gains[12]}
    found = retrain(folder, dict.fromkeys(levels, replay.Bracket(1, 12)))
    for level, crossing in found.items():
        assert (
            gains[crossing.step] == crossing.gain_over_unigram >= level > gains[crossing.step - 1]
        )
    digests_of = checkpoint_digests(folder / "loss_matched" / "checkpoints")
    made = {int(step): leaves for step, leaves in digests_of.items()}
    expected = {step: digests[step] for step in {one.step for one in found.values()} - {*KEPT}}
    assert made.keys() == expected.keys()
    assert made
    for step, leaves in made.items():  # parameters and optimizer's state
        assert sorted(leaves.values()) == sorted(expected[step].values())
    # the run's own files stay as they were
    assert before == {path: path.read_bytes() for path in before}
    with monkeypatch.context() as patch:
        patch.setattr(replay, "make_train_program", None)
        # nothing is done twice
        assert retrain(folder, dict.fromkeys(levels, replay.Bracket(1, 12))) == found
    record = folder / "loss_matched" / "crossings.json"
    other = {
        key: one | {"after": {"1": "of another run"}}
        for key, one in json.loads(record.read_text()).items()
    }
    record.write_text(json.dumps(other))  # as if the run had been trained anew, with another result
    assert retrain(folder, dict.fromkeys(levels, replay.Bracket(1, 12))) == found


def test_parameters_trained_again_are_the_same_whatever_the_process_has_set(folder):
    """Windows and masks are drawn by JAX's keys, and float64 or another generator would draw
    others.
    """
    expected = replay.read_params(CONFIG, tiny.corpus(), folder, 3)
    with jax.enable_x64(True), jax.default_prng_impl("rbg"), jax.threefry_partitionable(False):
        found = replay.read_params(CONFIG, tiny.corpus(), folder, 3)
        # it is as it was
        assert jax.random.key(0).dtype != jax.random.key(0, impl="threefry2x32").dtype
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_an_offset_of_seeds_is_refused(tmp_path):
    jax.config.update("jax_random_seed_offset", 1)
    try:
        with (
            pytest.raises(UserError, match="unset JAX_RANDOM_SEED_OFFSET"),
            replay.jax_as_in_training(),
        ):
            pass
    finally:
        jax.config.update("jax_random_seed_offset", 0)


def test_bisection_ends_at_the_first_step_with_that_gain(monkeypatch):
    """Of a program that only counts its steps, and gains a tenth in each."""

    def run(state, count):
        return State(state.params + count, (), state.step + count), None

    def score(params, *_):
        return [types.SimpleNamespace(gain_over_unigram=int(params) / 10)]

    counting = types.SimpleNamespace(run=run, score=score)
    begin = State(jnp.int32(1), (), jnp.int32(1))
    monkeypatch.setattr(replay, "make_train_program", lambda *_: counting)
    for level, expected in ((0.55, 6), (0.6, 6), (1.15, 12)):
        replayed = replay._Replay(CONFIG, tiny.corpus(), "run", Stop())
        found = replayed.bisect(begin, 1, level, replay.Bracket(1, 12))
        assert (found[0], int(found[1].params), found[2]) == (expected, expected, expected / 10)


@pytest.mark.slow
def test_a_gain_that_does_not_come_again_is_told(folder, every_step):
    with pytest.raises(
        RunError, match=r"run: replayed to step 2, it gains .*: training is not exact on this"
    ):
        retrain(folder, {max(every_step[1].values()) + 1: replay.Bracket(1, 2)})
