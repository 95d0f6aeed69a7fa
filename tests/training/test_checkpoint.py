import errno
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from anisoscope.config.run_config import CheckpointConfig, RunConfig, TrainConfig, checkpoint_steps
from anisoscope.training import checkpoint
from anisoscope.training.step import State
from anisoscope.utils.errors import RunError
from tests.program import ROOT, flip, saved_digests

KEPT = [0, 1, 2, 4, 8]


@pytest.fixture
def store(tmp_path):
    made = checkpoint.Checkpoints(tmp_path / "checkpoints", KEPT, "this run")
    yield made
    made.close()


def items(step=0):
    kernel = jax.random.normal(jax.random.key(step), (64, 48))
    params = {"blocks": {"kernel": kernel}, "tokens": jnp.ones(4)}
    return State(params, (params, jnp.int32(step)), jnp.int32(step))


def abstract():
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), items()
    )


def assert_same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.mark.parametrize(
    ("last", "every", "beyond"),
    [(3000, 1000, [512, 1000, 2000, 3000]), (700, 300, [300, 512, 600, 700]), (3, 1000, [3])],
)
def test_checkpoint_steps(last, every, beyond):
    config = RunConfig(train=TrainConfig(steps=last), checkpoint=CheckpointConfig(every=every))
    powers = [step for step in (1, 2, 4, 8, 16, 32, 64, 128, 256) if step < last]
    assert checkpoint_steps(config) == [0, *powers, *beyond]


def test_what_is_saved_comes_back_to_the_bit_and_an_interruption_is_kept_until_the_next_save(store):
    for step in (0, 1, 2, 3):
        store.save(step, items(step))
    assert store.steps() == [0, 1, 2, 3]
    assert_same(store.restore(1, abstract()), items(1))
    assert_same(store.restore_params(2), items(2).params)
    store.save(4, items(4))
    assert store.steps() == [0, 1, 2, 4]
    store.save(4, items(4))  # a seed that was ahead of the others
    with pytest.raises(RunError, match=r"checkpoints/4 differs from .*; delete it; the same"):
        store.save(4, items(4)._replace(params=items(5).params))


def test_steps_are_listed_in_order_and_nothing_else_is(tmp_path):
    for name in ("10", "9", "100", "2", "11.orbax-checkpoint-tmp", "x"):
        (tmp_path / name).mkdir()
    assert checkpoint.saved_steps(tmp_path) == [2, 9, 10, 100]
    assert checkpoint.CheckpointReader(tmp_path, run=None).steps() == [2, 9, 10, 100]


def test_a_save_that_is_not_waited_for_ends_before_what_comes_next(store, monkeypatch, tmp_path):
    store.save(1, items(1), wait=False)
    store.save(2, items(2), wait=False)
    assert_same(store.restore_params(1), items(1).params)
    store.wait()
    reader = checkpoint.CheckpointReader(tmp_path / "checkpoints", run="this run")
    assert reader.steps() == [1, 2]
    assert_same(reader.restore(2, abstract()), items(2))

    class Full:
        def result(self):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(store._orbax, "save_checkpointables_async", lambda *_, **__: Full())
    for end in (lambda: store.save(8, items(8)), store.wait, store.close):
        store.save(4, items(4), wait=False)
        with pytest.raises(RunError, match=r"checkpoints/4 could not be saved .*No space left"):
            end()


def test_what_a_kill_left_is_removed_and_written_over(tmp_path):
    folder = tmp_path / "checkpoints"
    (folder / "3.orbax-checkpoint-tmp").mkdir(parents=True)
    with checkpoint.Checkpoints(folder, KEPT, "this run") as store:
        (folder / "4").mkdir()
        for step in (4, 2):  # also an earlier step than the newest
            store.save(step, items(step))
            assert_same(store.restore_params(step), items(step).params)
    assert sorted(path.name for path in folder.iterdir()) == ["2", "4"]


def test_closing_raises_the_error_of_a_save_once_and_waits_for_no_lost_process(store, monkeypatch):
    def fail(*_, **__):
        raise OSError("No space left")

    monkeypatch.setattr(store._orbax, "close", fail)
    with pytest.raises(OSError, match="No space left"):
        store.close()
    monkeypatch.setattr(checkpoint.processes, "lost", lambda error: error)
    with pytest.raises(KeyError), store:  # another process has ended
        raise KeyError
    monkeypatch.setattr(checkpoint.processes, "lost", lambda error: None)
    monkeypatch.setattr(store._orbax, "save_checkpointables_async", fail)
    with pytest.raises(RunError, match="could not be saved"):
        store.save(4, items(4))
    store.close()


