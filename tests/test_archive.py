"""Is a run whole, and how does it come back: `--stages=verify`, `--repair` and `--stages=replay`."""

import json
import pathlib
import random
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest

from anisoscope.measurement.api import open_run
from anisoscope.measurement.tables import files
from tests import kills, torture
from tests.program import DECODER, MATCHED_PAIR, ROOT, here
from tests.torture import words

ON_ONE_DEVICE = """
import signal, sys
from anisoscope.cli import signals
for one in signals.SIGNALS:  # as main.py has it from its first moment
    signal.signal(one, signals.leave)
print("begun", flush=True)
import jax
from anisoscope.utils import mesh
mesh.devices = lambda: jax.devices()[:1]
from anisoscope.cli import process
sys.exit(process.main(["main.py", *sys.argv[1:]]))
"""


def command(*flags, plain=False):
    return here(*([] if plain else DECODER), *flags)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A run that is trained and measured; drawing would take as long again."""
    root = tmp_path_factory.mktemp("stages")
    torture.make(command, root, ("trained", "measured"))
    return root / "measured" / "run"


@pytest.fixture(scope="module")
def root(measured):
    """One after each of its stages, with figures too."""
    torture.make(command, measured.parent.parent, ("full",))
    return measured.parent.parent


@pytest.fixture
def run(measured, tmp_path):
    return pathlib.Path(shutil.copytree(measured, tmp_path / "run"))


def test_a_sound_run_says_so_in_one_line(run):
    before = sorted(run.rglob("*"))
    process = command(f"--workdir={run}", "--stages=verify")
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout.startswith("decoder_small: whole: ")
    assert len(process.stdout.splitlines()) == 1
    assert sorted(run.rglob("*")) == before
    assert "damaged: " not in here(f"--status={run}").stdout


def test_what_is_damaged_is_named_and_comes_back_to_the_bit(run, measured):
    """One of each kind: a checkpoint, two tables swapped, a score, a table of all steps, settings."""
    torture.swap(run / "measurements" / "8.nc", run / "measurements" / "16.nc")
    (run / "checkpoints" / "8" / "_CHECKPOINT_METADATA").write_text("{")
    (run / "checkpoints" / "41").mkdir()
    (run / "test.json").write_text('{"bits_per_character": 0.5}')
    (run / "results.csv").unlink()
    (run / "config.json").write_text("{")
    command(f"--workdir={run}", "--stages=verify", "--repair")
    first = command(f"--workdir={run}", "--stages=verify")
    assert first.returncode == 0, words(first)
    assert torture.digests(run) == torture.digests(measured)
    moved = {path.relative_to(run).parts[1] for path in run.glob("damaged-*/*")}
    assert moved == {"checkpoints", "measurements", "test.json", "config.json"}


def test_each_line_says_what_is_wrong_and_nothing_is_moved_without_repair(run):
    torture.swap(run / "measurements" / "8.nc", run / "measurements" / "16.nc")
    (run / "checkpoints" / "41").mkdir()
    (run / "checkpoints" / "8" / "commit_success.txt").unlink()
    shutil.copy(run / "measurements" / "4.nc", run / "measurements" / "7.nc")
    process = command(f"--workdir={run}", "--stages=verify")
    assert process.returncode == 1
    for line in (
        "measurements/8.nc holds what was written to measurements/16.nc",
        "checkpoints/8 commit_success.txt is missing",
        "measurements/7.nc is damaged or not its own (table ",
        "checkpoints/41 is damaged or not its own",
    ):
        assert line in process.stdout
    assert process.stderr.startswith("error: decoder_small: 5 damaged, missing or not its own")
    assert not list(run.glob("damaged*"))


@pytest.mark.parametrize("name", ["test.json", "train.jsonl", "environment.json"])
def test_what_nothing_else_checks_is_refused_at_a_start(run, name):
    path = run / name
    path.write_text(path.read_text().replace("5", "6", 1))
    process = command(f"--workdir={run}", "--stages=measure")
    assert (process.returncode, len(process.stderr.splitlines())) == (1, 1)
    assert f"{path} has changed" in process.stderr
    assert f"damaged: {path} has changed" in here(f"--status={run}").stdout


def test_a_run_of_before_gets_a_manifest_after_a_check(run):
    (run / "manifest.jsonl").unlink()
    process = command(f"--workdir={run}", "--stages=verify")
    assert process.returncode == 0, words(process)
    assert "not in manifest.jsonl before, sound by its own checks: " in process.stdout
    (run / "test.json").write_text('{"bits_per_character": 0.5}')
    assert command(f"--workdir={run}", "--stages=verify").returncode == 1


def test_a_text_that_is_gone_is_told(run, monkeypatch):
    (run / "checkpoints" / "8" / "commit_success.txt").unlink()
    from anisoscope.cli import repair
    from anisoscope.utils.errors import UserError

    def gone(*_):
        raise UserError("data.path x cannot be read")

    monkeypatch.setattr(repair.corpus, "load", gone)
    process = command(f"--workdir={run}", "--stages=verify", "--repair")
    assert "cannot come back, as the text is gone (data.path x cannot be read): checkpoints/8" in process.stdout
    again = command(f"--workdir={run}", "--stages=verify")  # as after a kill before it was trained again
    assert again.returncode == 1
    assert "checkpoints/8 " in again.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["figures/manifest.jsonl", "config.json", "checkpoints/8/params/_sharding"])
def test_a_manifest_that_is_swapped_with_another_file_comes_back_with_it(root, tmp_path, name):
    """That of figures is a sound one, of another folder."""
    run = pathlib.Path(shutil.copytree(root / "full" / "run", tmp_path / "run"))
    torture.swap(run / "manifest.jsonl", run / name)
    process = command(f"--workdir={run}", "--stages=verify", "--repair")
    assert process.returncode == 0, words(process)
    after = command(f"--workdir={run}", "--stages=verify")
    assert after.returncode == 0, words(after)
    assert torture.digests(run) == torture.digests(root / "full" / "run")
    assert (run / "figures" / "training_curve.png").stat().st_size > 0


def test_a_manifest_of_another_folder_is_told_from_settings_that_were_changed(run, tmp_path):
    """Those of two runs are exchanged: config.json, which is as it was asked for, must stay."""
    other = command(f"--workdir={tmp_path / 'other'}", "--config.train.steps=1", "--stages=train")
    assert other.returncode == 0, words(other)
    settings = (run / "config.json").read_bytes()
    torture.swap(run / "manifest.jsonl", tmp_path / "other" / "manifest.jsonl")
    process = command(f"--workdir={run}", "--stages=verify", "--repair")
    assert process.returncode == 0, words(process)
    assert "manifest.jsonl is that of another folder; moved to " in process.stdout
    assert (run / "config.json").read_bytes() == settings
    assert command(f"--workdir={run}", "--stages=verify").returncode == 0


def test_settings_that_were_changed_are_refused_whoever_asks_for_them(run):
    there = json.loads((run / "config.json").read_text())
    there["train"]["steps"] += 1
    (run / "config.json").write_text(json.dumps(there))
    process = command(
        f"--workdir={run}", "--stages=verify", "--repair", f"--config.train.steps={there['train']['steps']}"
    )
    assert process.returncode == 2
    assert "config.json is damaged, and held other settings than these: train.steps" in process.stderr


@pytest.mark.slow
def test_a_step_that_was_never_saved_is_that_of_a_run_that_saved_it(run, tmp_path):
    """Parameters and the optimizer's state, by their digests; and measured, beside those of the schedule."""
    other = tmp_path / "other"
    steps = [9, 18, 21]
    assert command(f"--workdir={other}", "--stages=train", "--config.checkpoint.every=3").returncode == 0
    process = command(f"--workdir={run}", "--stages=replay", f"--step={','.join(map(str, steps))}")
    assert process.returncode == 0, words(process)
    there, made = torture.digests(other), torture.digests(run)
    for step in steps:
        assert made[f"replayed/checkpoints/{step}"] == there[f"checkpoints/{step}"]
    process = command(f"--workdir={run}", "--stages=measure", "--config.measure.steps=18")
    assert process.returncode == 0, words(process)
    assert 18 in files.read_table(run / "results.nc").step
    assert command(f"--workdir={run}", "--stages=verify").returncode == 0
    mine, its = open_run(run), open_run(other)
    assert {9, 18, 21} <= {*mine.steps}
    for step in (6, 9):  # trained again, and read
        np.testing.assert_array_equal(mine.params(step)["tokens"], its.params(step)["tokens"])


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--repair"], "--repair goes with --stages=verify"),
        (["--stages=verify,measure"], "--stages=verify is done alone; leave out measure"),
        (["--stages=replay"], "--stages=replay and --step=S go together"),
        (["--stages=replay", "--step=x"], "--step=x: a whole number is needed"),
        (["--stages=replay", "--step=99"], "--step=99: decoder_small ends at step 24"),
        (["--config.measure.steps=99"], "measure.steps is 99; it must lie in [0, 24]"),
    ],
)
def test_flags_that_do_not_fit_are_one_line(tmp_path, flags, said):
    process = command(f"--workdir={tmp_path / 'run'}", *flags)
    assert (process.returncode, len(process.stderr.splitlines())) == (2, 1)
    assert said in process.stderr


