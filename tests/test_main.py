"""The program as its users start it: what it says beforehand, trains, measures and draws."""

import json
import re
import shutil

import jax
import numpy as np
import pandas as pd
import pytest

from anisoscope.cli import drawing
from anisoscope.results import joined_files
from anisoscope.training import log, train_program
from tests import cluster, tiny
from tests.program import DECODER, MATCHED_PAIR, ROOT, TINY, here, main


def test_help_and_list_name_every_flag_setting_and_experiment():
    text = here(f"{DECODER[0]}:tiny", "--help", "--config.train.seed=3").stdout
    for words in ("--workdir: ", "--config.model.width=128 ", "--config.train.seed=3 "):
        assert words in text
    assert re.search(r"--config.train.steps=2\d+ +training steps.*\(0 to 1e\+09\)", text)
    assert "--config.norms=0,0.01," in here("--config=untrained_bias", "--help").stdout
    lines = here("--list").stdout.splitlines()
    for path in (ROOT / "experiments").glob("*.py"):
        if "def get_config(" in path.read_text():
            assert lines[lines.index(f"--config={path.stem}") + 1].strip()


def test_a_dry_run_compiles_no_step_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(train_program, "make_train_program", None)
    process = here(*MATCHED_PAIR, "--dry_run", f"--workdir={tmp_path / 'run'}")
    assert process.returncode == 0, process.stderr
    for words in (
        r"stages: train, measure, figures",
        r"encoder: 1 × \d,\d\d\d parameters, 24 steps",
        r"encoder: 8 checkpoints of each, [\d.]+ [kM]B on disk",
        r"encoder: a step takes about [\d.]+ MB of memory on each device",
        r"encoder: a step takes [\d.e-]+ s at least here .*, all steps (\d+ seconds|less than a)",
    ):
        assert re.search(words, process.stdout), (words, process.stdout)
    assert not any(tmp_path.iterdir())
    (tmp_path / "mine.txt").write_text("A text that is too short. " * 20)
    for flag, words in (
        (f"--workdir={tmp_path}", "is not empty and holds no run"),
        (f"--config.data.path={tmp_path / 'mine.txt'}", "needs 16: lower measure.points"),
        ("--config.train.batch_size=1000000000", "a step takes at least "),
    ):
        text = "--config.data.source=enwik8"  # a path is in its place
        refused = here(*DECODER, text, "--dry_run", f"--workdir={tmp_path / 'run'}", flag)
        assert (refused.returncode, words in refused.stderr) == (2, True), refused.stderr


@pytest.mark.slow
def test_the_memory_that_a_dry_run_says_is_about_that_of_the_program():
    config, text = tiny.config(), tiny.corpus()
    lines = [*train_program.describe_run(config, text)]
    said = float(re.search(r"about ([\d.]+) kB", lines[2])[1]) * 1e3
    program = train_program.make_train_program(config, text)
    state = jax.eval_shape(program.create)
    assert said == pytest.approx(train_program.check_step_memory(program, state), rel=0.5)


def test_a_step_larger_than_memory_is_refused_before_it_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr("anisoscope.training.train_program.available", lambda: 10**5)
    process = here(*DECODER, f"--workdir={tmp_path / 'run'}")
    assert process.returncode == 2
    assert re.search(
        r"a step takes .* and 100 kB are available: in a new --workdir, lower train", process.stderr
    )