def test_a_leaf_has_one_digest_in_every_layout(store, tmp_path):
    mesh = jax.make_mesh((2, 2), ("a", "fsdp"), (AxisType.Auto,) * 2, devices=jax.devices()[:4])
    state = items()
    kernel = jax.device_put(state.params["blocks"]["kernel"], NamedSharding(mesh, P(None, "fsdp")))
    split = state._replace(params=state.params | {"blocks": {"kernel": kernel}})
    store.save(0, split)
    digests = saved_digests(tmp_path / "checkpoints" / "0")
    plain = hashlib.sha256(b"float32(64, 48)" + np.asarray(kernel).tobytes()).hexdigest()
    assert digests["['params']['blocks']['kernel']"] == plain
    assert digests == checkpoint.leaf_digests(checkpoint.checkpoint_items(state))
    assert_same(store.restore_params(0), state.params)
    across = jax.ShapeDtypeStruct((64, 48), jnp.float32, sharding=NamedSharding(mesh, P("fsdp")))
    moved = abstract()._replace(params=abstract().params | {"blocks": {"kernel": across}})
    restored = store.restore(0, moved).params
    assert restored["blocks"]["kernel"].sharding.spec == P("fsdp")
    assert_same(restored, state.params)


def test_a_checkpoint_of_another_run_is_not_read(store, tmp_path):
    """Copied from a run of another seed, at the same step."""
    store.save(0, items())
    with checkpoint.Checkpoints(tmp_path / "other", KEPT, "another seed") as other:
        for step in (0, 1):
            other.save(step, items(step))
    shutil.copytree(tmp_path / "other" / "1", tmp_path / "checkpoints" / "1")
    reader = checkpoint.CheckpointReader(tmp_path / "checkpoints", run="this run")
    assert_same(reader.restore_params(0), items().params)
    reads = (
        lambda: reader.restore_params(1),
        lambda: reader.restore(1, abstract()),
        reader.check_run,
    )
    for read in reads:
        with pytest.raises(RunError, match="checkpoints/1 is damaged: it is of a run with other"):
            read()


def largest(step: pathlib.Path) -> pathlib.Path:
    """The file that holds the array data."""
    return max(
        (p for p in (step / "params").rglob("*") if p.is_file()), key=lambda p: p.stat().st_size
    )


DAMAGE = {
    "bit flipped": (lambda step: flip(largest(step)), "kernel.* has changed since it was saved"),
    "truncated": (lambda step: largest(step).write_bytes(b""), ""),
    "item missing": (lambda step: (step / "params").rename(step.parent / "elsewhere"), ""),
    "digests missing": (lambda step: (step / "_CHECKPOINT_METADATA").unlink(), ""),
}


@pytest.mark.parametrize(("damage", "why"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_always_noticed_and_named(store, tmp_path, damage, why):
    for step in (0, 1):
        store.save(step, items(step))
    damage(tmp_path / "checkpoints" / "1")
    with pytest.raises(RunError, match=f"checkpoints/1 is damaged: .*{why}"):
        store.restore_params(1)
    with pytest.raises(RunError):
        store.restore(1, abstract())
    assert_same(store.restore_params(0), items(0).params)


def test_a_checkpoint_under_the_name_of_another_is_damaged(store, tmp_path):
    for step in (0, 1, 2):
        store.save(step, items(step))
    for one, other in (("1", "x"), ("2", "1"), ("x", "2")):
        (tmp_path / "checkpoints" / one).rename(tmp_path / "checkpoints" / other)
    for step in (1, 2):
        words = f"checkpoints/{step} is damaged: it was saved at a step other than {step}"
        for read in (store.restore_params, lambda step: store.restore(step, abstract())):
            with pytest.raises(RunError, match=words):
                read(step)
    assert_same(store.restore_params(0), items(0).params)


def test_the_digest_of_a_checkpoint_is_that_of_its_parameters_and_needs_no_restore(store, tmp_path):
    store.save(1, items(1))
    store.save(2, items(2)._replace(params=items(1).params))
    store.save(4, items(4))
    assert store.digest(1) == store.digest(2) != store.digest(4)
    shutil.rmtree(tmp_path / "checkpoints" / "1" / "params")
    assert store.digest(1) == store.digest(2)
    assert store.digest(8) is None
    (tmp_path / "checkpoints" / "2" / "_CHECKPOINT_METADATA").write_text("{}")
    assert store.digest(2) is None


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), OSError, "Too many open files"),
        (MemoryError("RESOURCE_EXHAUSTED"), MemoryError, "RESOURCE_EXHAUSTED"),
        (OSError(errno.EIO, os.strerror(errno.EIO)), RunError, "is damaged: .*rror"),
    ],
)
def test_what_the_machine_lacks_is_no_damage_of_what_is_read(
    store, monkeypatch, error, kind, words
):
    """A damaged checkpoint is to be deleted; a sound one must not be."""
    store.save(0, items())

    def fails(*_):
        raise error

    monkeypatch.setattr(store._orbax, "load_checkpointables", fails)
    for read in (lambda: store.restore(0, abstract()), lambda: store.restore_params(0)):
        with pytest.raises(kind, match=words):
            read()


def test_the_root_logger_of_the_reader_of_a_run_stays_as_it_was(store, tmp_path):
    """Absl, by which Orbax logs, adds a handler to one that has none."""
    store.save(1, items(1))
    script = (
        "import logging, pathlib, sys\n"
        "from anisoscope.training.checkpoint import CheckpointReader\n"
        "CheckpointReader(pathlib.Path(sys.argv[1]), None).restore_params(1)\n"
        "assert logging.root.handlers == [], logging.root.handlers"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "checkpoints")]
    subprocess.run(command, check=True, cwd=ROOT)