def start(said, flags):
    """A process on one of the devices that this one has: on another number the last digits differ."""

    def begin(*more):
        with open(said, "wb") as file:
            pipes = {"stdout": file, "stderr": file, "cwd": ROOT}
            process = subprocess.Popen([sys.executable, "-c", ON_ONE_DEVICE, *flags, *more], **pipes)
        while process.poll() is None and not said.stat().st_size:
            time.sleep(0.01)
        return process, said

    return begin


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "damages", "phases"),
    [
        (DECODER, 20, slice(None)),
        (MATCHED_PAIR, 5, slice(0, None, 2)),
        ([*DECODER, "--config.train.num_seeds=2", "--config.train.num_data_seeds=1"], 5, slice(1, None, 2)),
    ],
    ids=["run", "pair", "seeds"],
)
def test_no_damage_is_lasting_and_no_kill_is_damage(flags, damages, phases, tmp_path):
    """Few of those of `make torture`: none is silent, a traceback or lasting; after a kill all numbers are the same."""

    def command(*more, plain=False):
        return here(*([] if plain else flags), *more)

    torture.make(command, tmp_path)
    found = [
        torture.outcome(
            command, tmp_path / "full" / "run", tmp_path / "work" / "run", random.Random(f"damage {number}")
        )
        for number in range(damages)
    ]
    for number, (name, phase) in [*enumerate(kills.PHASES.items())][phases]:
        draw, where = random.Random(number), (tmp_path, tmp_path / "work" / "run")
        found.append(kills.killed(start(tmp_path / "said.txt", flags), command, *where, draw, name, phase, 8.0))
    assert [one for one in found if not torture.good(one)] == []
