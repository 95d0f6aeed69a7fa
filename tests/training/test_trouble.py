"""Updates that are left out, and spikes of the loss."""

import shutil

import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.config.run_config import TrainConfig
from anisoscope.results.join import scores
from anisoscope.training import log, loop, optimizer, replay, seed_runs, step, train_program
from anisoscope.training.checkpoint import leaf_digests
from anisoscope.training.seed_runs import checkpoint_items
from anisoscope.utils.errors import RunError
from anisoscope.utils.settings import replace
from anisoscope.utils.stop import Stop
from tests import tiny
from tests.training.test_loop import everything, interrupted_after, log_without_speed, train

CONFIG = replace(tiny.config(skip_nonfinite=2, seed=3), {"checkpoint.every": 1})


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
    assert {*saved[2]} - same == {"[1]['step']"}
    assert saved[3] != saved[4]
    skipped = [(line["step"], line["updates"]) for line in lines if line["kind"] == log.SKIPPED]
    assert skipped == [(3, 1), (5, 2)]
    rates = {line["step"]: line["learning_rate"] for line in lines if line["kind"] == "train"}
    rate = optimizer.schedule(CONFIG.train)
    assert rates == {now: float(rate(made)) for made, now in enumerate([1, 2, 4, 6])}
    assert "NaN" not in (tmp_path / "whole" / "train.jsonl").read_text()
    assert scores(lines, [2, 4, 6]).skipped_updates.values.tolist() == [0, 1, 2]
    assert (
        log.format_troubles(lines) == "updates were left out as not finite: 2, the last at step 5"
    )

    interrupted_after(monkeypatch, 2, 2)
    with pytest.raises(Exception, match="stopped at step"):
        train(CONFIG, tmp_path / "run")
    monkeypatch.setattr(loop, "make_program", train_program.make_program)
    train(CONFIG, tmp_path / "run")
    assert (everything(tmp_path / "run", CONFIG), log_without_speed(tmp_path / "run")) == (
        saved,
        lines,
    )

    for at in (3, 4, 5):
        shutil.rmtree(tmp_path / "run" / "checkpoints" / str(at))
    ((_, state),) = replay.replay_states(
        CONFIG, tiny.corpus(), tmp_path / "run", [5], "run", Stop()
    )
    assert leaf_digests(state) == saved[5]


def test_too_many_in_a_row_end_the_run(tmp_path):
    loss = np.where(np.isin(np.arange(1, 7), [2, 4, 5, 6]), np.nan, 1.5)
    ones = np.ones((1, 6))
    metrics = step.StepMetrics(loss[None], loss[None], ones, ones, {})
    folders = {"run": tmp_path}
    with seed_runs.open_runs(folders, [0, 1, 2]) as runs:
        runs[0].store.save(2, {"kernel": jnp.ones(3)}, {"step": jnp.int32(2)})
        seed_runs.open_logs(runs, CONFIG.train, 0)
        with pytest.raises(
            RunError,
            match=r"not finite at step 6 .*nan, 3 updates in a row\).*last good checkpoint: 2;",
        ):
            loop.log_steps(CONFIG, runs, 0, 6, metrics, 1.0)
    skipped = [
        (line["step"], line["updates"])
        for line in log.read_log(tmp_path)
        if line["kind"] == log.SKIPPED
    ]
    assert skipped == [(2, 1), (4, 2), (5, 3)]


@pytest.mark.slow
def test_the_setting_changes_nothing_else():
    """Neither what a checkpoint holds nor, where all is finite, a number."""
    config = tiny.config(seed=3)
    states = []
    for one in (config, replace(config, {"train.skip_nonfinite": 2})):
        made = train_program.make_program(one, tiny.corpus())
        state, _ = made.steps(made.create(), made.tokens_N, made.data_R, jnp.int32(3))
        states.append(leaf_digests(dict(zip("ab", checkpoint_items(state), strict=True))))
    assert states[0] == states[1]


def spikes(found, every=10, begin=0, lines=()):
    """Lines of the log from a step on, with spikes."""
    lines, troubles = [*lines], log.Troubles(TrainConfig(log_every=every), lines)
    for now, loss in enumerate(found, 1):
        if now > begin:
            if values := troubles.spike(now, loss):
                lines.append({"step": now, "kind": log.SPIKE, **values})
            if now % every == 0 or now == 1:
                lines.append({"step": now, "kind": "train", "loss": loss})
                troubles.take(loss)
    return lines


def test_a_spike_is_told_once_between_two_lines_and_again_after_a_restart():
    found = 2.0 + np.random.default_rng(0).normal(0, 0.05, 400)
    for smooth in (found, np.linspace(5, 1, 400), np.ones(400)):
        assert log.format_troubles(spikes(smooth)) == ""
    found[302:308] = 3.0
    whole = spikes(found)
    (spike,) = [line for line in whole if line["kind"] == log.SPIKE]
    assert (spike["step"], spike["loss"]) == (303, 3.0)
    assert abs(spike["median"] - 2) < 0.05
    assert spike["deviations"] > log.DEVIATIONS
    for begin in (150, 303, 305, 312):
        assert (
            spikes(found, begin=begin, lines=[line for line in whole if line["step"] <= begin])
            == whole
        )
    assert log.format_troubles(whole) == "spikes of the loss: 1, the last at step 303"
