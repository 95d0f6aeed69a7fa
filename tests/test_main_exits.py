"""How the program ends: one line and an exit code, whatever it is that ends it."""

import re
import signal
import subprocess

import jax
import pytest

from anisoscope.cli import drawing, training_stages
from anisoscope.utils.errors import RunError, Stopped, UserError
from tests.program import DECODER, ROOT, command, environment, here, main, refuse, start

DEMO, PRETRAINED = "--config=quickstart", "--config=experiments/pretrained.py"
BIAS, INHERENT = "--config=untrained_bias", "--config=inherent"
ENWIK8 = "--config.data.source=enwik8"
HOOKS = "--config.measure.hook_points=mlp_out"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "to measure a file of vectors: measure FILE"),
        ([f"{DECODER[0]}:huge"], "choose small or tiny"),
        (["--flagfile=/dev/zero"], "--flagfile is not a flag"),
        ([*DECODER, ENWIK8, "--config.data.path=/dev/zero"], "/dev/zero is a device or a pipe"),
        (
            [*DECODER, ENWIK8, "--config.data.path=~/nowhere.txt"],
            "/home/nowhere.txt cannot be read",
        ),
        ([*DECODER, "--config.train.steps=3000000000"], "train.steps is 3000000000"),
        ([*DECODER, "--config.train.num_seeds=100000"], "train.num_seeds is 100000"),
        ([f"{BIAS}", "--config.width=1000000000"], "width is 1000000000"),
        (["--wrkdir=x"], "did you mean --workdir?"),
        (["--config=experiments/quikstart.py"], "there is no file experiments/quikstart.py"),
        (["--similarity=runs/a"], "--similarity compares two runs"),
        (["--similarity=runs/nothing,runs/none"], "runs/nothing/config.json"),
        ([DEMO, "--figures=docs"], "files that are not figures of this command"),
        ([DEMO, "--stages=trian"], "'trian'; choose one of train, measure, tangents, figures"),
        ([DEMO, "--over=gain_over_unigrm"], "choose one of step, gain_over_unigram"),
        ([DEMO, "--compare=runs/nothing"], "runs/nothing/results.nc does not exist"),
        ([*DECODER, "--config.mesh.fsdp=3"], "mesh.fsdp=3 does not use all of 1 devices"),
        ([*DECODER, "--stages=figures"], "--stages=train first"),
        ([DECODER[0], "--config.data.path=/nowhere"], "data.path /nowhere cannot be read"),
        ([f"{BIAS}:huge"], "choose bert or table or full or tiny"),
        ([BIAS, "--config.heads=7"], "heads is 7; it must divide width (768)"),
        ([BIAS, "--stages=train"], "untrained blocks are not trained here"),
        ([BIAS, "--compare=runs/a"], "--compare is for models that are trained here"),
        ([BIAS, "--config.seed=-3"], "seed is -3; it must lie in"),
        ([DEMO, "--config.measure.families=attention", HOOKS], "are measured by families of cl"),
        ([PRETRAINED], "no model is named"),
        ([f"{PRETRAINED}:a/b", "--stages=train"], "pretrained models are not trained here"),
        ([f"{PRETRAINED}:a/b", "--config.pretrained.dtype=int8"], "pretrained.dtype is 'int8'"),
        ([*DECODER, "--stages=verify,measure"], "--stages=verify runs alone"),
        ([*DECODER, "--distributed"], "--distributed trains alone; pass --stages=train"),
        ([*DECODER, "--stages=measure", "--steps=3"], "--steps='3' is no part of a list"),
        ([*DECODER, "--stages=measure", "--steps=0::0"], "--steps='0::0' is no part of a list"),
        ([*DECODER, "--steps=0::4"], "--steps is for --stages=measure; omit it"),
        ([BIAS, "--steps=0::4"], "--steps is for"),
        ([*DECODER, "--stages="], "--stages= names no stage"),
        ([*DECODER, "--figures=README.md"], "--figures=README.md is a file; name a folder"),
        ([INHERENT, "--config.models="], "no model is named"),
        ([INHERENT, "--config.hidden_states=all"], "hidden_states is 'all'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(flags, words, tmp_path):
    refuse(tmp_path / "run", words, *flags)


def test_a_folder_that_is_a_link_to_itself_is_one_line(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for flag in ("--workdir", "--figures", "--compare"):
        process = here(*DECODER, f"{flag}={tmp_path / 'loop' / 'run'}")
        assert process.returncode == 2
        assert process.stderr.endswith("leads through a link to itself; name another folder\n")


@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_refused_by_the_process(tmp_path):
    words = "--distributed finds no cluster"
    refuse(tmp_path / "run", words, *DECODER, "--distributed", "--stages=train", start=main)


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (UserError("two\nlines"), 2, "two lines"),
        (RunError("the loss is not finite"), 1, "the loss is not finite"),
        (OSError(28, "No space left on device", "a/b"), 1, "a/b: No space left on device; free"),
        (OSError(30, "Read-only file system", "a/b"), 1, "a/b: Read-only file system; name"),
        (MemoryError("3 GiB\nfor an array"), 1, "out of memory (3 GiB): lower measure.points"),
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: full"), 1, "out of memory (RESOURCE_EXH"),
        (KeyboardInterrupt(), 130, "interrupted; the same command resumes"),
        (Stopped("stopped at step 3"), 0, "stopped at step 3; the same command resumes there\n"),
    ],
)
def test_what_ends_a_run_is_one_line_and_an_exit_code(monkeypatch, tmp_path, error, code, words):
    def work(*_):
        raise error

    monkeypatch.setattr(training_stages, "work", work)
    process = here(*DECODER, f"--workdir={tmp_path / 'run'}")
    assert process.returncode == code
    if code == 0:
        assert (process.stdout, process.stderr) == (words, "")
    else:
        assert (process.stdout, process.stderr.count("\n")) == ("", 1)
        assert process.stderr.startswith(f"error: {words}")


def test_a_signal_while_figures_are_drawn_is_one_line(monkeypatch, tmp_path):
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    monkeypatch.setattr(training_stages, "work", lambda *_: None)
    monkeypatch.setattr(training_stages, "check_folders", lambda *_, **__: None)
    monkeypatch.setattr(drawing, "draw_figures", lambda *_: signal.raise_signal(signal.SIGTERM))
    process = here(*DECODER, f"--workdir={tmp_path / 'run'}")
    assert (process.returncode, process.stdout) == (130, "")
    assert (
        process.stderr == "error: interrupted; the same command resumes from the last checkpoint\n"
    )
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_signal_at_the_start_is_one_line(tmp_path):
    """While libraries are loaded, which fail in many words where an exception comes between."""
    # tells what is imported
    pipes = {"env": environment() | {"PYTHONVERBOSE": "1"}, "stderr": subprocess.PIPE}
    with start(*DECODER, f"--workdir={tmp_path / 'run'}", **pipes) as process:
        for line in process.stderr:
            if line.startswith("import 'jaxlib"):
                break
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "error: interrupted; the same command resumes from the last checkpoint\n" in errors
    assert "Traceback" not in errors


@pytest.mark.slow
def test_a_checkpoint_that_cannot_be_written_is_one_line(tmp_path):
    """No file may grow over 8 blocks of 1 KiB, as on a full disk. In processes: Orbax leaves
    coroutines and signals behind.
    """
    program = command(*DECODER, "--stages=train", f"--workdir={tmp_path / 'run'}")
    options = {"cwd": ROOT, "env": environment(), "capture_output": True, "text": True}
    limited = ["bash", "-c", f"ulimit -f 8; exec {' '.join(program)}"]
    process = subprocess.run(limited, timeout=900, **options)
    assert process.returncode == 1
    lines = [line for line in process.stderr.splitlines() if line.strip() and "/24 [" not in line]
    assert len(lines) == 1
    assert re.search(r"checkpoints/0 could not be saved .*the same command resumes", lines[0])
    again = subprocess.run(program, timeout=900, **options)
    assert again.returncode == 0, again.stderr
