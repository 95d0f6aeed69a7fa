"""Is a run whole? What `--stages=verify` names, how it comes back, and what kills leave."""

import errno
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from anisoscope.cli import archive
from anisoscope.utils import checksums
from anisoscope.utils.errors import RunError
from tests.program import DECODER, ROOT, flip, here, saved_digests

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
        subprocess.run(["sha256sum", "--quiet", "-c", checksums.NAME], cwd=run, check=True)


def test_a_run_that_is_gone_is_damage_and_the_others_are_checked(tmp_path, capsys):
    (tmp_path / "second").mkdir()
    runs = [(name, tmp_path / name, None) for name in ("first", "second")]
    with pytest.raises(RunError, match="2 files damaged, missing or not recorded"):
        archive.verify_folders("both", runs)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["first", "second"]


def swap_and_forge(path):
    other = path.with_name("16.nc")
    content, other_content = path.read_bytes(), other.read_bytes()
    path.write_bytes(other_content)
    other.write_bytes(content)
    forge(path.parent.with_name("test.json"))


def forge(path):
    path.write_text('{"bits_per_character": 0.5}')


def flip_largest(folder):
    files = (path for path in folder.rglob("*") if path.is_file())
    flip(max(files, key=lambda path: path.stat().st_size))


def copy_step(path):
    shutil.copy(path.with_name("4.nc"), path)


def cut_short(path):
    os.truncate(path, 99)


def make_folder(path):
    path.unlink()
    path.mkdir()


def link(path):
    path.unlink()
    path.symlink_to("results.nc")


def damage_settings(path):
    path.write_text("{")


def cut_metadata(path):
    (path / "_CHECKPOINT_METADATA").unlink()


TABLE, GONE = "measurements/8.nc", pathlib.Path.unlink
# Damages of a path, which is named; where deleting it brings the same numbers back, and elsewhere.
HEALED = [(TABLE, flip), (TABLE, cut_short), (TABLE, swap_and_forge), (TABLE, GONE)]
HEALED += [("measurements/7.nc", copy_step), ("results.nc", flip), ("results.csv", flip)]
HEALED += [("test.json", forge), ("test.json", make_folder), ("batches.nc", link)]
HEALED += [("checkpoints/24", flip_largest), (checksums.NAME, damage_settings)]
HEALED += [(checksums.NAME, GONE)]
OTHERS = [("train.jsonl", flip), ("checkpoints/8", cut_metadata), ("config.json", damage_settings)]
CASES = [
    pytest.param(*case, marks=[] if case[1] is swap_and_forge else pytest.mark.slow)
    for case in (*HEALED, *OTHERS)
]


@pytest.mark.parametrize(("what", "damage"), CASES)
def test_each_damage_is_a_line_and_the_same_command_makes_it_again(run, measured, what, damage):
    damage(run / what)
    process = command(f"--workdir={run}", VERIFY)
    assert process.returncode == 1
    assert f"{run / what} " in process.stdout
    assert process.stderr.startswith("error: decoder_small: ")
    assert len(process.stderr.splitlines()) == 1
    if (what, damage) in OTHERS:
        return
    for path in (pathlib.Path(line.split()[1]) for line in process.stdout.splitlines()):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    if what.startswith("checkpoints"):
        (run / "test.json").unlink()  # so that training goes on
    process = command(f"--workdir={run}", WORK)
    assert process.returncode == 0, process.stdout + process.stderr
    assert numbers(run) == numbers(measured)
    assert command(f"--workdir={run}", VERIFY).returncode == 0


def test_a_start_refuses_what_has_changed(run):
    name = "results.nc"
    flip(run / name)
    process = command(f"--workdir={run}", "--stages=measure")
    assert (process.returncode, len(process.stderr.splitlines())) == (1, 1)
    assert f"{run / name} has changed since it was written" in process.stderr


@pytest.mark.parametrize(
    ("code", "words"), [(errno.EMFILE, "ulimit -n"), (errno.EIO, "results.nc cannot be read (")]
)
def test_a_limit_of_open_files_is_no_damage_and_a_bad_disk_is(run, monkeypatch, code, words):
    digest = checksums.digest

    def fails(path):
        if path.name == "results.nc":
            raise OSError(code, os.strerror(code), str(path))
        return digest(path)

    monkeypatch.setattr(checksums, "digest", fails)
    process = command(f"--workdir={run}", VERIFY)
    assert process.returncode == 1
    assert words in (process.stderr if code == errno.EMFILE else process.stdout)
    assert (process.stdout == "") == (code == errno.EMFILE)


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
    assert all(
        "is not recorded in" in line or "unchanged" in line for line in verified.stdout.splitlines()
    )
    process = command(f"--workdir={run}", WORK)
    assert process.returncode == 0, process.stdout + process.stderr
    assert numbers(run) == numbers(measured)
    assert command(f"--workdir={run}", VERIFY).returncode == 0