SHORT = ["--config.train.steps=4", "--config.checkpoint.every=4", "--config.evaluate.every=2"]
STEPS = [0, 1, 2, 4]
PAIR = [*MATCHED_PAIR, *SHORT]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Run the whole command once, as a process."""
    workdir = tmp_path_factory.mktemp("runs") / "pair"
    process = main(*PAIR, f"--workdir={workdir}")
    assert process.returncode == 0, process.stderr
    return workdir, process.stdout


def test_one_command_trains_measures_and_draws(pair):
    workdir, output = pair
    for run in ("decoder", "encoder"):
        table = joined_files.read_table(workdir / run / "results.nc")
        assert list(table.step.values) == STEPS
        assert table.attrs["run"] == run
        assert "pydoc" in table.attrs["corpus"]
        assert json.loads((workdir / run / "config.json").read_text())["train"]["steps"] == 4
        assert (workdir / run / "environment.json").exists()
        assert set(pd.read_csv(workdir / run / "correlations.csv").run) == {run}
    rows = pd.read_csv(workdir / "runs.csv")
    names = list(joined_files.read_table(workdir / "runs.nc").run.values)
    assert list(rows.run) == names == ["decoder", "encoder"]
    assert list(rows["model.mask"]) == ["causal", "bidirectional"]
    for name, bits in zip(rows.run, rows.test_bits, strict=True):
        assert bits == log.read_score(workdir / name)["bits_per_character"]
    assert not (workdir / "contrasts.csv").exists()  # mask and objective differ both
    figures = sorted((workdir / "figures").glob("*.p??"))
    assert f"figures: {workdir / 'figures'} ({len(figures) // 2}, each as" in output
    assert {path.stem for path in figures} >= {"anisotropy_profile", "training_curve"}
    assert all(path.stat().st_size > 1000 for path in figures)
    assert output.splitlines()[-1] == f"page:    {workdir / 'report.html'}"
    assert (workdir / "report.html").exists()


def times(workdir):
    paths = (path for path in workdir.rglob("*") if "figures" not in path.parts)
    return {path: path.stat().st_mtime_ns for path in paths}


@pytest.mark.slow
def test_the_same_command_again_measures_nothing_and_draws_another_run_too(
    pair, tmp_path, monkeypatch
):
    workdir, _ = pair
    other = tmp_path / "other"
    shutil.copytree(workdir / "decoder", other, ignore=shutil.ignore_patterns("checkpoints"))
    before = {path: time for path, time in times(workdir).items() if "measurements" in path.parts}
    one = {"training_curve": drawing.draw.RUN_FIGURES["training_curve"]}
    monkeypatch.setattr(drawing.draw, "RUN_FIGURES", one)
    process = here(*PAIR, f"--workdir={workdir}", f"--compare={other}")
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("trained already") == 2
    assert process.stdout.count(f"{len(STEPS)} checkpoints measured (0 now)") == 2
    assert {path: times(workdir)[path] for path in before} == before


def test_a_folder_with_another_run_is_refused_and_left_as_it_was(pair):
    """Other settings; a pair where a grid lives; a run where a pair lives; a run that is none."""
    workdir, _ = pair
    before, draw = times(workdir), [*PAIR, "--stages=figures"]
    for flags, words in (
        ([*PAIR, "--config.train.seed=1"], "train.seed=0 there, 1 now"),
        (["--config=experiments/interventions_small.py", *TINY], "holds a run with other settings"),
        ([*DECODER, *SHORT, "--stages=figures"], "holds a run with other settings"),
        ([*draw, "--compare=decoder"], "already in the figures"),
        ([*draw, f"--figures={workdir}"], "is the folder of a run; name another folder"),
        ([*draw, f"--figures={workdir / 'decoder'}"], "is the folder of a run"),
        ([*draw, f"--compare={workdir}"], "holds the runs decoder, encoder; name a single run"),
    ):
        process = here(*flags, f"--workdir={workdir}")
        assert process.returncode == 2
        assert words in process.stderr
    assert times(workdir) == before


@pytest.mark.slow  # quick ones: tests/utils/test_processes.py, and all that runs on 8 devices
def test_two_processes_train_one_run(pair, tmp_path):
    """Each has two devices, parameters are split over all four: neither has all of them."""
    workdir = tmp_path / "pair"
    flags = ["--config.mesh.fsdp=4", "--distributed", "--stages=train"]
    ended = cluster.run(["main.py", *PAIR, *flags, f"--workdir={workdir}"], devices=2)
    errors = [process.stderr[-2000:] for process in ended]
    assert [process.returncode for process in ended] == [0, 0], errors
    assert "checkpoint" not in ended[1].stdout
    measured = here(*PAIR, "--stages=measure", f"--workdir={workdir}")
    assert measured.returncode == 0, measured.stderr
    for run in ("decoder", "encoder"):
        folders = [root / run for root in (workdir, pair[0])]
        many, one = (joined_files.read_table(folder / "results.nc") for folder in folders)
        np.testing.assert_allclose(many.anisotropy, one.anisotropy, rtol=1e-2)
        losses = [[line["loss"] for line in log.read_log(folder)] for folder in folders]
        np.testing.assert_allclose(*losses, rtol=1e-3)
