import itertools
import json
import shutil
import signal

import jax
import jax.numpy as jnp
import pytest

from anisoscope.training import checkpoint, log, loop, train_program
from anisoscope.training.checkpoint import leaf_digests
from anisoscope.utils.errors import RunError, Stopped, UserError
from anisoscope.utils.processes import Stop
from tests import tiny
from tests.training.test_step import batch_of, masked


def train(config, folder):
    with Stop() as stop:
        loop.train(config, tiny.corpus(), {"run": folder}, "run", stop)


def store_of(folder):
    return checkpoint.CheckpointReader(folder / "checkpoints", run=None)


def everything(folder, config):
    """All checkpoints of a run, optimizer state and step included, as digests."""
    state = train_program.make_train_program(config, tiny.corpus()).abstract
    store = store_of(folder)
    return {step: leaf_digests(store.restore(step, state)) for step in store.steps()}


def log_without_speed(folder):
    return [
        {k: v for k, v in line.items() if k != "characters_per_second"}
        for line in log.read_log(folder)
    ]


def change_call(monkeypatch, number, change):
    """Change what this call to the device returns."""
    made = loop.make_train_program

    def make(*args):
        whole, calls = made(*args), itertools.count(1)

        def steps(*arguments):
            state, metrics = whole.steps(*arguments)
            return (change(state) if next(calls) == number else state), metrics

        steps.lower = whole.steps.lower
        return whole._replace(steps=steps)

    monkeypatch.setattr(loop, "make_train_program", make)


def interrupt(state):
    signal.raise_signal(signal.SIGTERM)
    return state


def spoil(state):
    return state._replace(params=jax.tree.map(lambda leaf: leaf * jnp.nan, state.params))


@pytest.fixture(scope="module")
def never_stopped(tmp_path_factory):
    folder, config = tmp_path_factory.mktemp("whole"), tiny.config()
    train(config, folder)
    return (
        everything(folder, config),
        log_without_speed(folder),
        (folder / "test.json").read_text(),
        folder,
    )


@pytest.fixture
def unscored(tmp_path, never_stopped):
    """All steps are done and saved, but the test split is not scored."""
    shutil.copytree(never_stopped[3], tmp_path / "run")
    (tmp_path / "run" / "test.json").unlink()
    return tmp_path / "run"


def test_a_run_leaves_checkpoints_log_and_test_score(never_stopped):
    checkpoints, lines, test, _ = never_stopped
    assert list(checkpoints) == [0, 1, 2, 4, 5, 6]
    assert len({tuple(digests.items()) for digests in checkpoints.values()}) == 6
    expected = [
        (0, "valid"),
        *((step, kind) for step in range(1, 7) for kind in ("train", "valid")),
    ]
    assert [(line["step"], line["kind"]) for line in lines] == expected
    test = json.loads(test)
    assert test["characters"] == 99
    assert "stride 4" in test["protocol"]


def test_stopping_and_going_on_equals_never_stopping_bitwise(tmp_path, monkeypatch, never_stopped):
    config, logged, save = tiny.config(), [], checkpoint.Checkpoints.save

    def look(store, step, state, **options):
        logged.append(step in log.validated_steps(log.read_log(tmp_path)))
        save(store, step, state, **options)

    monkeypatch.setattr(checkpoint.Checkpoints, "save", look)
    with monkeypatch.context() as patch:
        change_call(patch, 3, interrupt)
        with pytest.raises(Stopped, match=r"run: stopped at step 3, saved in"):
            train(config, tmp_path)
    assert list(everything(tmp_path, config)) == [0, 1, 2, 3]
    assert not (tmp_path / "test.json").exists()
    train(config, tmp_path)
    assert everything(tmp_path, config) == never_stopped[0]
    assert log_without_speed(tmp_path) == never_stopped[1]
    assert (tmp_path / "test.json").read_text() == never_stopped[2]
    # the log is on the disk before its checkpoint
    assert logged == [True] * 7


