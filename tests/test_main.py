"""The program as its users start it: processes, exit codes, files."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from tables import files
from training import log

ROOT = pathlib.Path(__file__).parent.parent
SMALL = [
    "--config=experiments/quickstart.py",
    "--config.model.layers=2",
    "--config.model.width=16",
    "--config.model.heads=2",
    "--config.model.context=16",
    "--config.train.steps=40",
    "--config.train.batch_size=16",
    "--config.evaluate.stride=16",
    "--config.evaluate.every=10",
    "--config.checkpoint.every=20",
    "--config.measure.points=64",
    "--config.measure.batches=2",
]


def command(*flags):
    return [sys.executable, "main.py", *flags]


def environment():
    """One device, as on a user's machine, with the compilation cache of the test suite."""
    cache = str(ROOT / ".cache" / "jax")
    return os.environ | {
        "XLA_FLAGS": "",
        "JAX_COMPILATION_CACHE_DIR": cache,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "PYTHONWARNINGS": "ignore:Error reading persistent compilation cache entry:UserWarning",  # one being written
    }


def main(*flags):
    return subprocess.run(command(*flags), cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=900)


def refuse(workdir, words, *flags):
    """The program says what is wrong in one line, with exit code 2, and leaves no folder."""
    process = main(*flags, f"--workdir={workdir}")
    assert process.returncode == 2
    assert words in process.stderr
    assert len(process.stderr.strip().splitlines()) == 1
    assert not workdir.exists()


def wait_for(path, process):
    """Until the process has made the path, which the slowest machine does some day."""
    while not path.exists():
        assert process.poll() is None, f"ended with {process.returncode} before there was {path}"
        time.sleep(0.01)


