"""Is a run whole? What `--stages=verify` says, and what kills leave."""

import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from anisoscope.utils import checksums
from tests.program import DECODER, ROOT, here, saved_digests

pytestmark = pytest.mark.usefixtures("programs_are_shared")
ON_ONE_DEVICE = """
import signal, sys
from anisoscope.cli import process
for one in process.SIGNALS:  # as main.py has it from its first moment
    signal.signal(one, process.leave)
print("begun", flush=True)
import jax
from anisoscope.utils import mesh
mesh.devices = lambda: jax.devices()[:1]
sys.exit(process.main(["main.py", *sys.argv[1:]]))
"""
VERIFY = "--stages=verify"
WORK = "--stages=train,measure"


def command(*flags):
    return here(*DECODER, *flags)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A run that is trained and measured; drawing would take as long again."""
    run = tmp_path_factory.mktemp("archive") / "run"
    process = command(f"--workdir={run}", WORK)
    assert process.returncode == 0, process.stderr
    return run


@pytest.fixture
def run(measured, tmp_path):
    return pathlib.Path(shutil.copytree(measured, tmp_path / "run"))


def numbers(run):
    """Digests of what a run is there for: its tables, score and the leaves of its checkpoints."""
    found = {
        path: checksums.digest(path) for kind in ("nc", "csv") for path in run.rglob(f"*.{kind}")
    }
    found[run / "test.json"] = checksums.digest(run / "test.json")
    for path in run.glob("*/*/_CHECKPOINT_METADATA"):
        found[path.parent] = saved_digests(path.parent)
    return {path.relative_to(run).as_posix(): digest for path, digest in found.items()}


def test_a_sound_run_says_so_in_one_line_and_sha256sum_agrees(run):
    before = sorted(run.rglob("*"))
    process = command(f"--workdir={run}", VERIFY)
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout.startswith("decoder_small: ")
    assert "all unchanged" in process.stdout
    assert len(process.stdout.splitlines()) == 1
    assert sorted(run.rglob("*")) == before
    if shutil.which("sha256sum"):
        subprocess.run(["sha256sum", "--quiet", "-c", checksums.CHECKSUMS], cwd=run, check=True)


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2, 3, 6, 8])  # a signal at a checkpoint or a table each
def test_after_a_kill_nothing_is_called_damaged_and_the_same_command_goes_on(
    number, measured, tmp_path
):
    """At a moment after the program has begun to train: in training, in a save, in a measurement,
    or at its end.
    """
    draw, run, said = random.Random(number), tmp_path / "run", tmp_path / "said"
    with open(said, "wb") as file:
        words = [sys.executable, "-c", ON_ONE_DEVICE, *DECODER, f"--workdir={run}", WORK]
        process = subprocess.Popen(words, stdout=file, stderr=file, cwd=ROOT)
    wanted = ("checkpoints/*", "checkpoints/*", "measurements/*")[number % 3]
    count = draw.randint(1, 8)
    while process.poll() is None and len([*run.glob(wanted)]) < count:
        time.sleep(0.002)
    time.sleep(draw.uniform(0, 0.2))
    process.send_signal((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)[number % 4])
    process.wait(timeout=600)
    assert "Traceback" not in said.read_text()
    verified = command(f"--workdir={run}", VERIFY)
    assert "has changed" not in verified.stdout
    process = command(f"--workdir={run}", WORK)
    assert process.returncode == 0, process.stdout + process.stderr
    assert numbers(run) == numbers(measured)
    assert command(f"--workdir={run}", VERIFY).returncode == 0