def test_a_kill_after_the_log_was_written_repeats_the_lost_steps_exactly(unscored, never_stopped):
    config = tiny.config()
    for step in "56":
        shutil.rmtree(unscored / "checkpoints" / step)
    with (unscored / "train.jsonl").open("a") as file:
        file.write('{"step": 7, "ki')
    train(config, unscored)
    assert everything(unscored, config) == never_stopped[0]
    assert log_without_speed(unscored) == never_stopped[1]


def test_a_damaged_newest_checkpoint_is_named_and_deleted_it_comes_back(unscored, never_stopped):
    (unscored / "checkpoints" / "6" / "_CHECKPOINT_METADATA").unlink()
    with pytest.raises(RunError, match=r"checkpoints/6 is damaged: .*; delete it; the same"):
        train(tiny.config(), unscored)
    shutil.rmtree(unscored / "checkpoints" / "6")
    # a copy of another run's: here, of this one under a seed that is not its own
    with pytest.raises(RunError, match=r"checkpoints/5 .* another seed or another text; delete it"):
        train(tiny.config(seed=1), unscored)
    train(tiny.config(), unscored)
    assert everything(unscored, tiny.config()) == never_stopped[0]


def test_a_finished_run_is_left_alone_also_without_its_checkpoints(
    tmp_path, monkeypatch, capsys, never_stopped
):
    """Its tables stand, and what was trained need not be trained again."""
    config = tiny.config()
    shutil.copytree(never_stopped[3], tmp_path, dirs_exist_ok=True)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with monkeypatch.context() as patch:
        patch.setattr(loop, "make_train_program", None)
        train(config, tmp_path)
        assert "trained already" in capsys.readouterr().out
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
        shutil.rmtree(tmp_path / "checkpoints")
        train(config, tmp_path)
    for damaged in ("", "{}"):
        (tmp_path / "test.json").write_text(damaged)
        with pytest.raises(
            UserError, match=r"test\.json .*; move it elsewhere and run --stages=train again"
        ):
            train(config, tmp_path)
    (tmp_path / "test.json").unlink()
    with pytest.raises(RunError, match=r"train\.jsonl is of a training whose checkpoints are gone"):
        train(config, tmp_path)
    assert (tmp_path / "train.jsonl").read_bytes() == before[tmp_path / "train.jsonl"]
    (tmp_path / "train.jsonl").unlink()
    (tmp_path / "measurements").mkdir()
    (tmp_path / "measurements" / "6.nc").touch()
    with pytest.raises(RunError, match=r"6\.nc is of a training whose checkpoints are gone"):
        train(config, tmp_path)


@pytest.mark.parametrize(
    ("kept", "words"),
    [([0, 6], "at step 2 .*last finite loss "), ([0, 1, 6], "at step 1 .validation loss nan")],
)
def test_what_is_not_finite_stops_and_is_not_saved(tmp_path, monkeypatch, kept, words):
    monkeypatch.setattr(loop, "checkpoint_steps", lambda _: kept)
    change_call(monkeypatch, 1, spoil)
    with pytest.raises(RunError, match=rf"not finite {words}.*last good checkpoint: 0;"):
        train(tiny.config(), tmp_path)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["0"]


@pytest.mark.slow
def test_a_batch_without_a_masked_character_is_logged_without_a_loss(tmp_path):
    config = masked(tiny.config(batch_size=1))
    empty = {at + 1 for at in range(6) if not batch_of(config, at).weights_BT.any()}
    assert 0 < len(empty) < 6
    train(config, tmp_path)
    lines = [line for line in log.read_log(tmp_path) if line["kind"] != "valid"]
    assert {line["step"] for line in lines if line["kind"] == "unscored"} == empty
    for line in lines:
        assert ("loss" in line) == ("bits_per_character" in line) == (line["step"] not in empty)
        assert line.get("loss", 1) > 0
        assert line["gradient_norm"] >= 0