DECODER = "--config=experiments/decoder_small.py"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "no experiment given"),
        (["--config=experiments/nothing.py"], "experiments/nothing.py"),
        ([DECODER + ":huge"], "choose small or tiny"),
        ([DECODER, "--colour=red"], "colour"),
        ([DECODER, "now"], "'now' is not a flag"),
        ([DECODER, "--stages=trian"], "'trian' is unknown; choose from train, measure, figures"),
        ([DECODER, "--stages="], "names no stage"),
        ([DECODER, "--compare=runs/nothing"], "runs/nothing/train.jsonl does not exist"),
        ([DECODER, "--distributed"], "finds no cluster"),
        ([DECODER, "--config.data.source=pydoc", "--config.mesh.fsdp=3"], "mesh.fsdp=3 does not use all of 1 devices"),
        (["--config=experiments/quickstart.py:tiny"], "takes no size"),
        (["--config=experiments/config.py"], "the file is no experiment"),
        ([DECODER, "--config.modle.layers=4"], "there is no config field 'modle'; did you mean 'model'?"),
        ([DECODER, "--config.colour=red"], "no config field 'colour'; choose from data, model"),
        ([DECODER, "--config.train.steps.x=5"], "steps.x: what stands before 'x' is a single setting"),
        ([DECODER, "--config.objective.x=5"], "objective.x: what stands before 'x' is a single setting"),
        ([DECODER, "--config.measure.families[0]=scale"], "did you mean 'families'?"),
        ([DECODER, "--config.train=3"], "--config.train is a group of settings; set one of them: steps, batch_size"),
        ([DECODER, "--config.variants.decoder=3"], "the runs of an experiment are set in its file, not by flags"),
        ([DECODER, "--config.model.tied=maybe"], "flag --config.model.tied=maybe: choose true or false"),
        ([DECODER, "--config.train.stps=3"], "did you mean 'steps'?"),
        ([DECODER, "--config.train.steps=many"], "--config.train.steps=many"),
        ([DECODER, "--config.train.steps=1.5"], "--config.train.steps=1.5"),
        ([DECODER, "--config.model.heads=7"], "it must divide model.width (512)"),
        ([DECODER, "--config.data.path=/nowhere/enwik8"], "/nowhere/enwik8"),
        (["--config=experiments/twins_small.py", "--config.objective=next"], "cannot be overridden"),
        (["--config=experiments/encoder_small.py", "--config.objective=next"], "shows the answer"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(flags, words, tmp_path):
    refuse(tmp_path / "run", words, *flags)


@pytest.fixture(scope="module")
def twins(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "twins"
    process = main(*SMALL, f"--workdir={workdir}")
    assert process.returncode == 0, process.stderr
    return workdir, process.stdout


def test_one_command_trains_measures_and_draws(twins):
    workdir, output = twins
    for run in ("decoder", "encoder"):
        table = files.read(workdir / run / "results.nc")
        assert list(table.step.values) == [0, 1, 2, 4, 8, 16, 20, 32, 40]
        assert table.attrs["run"] == run
        assert "pydoc" in table.attrs["corpus"]
        assert json.loads((workdir / run / "config.json").read_text())["train"]["steps"] == 40
        assert (workdir / run / "environment.json").exists()
        assert list((workdir / run).glob("events.out.tfevents.*"))
        assert set(pd.read_csv(workdir / run / "correlations.csv").run) == {run}
    figures = [line for line in output.splitlines() if line.endswith((".png", ".pdf"))]
    assert {pathlib.Path(path).stem for path in figures} >= {"anisotropy_profile", "dimension_over_training"}
    assert all(pathlib.Path(path).stat().st_size > 1000 for path in figures)


def test_an_experiment_of_several_runs_has_one_table_of_them(twins):
    workdir, output = twins
    rows = pd.read_csv(workdir / "runs.csv")
    assert list(rows.run) == list(files.read(workdir / "runs.nc").run.values) == ["decoder", "encoder"]
    assert list(rows["model.mask"]) == ["causal", "bidirectional"]
    for name, bits in zip(rows.run, rows.test_bits, strict=True):
        assert bits == json.loads((workdir / name / "test.json").read_text())["bits_per_character"]
    assert str(workdir / "figures" / "runs_compared.png") in output
    assert not (workdir / "contrasts.csv").exists()  # mask and objective differ both


def test_the_same_command_again_does_nothing(twins):
    workdir, _ = twins
    before = {p: p.stat().st_mtime_ns for p in workdir.rglob("*.nc") if "measurements" in p.parts}
    process = main(*SMALL, f"--workdir={workdir}")
    assert process.returncode == 0
    assert process.stdout.count("trained already") == 2
    assert {p: p.stat().st_mtime_ns for p in before} == before


def test_another_config_in_the_same_folder_is_refused(twins):
    workdir, _ = twins
    process = main(*SMALL, "--config.train.seed=1", f"--workdir={workdir}")
    assert process.returncode == 2
    assert "train.seed=0 there, 1 now" in process.stderr


def test_another_experiment_in_an_occupied_folder_is_refused(twins, tmp_path):
    """Twins where a grid lives, and a single run where twins live: nothing is drawn over, nothing is added."""
    workdir, _ = twins
    before = {p: p.stat().st_mtime_ns for p in workdir.rglob("*")}
    rest = [flag for flag in SMALL if not flag.startswith("--config=")]
    for name in ("interventions_small", "decoder_small"):
        for stages in ("train,measure", "figures"):
            flags = ["--config.data.source=pydoc", f"--workdir={workdir}", f"--stages={stages}"]
            process = main(f"--config=experiments/{name}.py", *rest, *flags)
            assert process.returncode == 2
            assert "holds a run with other settings" in process.stderr
    assert {p: p.stat().st_mtime_ns for p in workdir.rglob("*")} == before


def test_another_run_can_be_drawn_beside(twins, tmp_path):
    workdir, _ = twins
    other = tmp_path / "other"
    shutil.copytree(workdir / "decoder", other, ignore=shutil.ignore_patterns("checkpoints"))
    process = main(*SMALL, "--stages=figures", f"--workdir={workdir}", f"--compare={other}")
    assert process.returncode == 0
    assert "anisotropy_profile.png" in process.stdout
    for wrong, words in (("decoder", "one of this name"), (workdir, "holds the runs decoder, encoder; name one")):
        process = main(*SMALL, "--stages=figures", f"--workdir={workdir}", f"--compare={wrong}")
        assert process.returncode == 2
        assert words in process.stderr


def test_seeds_are_trained_together_into_a_folder_each(tmp_path):
    workdir = tmp_path / "twins"
    flags = [*SMALL, "--config.train.steps=2", "--stages=train", f"--workdir={workdir}"]
    flags += ["--config.train.num_seeds=2", "--config.train.num_data_seeds=1", "--config.train.data_seed=7"]
    for words in (
        "decoder: 2 weight × 1 data seeds: 2 × ",
        "encoder: 2 weight × 1 data seeds: trained already, 2 steps",
    ):
        process = main(*flags)
        assert process.returncode == 0, process.stderr
        assert words in process.stdout
    runs = {f"{twin}_weights_{weights}_data_7" for twin in ("decoder", "encoder") for weights in (0, 1)}
    assert {path.parent.name for path in workdir.glob("*/test.json")} == runs
    train = json.loads((workdir / "encoder_weights_1_data_7" / "config.json").read_text())["train"]
    assert (train["seed"], train["data_seed"], train["num_seeds"], train["num_data_seeds"]) == (1, 7, 1, None)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_whole_command_politely(tmp_path, signum):
    workdir = tmp_path / "twins"
    flags = [*SMALL, "--config.train.steps=5000", f"--workdir={workdir}"]
    with subprocess.Popen(command(*flags), cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        wait_for(workdir / "decoder" / "checkpoints" / "8", process)
        second = main(*flags)
        process.send_signal(signum)
        output, _ = process.communicate(timeout=900)
    assert process.returncode == 0
    assert "decoder: stopped at step" in output
    assert "the same command goes on from there" in output
    assert not (workdir / "encoder" / "checkpoints").exists()
    assert second.returncode == 2
    assert "another process works in" in second.stderr


def test_figures_without_tables_name_the_missing_stage(tmp_path):
    process = main(*SMALL, "--stages=figures", f"--workdir={tmp_path / 'run'}")
    assert process.returncode == 2
    assert "--stages=train first" in process.stderr


def test_two_processes_train_and_measure_one_run(twins, tmp_path):
    """As under SLURM, each process with two devices, parameters split over both."""
    workdir = tmp_path / "twins"
    flags = [*SMALL, "--config.mesh.fsdp=2", "--distributed", "--stages=train,measure", f"--workdir={workdir}"]
    cluster = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_NUM_NODES": "1"}
    cluster |= {"SLURM_NTASKS": "2", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    with contextlib.ExitStack() as stack:
        errors = [stack.enter_context((tmp_path / f"errors_{rank}").open("w+")) for rank in "01"]
        started = [
            subprocess.Popen(
                command(*flags),
                cwd=ROOT,
                env=environment() | cluster | {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)},
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
            for rank, stderr in enumerate(errors)
        ]
        for process in started:
            stack.callback(process.kill)
        outputs = [process.communicate(timeout=900)[0] for process in started]
        said = [(tmp_path / f"errors_{rank}").read_text()[-2000:] for rank in "01"]
    assert [process.returncode for process in started] == [0, 0], said
    assert outputs[0].count("9 checkpoints measured") == 2
    assert "checkpoints" not in outputs[1]
    for run in ("decoder", "encoder"):
        many, one = (files.read(root / run / "results.nc") for root in (workdir, twins[0]))
        np.testing.assert_allclose(many.mean_norm, one.mean_norm, rtol=1e-3)
        np.testing.assert_allclose(many.anisotropy, one.anisotropy, rtol=1e-2)
        lines = [[line["loss"] for line in log.read(root / run)] for root in (workdir, twins[0])]
        np.testing.assert_allclose(*lines, rtol=1e-3)


def test_a_checkpoint_that_cannot_be_written_is_one_line(tmp_path):
    """No file may grow over 8 blocks of 1 KiB, as on a full disk. In a process: Orbax leaves coroutines behind."""
    program = " ".join(command(*SMALL, "--stages=train", f"--workdir={tmp_path / 'run'}"))
    limited = ["bash", "-c", f"ulimit -f 8; exec {program}"]
    env = environment() | {"JAX_COMPILATION_CACHE_DIR": ""}
    process = subprocess.run(limited, cwd=ROOT, env=env, capture_output=True, text=True, timeout=900)
    assert process.returncode == 1
    lines = [line for line in process.stderr.splitlines() if line.strip() and "step/s" not in line]
    assert len(lines) == 1
    assert re.search(r"checkpoints/0 could not be saved .*the same command goes on", lines[0])


def test_a_killed_run_goes_on_to_the_same_numbers(twins, tmp_path):
    """SIGKILL in the middle of training; the same command again ends with the same tables and log."""
    workdir = tmp_path / "twins"
    with subprocess.Popen(
        command(*SMALL, f"--workdir={workdir}"), cwd=ROOT, env=environment(), stderr=subprocess.DEVNULL
    ) as p:
        wait_for(workdir / "decoder" / "checkpoints" / "8", p)
        p.send_signal(signal.SIGKILL)
    assert not (workdir / "decoder" / "test.json").exists()
    assert main(*SMALL, f"--workdir={workdir}").returncode == 0
    for run in ("decoder", "encoder"):
        assert (workdir / run / "results.csv").read_bytes() == (twins[0] / run / "results.csv").read_bytes()
        logs = [log.read(root / run) for root in (workdir, twins[0])]
        for lines in logs:
            for line in lines:
                line.pop("characters_per_second", None)
        assert logs[0] == logs[1]
