"""Two processes that share the checkpoints of a run out: their tables are those of one, also when one is killed."""

import re
import shutil

import pytest

from tests import cluster
from tests.program import main
from tests.test_main import DECODER, STEPS

pytestmark = pytest.mark.slow  # the quick one: tests/utils/test_processes.py
MEASURE = [
    *DECODER,
    "--config.measure.families=spectrum,similarity,comparison",
    "--config.measure.hook_points=values",
    "--config.measure.updates=True",
    "--config.measure.points_table=True",
    "--stages=measure",
]
WORK = """
import os, signal, sys
from anisoscope.cli import process
from anisoscope.measurement.tables import measurements
written, killed_at = measurements.keep, int(sys.argv[1])

def keep(table, step, there, folder, of):
    if step == killed_at:
        os.kill(os.getpid(), signal.SIGKILL)
    written(table, step, there, folder, of)
    print(f"{folder.name if folder.name == 'points' else folder.parent.name} {step}", file=sys.stderr)

measurements.keep = keep
sys.exit(process.main(["main.py", *sys.argv[2:]]))
"""
DEVICES = 4


def measured(workdir, *flags, killed_at=-1):
    return cluster.run(["-c", WORK, str(killed_at), *MEASURE, *flags, f"--workdir={workdir}"], devices=DEVICES)


def tables(workdir):
    return {path.relative_to(workdir): path.read_bytes() for path in workdir.rglob("*.nc")}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("trained") / "run"
    process = main(*DECODER, "--stages=train", f"--workdir={workdir}")
    assert process.returncode == 0, process.stderr
    return workdir


@pytest.fixture(scope="module")
def by_one(trained):
    """All tables of the run, as one process with as many devices as each of two has makes them."""
    workdir = shutil.copytree(trained, trained.with_name("by_one"))
    flags = f"--xla_force_host_platform_device_count={DEVICES}"
    process = main(*MEASURE, f"--workdir={workdir}", XLA_FLAGS=flags)
    assert process.returncode == 0, process.stderr
    return tables(workdir)


def test_two_processes_make_the_tables_of_one(trained, by_one):
    workdir = shutil.copytree(trained, trained.with_name("by_two"))
    ended = measured(workdir, "--distributed")
    assert [process.returncode for process in ended] == [0, 0], [process.stderr[-2000:] for process in ended]
    half = len(STEPS) // 2
    for process, steps in zip(ended, (STEPS[:half], STEPS[half:]), strict=True):
        for name in ("by_two", "values", "points"):
            assert re.findall(rf"{name} (\d+)$", process.stderr, re.MULTILINE) == list(map(str, steps))
    shared = f"checkpoints of each process: {half}, {half}\n"
    assert ended[0].stdout.count(shared) == 2  # one pass for all tables of a step, and one for updates
    assert len(by_one) == 3 * len(STEPS) + 4
    assert tables(workdir) == by_one


def test_a_killed_process_ends_the_others_and_the_same_command_goes_on(trained, by_one):
    workdir = shutil.copytree(trained, trained.with_name("killed"))
    first, second = measured(workdir, "--distributed", killed_at=STEPS[-2])  # the third step of the second process
    assert (first.returncode, second.returncode) == (1, -9)
    last = first.stderr.strip().splitlines()[-1]
    assert last.startswith("error: another process has ended (")
    assert last.endswith("; the same command, started on every host, resumes from what is saved")
    assert "Traceback" not in first.stderr
    there = {path: path.stat().st_mtime_ns for path in workdir.rglob("measurements/*.nc")}
    assert sorted({int(path.stem) for path in there}) == [*STEPS[:3], *STEPS[4:6]]
    assert len(there) == 2 * 5  # of the residual stream and of the values
    ended = measured(workdir, "--distributed")
    assert [process.returncode for process in ended] == [0, 0], [process.stderr[-2000:] for process in ended]
    assert f"{len(STEPS)} checkpoints measured ({len(STEPS)} now)" in ended[0].stdout  # their updates were missing
    assert tables(workdir) == by_one
