"""Two processes of one run: numbers are those of one, also when one is killed while they train,
save or measure.
"""

import functools
import pathlib
import re
import shutil
import signal
import time

import jax
import numpy as np
import pytest

from anisoscope.api import open_run
from tests import cluster
from tests.program import DECODER, STEPS, checkpoint_digests, here, main

pytestmark = pytest.mark.slow  # the quick one: tests/utils/test_processes.py
MEASURE = [
    *DECODER,
    "--config.measure.families=similarity,comparison",
    "--config.measure.hook_points=values",
    "--stages=measure",
]
WORK = """
import os, signal, sys
from anisoscope.cli import process
from anisoscope.results import step_files
written, killed_at = step_files.write_step, int(sys.argv[1])

def write_step(path, *tables):
    if int(path.stem) == killed_at:
        os.kill(os.getpid(), signal.SIGKILL)
    written(path, *tables)
    print(f"{path.parent.parent.name} {path.stem}", file=sys.stderr)

step_files.write_step = write_step
sys.exit(process.main(["main.py", *sys.argv[2:]]))
"""
SHARE = """
import os, pathlib, signal, sys, time
from anisoscope.cli import process
from anisoscope.results import step_files
written, number, killed, folder = step_files.write_step, *sys.argv[1:3], pathlib.Path(sys.argv[3])

def write_step(path, *tables):
    (folder / number).touch()
    if number == killed:
        os.kill(os.getpid(), signal.SIGKILL)
    while len([*folder.iterdir()]) < 2:  # until both are at work
        time.sleep(0.1)
    written(path, *tables)
    print(f"{path.parent.parent.name} {path.stem}", file=sys.stderr)

step_files.write_step = write_step
sys.exit(process.main(["main.py", *sys.argv[4:]]))
"""
DEVICES = 4  # of each process, as a GPU host has; one is what a host of a CPU cluster has
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


def measured(workdir, devices, killed_at=-1):
    flags = [*MEASURE, "--distributed", f"--workdir={workdir}"]
    return cluster.run(["-c", WORK, str(killed_at), *flags], devices=devices)


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


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("trained") / "run"
    train_alone(workdir)
    return workdir


@pytest.fixture(scope="module")
def by_one(trained):
    """All tables of the run, as one process with so many devices makes them."""

    @functools.cache
    def measure(devices):
        workdir = shutil.copytree(trained, trained.with_name(f"by_one_with_{devices}"))
        check_ended([main(*MEASURE, f"--workdir={workdir}", devices=devices)])
        return tables(workdir)

    return measure


def test_two_processes_make_the_tables_of_one_also_when_one_is_killed(trained, by_one, tmp_path):
    """The same command goes on."""
    killed_at = STEPS[2]  # of the first process, its third
    workdir = shutil.copytree(trained, tmp_path / "killed")
    left_ends(measured(workdir, DEVICES, killed_at))
    there = [*workdir.rglob("measurements/*.nc")]
    steps = {int(path.stem) for path in there}
    # the second may have begun its third
    assert steps - {STEPS[6]} == {*STEPS[:3], *STEPS[4:6]} - {killed_at}
    assert 2 * len(steps) - 1 <= len(there) <= 2 * len(steps)
    # the second process now lacks one table of a step, the first both
    for path in there:
        if path.stem == str(STEPS[6]):
            path.unlink()
    stream = pathlib.Path("measurements", f"{STEPS[6]}.nc")
    (workdir / stream).write_bytes(by_one(DEVICES)[stream])
    ended = measured(workdir, DEVICES)
    check_ended(ended)
    for process, steps in zip(ended, (STEPS[2:4], STEPS[6:]), strict=True):
        for name in ("killed", "values"):
            found = {*map(int, re.findall(rf"{name} (\d+)$", process.stderr, re.MULTILINE))}
            assert {steps[-1]} <= found <= {*steps}
    assert f"{len(STEPS)} checkpoints measured (4 now)" in ended[0].stdout
    # one pass for all tables of a step
    assert ended[0].stdout.count("checkpoints per process: 2, 2\n") == 1
    assert len(by_one(DEVICES)) == 2 * len(STEPS) + 4
    assert tables(workdir) == by_one(DEVICES)


@pytest.mark.parametrize("killed", ["none", "1"])
def test_independent_processes_share_the_steps_also_of_a_killed_one(
    trained, by_one, tmp_path, killed
):
    workdir = shutil.copytree(trained, tmp_path / "shared")
    (tmp_path / "begun").mkdir()
    flags = [killed, str(tmp_path / "begun"), *MEASURE, f"--workdir={workdir}"]
    ended = cluster.run(*(["-c", SHARE, n, *flags] for n in "01"), devices=DEVICES)
    errors = [process.stderr[-2000:] for process in ended]
    assert [process.returncode for process in ended] == [0, -9 if killed == "1" else 0], errors
    found = [re.findall(r"shared (\d+)$", process.stderr, re.MULTILINE) for process in ended]
    assert sorted(int(step) for steps in found for step in steps) == STEPS
    assert bool(found[1]) == (killed == "none")
    waiting = sum("the last of them joins the tables" in process.stdout for process in ended)
    assert waiting == (killed == "none")
    assert tables(workdir) == by_one(DEVICES)
    check_ended([here(*DECODER, "--stages=verify", f"--workdir={workdir}")])
    assert not (workdir / ".claims").exists()


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


def test_each_process_digests_its_own_parts_of_split_parameters(tmp_path):
    fsdp = "--config.mesh.fsdp=2"
    check_ended(trained_by_two(tmp_path / "two", "none:0", "none:0", flags=[fsdp]))
    train_alone(tmp_path / "one", fsdp, devices=2)
    digests = checkpoint_digests(tmp_path / "two" / "checkpoints")
    assert digests == checkpoint_digests(tmp_path / "one" / "checkpoints")
    assert any("/2:" in digest for digest in digests["24"].values())
    check_ended([here(*DECODER, "--stages=verify", f"--workdir={tmp_path / 'two'}")])


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
