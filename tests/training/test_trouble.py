"""Updates that are left out because they are not finite."""

import shutil

import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.results.join import scores
from anisoscope.training import log, loop, optimizer, replay, step, train_program
from anisoscope.training.checkpoint import leaf_digests
from anisoscope.utils.errors import RunError
from anisoscope.utils.settings import replace
from anisoscope.utils.stop import Stop
from tests import tiny
from tests.training.test_loop import everything, interrupted_after, log_without_speed, train

CONFIG = replace(tiny.config(skip_nonfinite=2, seed=3), {"checkpoint.every": 1})


def skips(lines):
    return [(line["step"], line["updates"]) for line in lines if line["kind"] == log.SKIPPED]


@pytest.fixture
def bad(monkeypatch):
    """Batches of these steps have a loss that is not finite."""
    steps, made = [], step.train_batch

    def batch_of(config, seed, tokens_N, at, mask_token):
        batch = made(config, seed, tokens_N, at, mask_token)
        at_one = jnp.isin(at + 1, jnp.asarray(steps))
        return batch._replace(weights_BT=jnp.where(at_one, jnp.nan, batch.weights_BT))

    monkeypatch.setattr(step, "train_batch", batch_of)
    # not the one that tests share
    monkeypatch.setattr(loop, "make_program", train_program.make_program)
    return steps


@pytest.mark.slow
def test_an_update_that_is_not_finite_is_left_out_and_counted(tmp_path, bad, monkeypatch):
    """Stopped and resumed as never stopped; and replayed."""
    bad += [3, 5]
    train(CONFIG, tmp_path / "whole")
    saved, lines = everything(tmp_path / "whole", CONFIG), log_without_speed(tmp_path / "whole")
    same = {name for name, digest in saved[2].items() if saved[3][name] == digest}
    assert {*saved[2]} - same == {".step"}
    assert saved[3] != saved[4]
    assert skips(lines) == [(3, 1), (5, 2)]
    rates = {line["step"]: line["learning_rate"] for line in lines if line["kind"] == "train"}
    rate = optimizer.schedule(CONFIG.train)
    assert rates == {now: float(rate(made)) for made, now in enumerate([1, 2, 4, 6])}
    assert "NaN" not in (tmp_path / "whole" / "train.jsonl").read_text()
    assert scores(lines, [2, 4, 6]).skipped_updates.values.tolist() == [0, 1, 2]

    interrupted_after(monkeypatch, 2, 2)
    with pytest.raises(Exception, match="stopped at step"):
        train(CONFIG, tmp_path / "run")
    monkeypatch.setattr(loop, "make_program", train_program.make_program)
    train(CONFIG, tmp_path / "run")
    resumed = everything(tmp_path / "run", CONFIG), log_without_speed(tmp_path / "run")
    assert resumed == (saved, lines)

    for at in (3, 4, 5):
        shutil.rmtree(tmp_path / "run" / "checkpoints" / str(at))
    arguments = CONFIG, tiny.corpus(), tmp_path / "run", [5], "run", Stop()
    ((_, state),) = replay.replay_states(*arguments)
    assert leaf_digests(state) == saved[5]


def test_too_many_in_a_row_end_the_run(tmp_path):
    loss = np.where(np.isin(np.arange(1, 7), [2, 4, 5, 6]), np.nan, 1.5)
    ones = np.ones((1, 6))
    metrics = step.StepMetrics(loss[None], loss[None], ones, ones, {})
    with loop.open_runs({"run": tmp_path}, [0, 1, 2]) as runs:
        runs[0].store.save(2, step.State({"kernel": jnp.ones(3)}, {}, jnp.int32(2)))
        loop.open_logs(runs, 0)
        with pytest.raises(
            RunError,
            match=r"not finite at step 6 .*nan, 3 updates in a row\).*last good checkpoint: 2;",
        ):
            loop.log_steps(CONFIG, runs, 0, 6, metrics, 1.0)
    assert skips(log.read_log(tmp_path)) == [(2, 1), (4, 2), (5, 3)]


@pytest.mark.slow
def test_the_setting_changes_nothing_else():
    """Neither what a checkpoint holds nor, where all is finite, a number."""
    config, states = tiny.config(seed=3), []
    for settings in (config, replace(config, {"train.skip_nonfinite": 2})):
        program = train_program.make_program(settings, tiny.corpus())
        states.append(leaf_digests(program.run(program.create(), 3)[0]))
    assert states[0] == states[1]
