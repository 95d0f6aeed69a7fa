"""The program as its users start it: what it says beforehand, trains, measures and draws; stopped,
it goes on.
"""

import json
import re
import shutil
import signal
import subprocess

import numpy as np
import pandas as pd
import pytest

from anisoscope.results import joined_files
from anisoscope.training import log
from tests import cluster
from tests.program import (
    DECODER,
    MATCHED_PAIR,
    ROOT,
    STEPS,
    TINY,
    environment,
    here,
    main,
    start,
    wait_for,
)


def test_help_and_list_name_every_flag_setting_and_experiment():
    text = here(f"{DECODER[0]}:tiny", "--help", "--config.train.seed=3").stdout
    for words in (
        "--workdir: ",
        "--dry_run: ",
        "--config.model.width=128 ",
        "--config.train.seed=3 ",
    ):
        assert words in text
    assert "--config.norms=0,0.01," in here("--config=untrained_bias", "--help").stdout
    lines = here("--list").stdout.splitlines()
    for path in (ROOT / "experiments").glob("*.py"):
        if "def get_config(" in path.read_text():
            assert lines[lines.index(f"--config={path.stem}") + 1].strip()


def test_a_dry_run_measures_a_step_and_writes_nothing(tmp_path):
    process = here(*MATCHED_PAIR, "--dry_run", f"--workdir={tmp_path / 'run'}")
    assert process.returncode == 0, process.stderr
    for words in (
        r"stages: train, measure, figures",
        r"decoder: 1 × \d,\d\d\d parameters, 24 steps",
        r"encoder: 8 checkpoints of each, [\d.]+ [kM]B on disk",
        r"decoder: a step takes [\d.]+ MB of memory on each device",
        r"decoder: a step takes [\d.e-]+ s here, all steps \d+ seconds",
    ):
        assert re.search(words, process.stdout), (words, process.stdout)
    assert not any(tmp_path.iterdir())
    (tmp_path / "mine.txt").touch()
    refused = here(*MATCHED_PAIR, "--dry_run", f"--workdir={tmp_path}")
    assert (refused.returncode, "is not empty and holds no run" in refused.stderr) == (2, True)


def test_a_step_larger_than_memory_is_refused_before_it_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr("anisoscope.training.train_program.available", lambda: 10**5)
    process = here(*DECODER, f"--workdir={tmp_path / 'run'}")
    assert process.returncode == 2
    assert re.search(
        r"a step takes .* and 100 kB are available: lower train.batch_size", process.stderr
    )


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Run the whole command once, as a process: other tests compare their numbers with these to the
    bit.
    """
    workdir = tmp_path_factory.mktemp("runs") / "pair"
    process = main(*MATCHED_PAIR, f"--workdir={workdir}")
    assert process.returncode == 0, process.stderr
    return workdir, process.stdout


def test_one_command_trains_measures_and_draws(pair):
    workdir, output = pair
    for run in ("decoder", "encoder"):
        table = joined_files.read_table(workdir / run / "results.nc")
        assert list(table.step.values) == STEPS
        assert table.attrs["run"] == run
        assert "pydoc" in table.attrs["corpus"]
        assert json.loads((workdir / run / "config.json").read_text())["train"]["steps"] == 24
        assert (workdir / run / "environment.json").exists()
        assert list((workdir / run).glob("events.out.tfevents.*"))
        assert set(pd.read_csv(workdir / run / "correlations.csv").run) == {run}
    assert re.search(
        r"bits per character on the test split: decoder \d\.\d\d "
        r"\(predicting next character; context gain -?\d\.\d\d\); enc",
        output,
    )
    figures = sorted((workdir / "figures").glob("*.p??"))
    assert f"figures: {workdir / 'figures'} ({len(figures) // 2}, each as" in output
    assert {path.stem for path in figures} >= {"anisotropy_profile", "training_curve"}
    assert all(path.stat().st_size > 1000 for path in figures)


def test_an_experiment_of_several_runs_has_one_table_of_them(pair):
    workdir, output = pair
    rows = pd.read_csv(workdir / "runs.csv")
    assert (
        list(rows.run)
        == list(joined_files.read_table(workdir / "runs.nc").run.values)
        == ["decoder", "encoder"]
    )
    assert list(rows["model.mask"]) == ["causal", "bidirectional"]
    for name, bits in zip(rows.run, rows.test_bits, strict=True):
        assert bits == json.loads((workdir / name / "test.json").read_text())["bits_per_character"]
    assert (workdir / "figures" / "runs_compared.png").exists()
    assert output.splitlines()[-1] == f"page:    {workdir / 'report.html'}"
    assert (workdir / "report.html").exists()
    assert not (workdir / "contrasts.csv").exists()  # mask and objective differ both


def times(workdir):
    return {
        path: path.stat().st_mtime_ns for path in workdir.rglob("*") if "figures" not in path.parts
    }


@pytest.mark.slow
def test_the_same_command_again_measures_nothing_and_draws_another_run_beside(pair, tmp_path):
    workdir, _ = pair
    other = tmp_path / "other"
    shutil.copytree(workdir / "decoder", other, ignore=shutil.ignore_patterns("checkpoints"))
    before = {path: time for path, time in times(workdir).items() if "measurements" in path.parts}
    process = here(*MATCHED_PAIR, f"--workdir={workdir}", f"--compare={other}")
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("trained already") == 2
    assert process.stdout.count(f"{len(STEPS)} checkpoints measured (0 now)") == 2
    assert f"figures: {workdir / 'figures'}" in process.stdout
    assert {path: times(workdir)[path] for path in before} == before


def test_a_folder_with_another_run_is_refused_and_left_as_it_was(pair):
    """Other settings; a pair where a grid lives, or a single run where a pair lives; a run that is
    no run.
    """
    workdir, _ = pair
    before = times(workdir)
    for flags, words in (
        ([*MATCHED_PAIR, "--config.train.seed=1"], "train.seed=0 there, 1 now"),
        (["--config=experiments/interventions_small.py", *TINY], "holds a run with other settings"),
        ([*DECODER, "--stages=figures"], "holds a run with other settings"),
        ([*MATCHED_PAIR, "--stages=figures", "--compare=decoder"], "one of this name"),
        (
            [*MATCHED_PAIR, "--stages=figures", f"--compare={workdir}"],
            "holds the runs decoder, encoder; name one",
        ),
    ):
        process = here(*flags, f"--workdir={workdir}")
        assert process.returncode == 2
        assert words in process.stderr
    assert times(workdir) == before


def logged(run):
    """The lines of a run's log, but for how fast it went."""
    return [
        {name: value for name, value in line.items() if name != "characters_per_second"}
        for line in log.read_log(run)
    ]


