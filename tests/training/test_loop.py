import json
import re
import signal

import jax
import numpy as np
import pytest

from data import batches
from errors import RunError
from tests import tiny
from training import checkpoint, log, loop, program


def store_of(folder, config):
    return checkpoint.Checkpoints(
        folder / "checkpoints", checkpoint.schedule(config.train.steps, config.checkpoint.every)
    )


def everything(folder, config):
    """All checkpoints of a run, optimizer state and step included, as digests."""
    state = program.make_program(config, tiny.corpus()).abstract
    store = store_of(folder, config)
    found = {}
    for step in store.steps():
        found[step] = checkpoint.digests(store.restore(step, state.params, loop._train_item(state)))
    store.close()
    return found


def log_without_speed(folder):
    return [{k: v for k, v in line.items() if k != "characters_per_second"} for line in log.read(folder)]


def interrupted_after(monkeypatch, calls, signum):
    """Make the process receive a signal while it works on the given call to the device."""
    made = program.make_program

    def make(*args):
        whole, left = made(*args), [calls]

        def steps(*arguments):
            left[0] -= 1
            if left[0] == 0:
                signal.raise_signal(signum)
            return whole.steps(*arguments)

        return whole._replace(steps=steps)

    monkeypatch.setattr(loop, "make_program", make)


@pytest.fixture(scope="module")
def never_stopped(tmp_path_factory):
    folder, config = tmp_path_factory.mktemp("whole"), tiny.config()
    assert loop.train(config, tiny.corpus(), folder, "whole")
    return everything(folder, config), log_without_speed(folder), (folder / "test.json").read_text()


def test_a_run_leaves_checkpoints_log_and_test_score(never_stopped):
    checkpoints, lines, test = never_stopped
    assert list(checkpoints) == [0, 1, 2, 4, 5, 6]
    assert len({tuple(digests.items()) for digests in checkpoints.values()}) == 6
    assert [(line["step"], line["kind"]) for line in lines] == [
        (0, "valid"), (1, "train"), (2, "train"), (3, "train"), (3, "valid"),
        (4, "train"), (5, "train"), (6, "train"), (6, "valid"),
    ]  # fmt: skip
    test = json.loads(test)
    assert test["characters"] == 99
    assert "stride 4" in test["protocol"]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_stopping_and_going_on_equals_never_stopping_bitwise(tmp_path, monkeypatch, capsys, never_stopped, signum):
    config = tiny.config()
    with monkeypatch.context() as patch:
        interrupted_after(patch, 3, signum)
        assert not loop.train(config, tiny.corpus(), tmp_path, "run")
    assert re.search(r"stopped at step 3, saved in .*the same command goes on", capsys.readouterr().out)
    assert list(everything(tmp_path, config)) == [0, 1, 2, 3]
    assert not (tmp_path / "test.json").exists()
    assert loop.train(config, tiny.corpus(), tmp_path, "run")
    assert (
        everything(tmp_path, config),
        log_without_speed(tmp_path),
        (tmp_path / "test.json").read_text(),
    ) == never_stopped


def test_a_kill_after_the_log_was_written_repeats_the_lost_steps_exactly(tmp_path, never_stopped):
    config = tiny.config()
    loop.train(config, tiny.corpus(), tmp_path, "run")
    (tmp_path / "test.json").unlink()
    store = store_of(tmp_path, config)
    for step in (5, 6):
        store.set_aside(step)
    store.close()
    with (tmp_path / "train.jsonl").open("a") as file:
        file.write('{"step": 7, "ki')
    loop.train(config, tiny.corpus(), tmp_path, "run")
    assert everything(tmp_path, config) == never_stopped[0]
    assert log_without_speed(tmp_path) == never_stopped[1]


def test_a_damaged_newest_checkpoint_is_set_aside_not_lost(tmp_path, capsys, never_stopped):
    config = tiny.config()
    loop.train(config, tiny.corpus(), tmp_path, "run")
    (tmp_path / "test.json").unlink()
    (tmp_path / "checkpoints" / "6" / "_CHECKPOINT_METADATA").unlink()
    loop.train(config, tiny.corpus(), tmp_path, "run")
    assert re.search(r"checkpoints/6 is damaged: .*; moved to .*damaged_checkpoints/6\.0", capsys.readouterr().err)
    assert (tmp_path / "damaged_checkpoints" / "6.0").is_dir()
    assert everything(tmp_path, config) == never_stopped[0]


def test_a_finished_run_is_left_alone(tmp_path, monkeypatch, capsys):
    config = tiny.config(steps=2)
    loop.train(config, tiny.corpus(), tmp_path, "run")
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}
    monkeypatch.setattr(loop, "make_program", None)
    assert loop.train(config, tiny.corpus(), tmp_path, "run")
    assert "trained already" in capsys.readouterr().out
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()} == before


def test_a_loss_that_is_not_finite_stops_with_step_loss_and_checkpoint(tmp_path):
    config = tiny.config(learning_rate=1e30, steps=20)
    with pytest.raises(RunError, match=r"not finite at step \d+ .*last finite loss \d.*last good checkpoint: step \d+"):
        loop.train(config, tiny.corpus(), tmp_path, "run")
    store = store_of(tmp_path, config)
    for step in store.steps():
        for leaf in jax.tree.leaves(store.restore_params(step)):
            assert np.isfinite(leaf).all()
    store.close()


def test_the_next_batches_after_a_restart_are_the_same(monkeypatch):
    """The start of every window depends on seed, step and example alone, not on what was drawn before."""
    whole = [np.asarray(batches.starts(0, step, np.arange(4), 1000, 9)) for step in range(6)]
    again = [np.asarray(batches.starts(0, step, np.arange(4), 1000, 9)) for step in range(3, 6)]
    np.testing.assert_array_equal(whole[3:], again)
