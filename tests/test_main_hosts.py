"""Two processes of one run: numbers are those of one, also when one is killed while they train,
save or measure.
"""

import re
import shutil
import signal
import time

import jax
import numpy as np
import pytest

from anisoscope.api import open_run
from tests import cluster
from tests.program import DECODER, checkpoint_digests, here, main

pytestmark = pytest.mark.slow  # the quick one: tests/utils/test_processes.py
MEASURE = [
    *DECODER,
    "--config.measure.families=similarity,comparison",
    "--config.measure.hook_points=values",
    "--stages=measure",
]
TRAIN = """
import os, signal, sys, time
from anisoscope.cli import process
from anisoscope.training import checkpoint, loop
of, count = sys.argv[1].split(":")

def dies(work):
    left = [int(count)]
    def wrapped(*given, **named):
        left[0] -= 1
        if left[0] == 0:
            print(f"killed at {time.time()}", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return work(*given, **named)
    return wrapped

if of == "training":
    loop.log_steps = dies(loop.log_steps)
if of == "saving":
    checkpoint.Checkpoints.save = dies(checkpoint.Checkpoints.save)
process.end(process.main(["main.py", *sys.argv[2:]]))
"""
SECONDS = 30  # until the others have ended; docs/howto/cluster.md


def left_ends(ended):
    """The process that was killed; the other one has ended in one line, or by JAX's SIGABRT if that
    was the first.
    """
    gone, left = sorted(ended, key=lambda process: process.returncode != -9)
    assert gone.returncode == -9
    assert "Traceback" not in left.stderr
    if gone is ended[0] and left.returncode == -signal.SIGABRT:
        assert "JAX distributed service detected fatal errors" in left.stderr
        return gone
    assert left.returncode == 1, left.stderr[-2000:]
    (line,) = (line for line in left.stderr.splitlines() if line.startswith("error: "))
    assert line.startswith("error: another process has ended (")
    # JAX may write behind it
    assert "; the same command, started on every host, resumes from what is saved" in line
    return gone


def tables(workdir):
    return {path.relative_to(workdir): path.read_bytes() for path in workdir.rglob("*.nc")}


def check_ended(ended):
    for process in ended:
        print(process.stderr[-4000:])  # pytest shows it whole where the assertion fails
    assert [process.returncode for process in ended] == [0] * len(ended)


def train_alone(workdir, *flags, devices=1):
    process = main(*DECODER, "--stages=train", *flags, f"--workdir={workdir}", devices=devices)
    check_ended([process])
    return process


def test_processes_measure_parts_of_the_steps_and_the_same_command_joins_them(tmp_path):
    workdir = tmp_path / "run"
    train_alone(workdir)
    alone = shutil.copytree(workdir, tmp_path / "alone")
    check_ended([main(*MEASURE, f"--workdir={alone}", devices=1)])
    words = ["main.py", *MEASURE, f"--workdir={workdir}"]
    ended = cluster.run(*([*words, f"--steps={part}::2"] for part in "01"), devices=1)
    check_ended(ended)
    assert all("of 8 checkpoints measured (4 now)" in process.stdout for process in ended)
    assert not (workdir / "results.nc").exists()
    joined = main(*MEASURE, f"--workdir={workdir}", devices=1)
    check_ended([joined])
    assert "8 checkpoints measured (0 now)" in joined.stdout
    assert tables(workdir) == tables(alone)
    check_ended([here(*DECODER, "--stages=verify", f"--workdir={workdir}")])


def trained_by_two(workdir, *killed, flags=()):
    """Each with one device; `killed` says of each where it is."""
    flags = [*DECODER, "--stages=train", "--distributed", *flags, f"--workdir={workdir}"]
    commands = [["-c", TRAIN, of, *flags] for of in killed]
    return cluster.run(*commands, devices=1)


@pytest.fixture(scope="module")
def never_killed(tmp_path_factory):
    """By one process with two devices."""
    workdir = tmp_path_factory.mktemp("never_killed") / "run"
    train_alone(workdir, devices=2)
    return workdir


@pytest.mark.parametrize("killed", [("none:0", "training:4"), ("saving:5", "none:0")], ids=" ".join)
def test_a_kill_in_training_or_saving_ends_the_other_and_the_same_command_goes_on(
    never_killed, tmp_path, killed
):
    ended = trained_by_two(tmp_path / "run", *killed)
    gone = left_ends(ended)
    assert time.time() - float(re.search(r"killed at (\S+)", gone.stderr)[1]) < SECONDS
    again = trained_by_two(tmp_path / "run", "none:0", "none:0")
    check_ended(again)
    folders = [root / "checkpoints" for root in (tmp_path / "run", never_killed)]
    assert checkpoint_digests(folders[0]) == checkpoint_digests(folders[1])


def test_parameters_that_are_split_over_hosts_are_those_of_one_host(tmp_path):
    fsdp = "--config.mesh.fsdp=2"
    check_ended(trained_by_two(tmp_path / "two", "none:0", "none:0", flags=[fsdp]))
    train_alone(tmp_path / "one", fsdp, devices=2)
    two, one = (
        checkpoint_digests(tmp_path / name / "checkpoints")["24"] for name in ("two", "one")
    )
    assert two == one
    params = [open_run(tmp_path / name).params(24) for name in ("two", "one")]
    jax.tree.map(np.testing.assert_array_equal, *params)


def test_a_run_goes_on_with_another_number_of_devices(never_killed, tmp_path):
    """Sums are in another order, and so the last digits are others: by less than a thousandth of
    the learning rate.
    """
    workdir = shutil.copytree(never_killed, tmp_path / "run")
    for path in (workdir / "checkpoints").iterdir():
        if int(path.name) > 8:
            shutil.rmtree(path)
    (workdir / "test.json").unlink()
    process = train_alone(workdir)
    assert "on 1 × cpu, from step 8" in process.stdout
    mine, its = (open_run(one).params(24) for one in (workdir, never_killed))
    for one, other in zip(*map(jax.tree.leaves, (mine, its)), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=2e-6)