@pytest.mark.slow
def test_a_run_that_is_stopped_and_killed_goes_on_to_the_same_numbers(pair, tmp_path):
    """SIGTERM, then SIGKILL, in the middle of training; the same command again ends with the same
    tables and log.
    """
    run = tmp_path / "decoder"
    flags = [*DECODER, "--stages=train,measure", f"--workdir={run}"]
    with start(*flags, env=environment(), stderr=subprocess.DEVNULL) as process:
        wait_for(run / "checkpoints" / "1", process)
        process.send_signal(signal.SIGSTOP)  # the other command may take longer than this training
        second = here(*flags)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        output, _ = process.communicate(timeout=900)
    assert (second.returncode, process.returncode) == (2, 0)
    assert f"another process works in {run}" in second.stderr
    assert re.search("decoder_small: stopped .*; the same command resumes there", output)
    with start(*flags, env=environment(), stderr=subprocess.DEVNULL) as process:
        wait_for(run / "checkpoints" / "8", process)
        process.send_signal(signal.SIGKILL)
    process = main(*flags)
    assert process.returncode == 0, process.stderr
    table = (run / "results.csv").read_text().replace("decoder_small", "decoder")
    assert table == (pair[0] / "decoder" / "results.csv").read_text()
    assert logged(run) == logged(pair[0] / "decoder")


@pytest.mark.slow  # quick ones: tests/utils/test_processes.py, and all that runs on 8 devices
def test_two_processes_train_and_measure_one_run(pair, tmp_path):
    """Each process has two devices, parameters are split over all four: both work on every
    checkpoint.
    """
    workdir = tmp_path / "pair"
    flags = [
        *MATCHED_PAIR,
        "--config.mesh.fsdp=4",
        "--distributed",
        "--stages=train,measure",
        f"--workdir={workdir}",
    ]
    ended = cluster.run(["main.py", *flags], devices=2)
    assert [process.returncode for process in ended] == [0, 0], [
        process.stderr[-2000:] for process in ended
    ]
    outputs = [process.stdout for process in ended]
    assert "checkpoints of each process" not in outputs[0]  # no process has all of the parameters
    assert outputs[0].count(f"{len(STEPS)} checkpoints measured") == 2
    assert "checkpoints" not in outputs[1]
    for run in ("decoder", "encoder"):
        many, one = (
            joined_files.read_table(root / run / "results.nc") for root in (workdir, pair[0])
        )
        np.testing.assert_allclose(many.anisotropy, one.anisotropy, rtol=1e-2)
        lines = [[line["loss"] for line in log.read_log(root / run)] for root in (workdir, pair[0])]
        np.testing.assert_allclose(*lines, rtol=1e-3)
