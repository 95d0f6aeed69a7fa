"""How the program ends: one line and an exit code, whatever it is that ends it."""

import re
import signal
import subprocess

import jax
import pytest

from anisoscope.cli import drawing, training_stages
from anisoscope.utils.errors import RunError, Stopped, UserError
from tests.program import DECODER, ROOT, command, environment, here, main, refuse, start


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "no experiment is named"),
        ([DECODER[0] + ":huge"], "choose small or tiny"),
        (["--wrkdir=x"], "--wrkdir is not a flag; did you mean 'workdir'?"),
        (["--config=experiments/quikstart.py"], "did you mean 'experiments/quickstart.py'?"),
        (["--similarity=runs/a"], "--similarity compares two runs; name two"),
        (["--similarity=runs/nothing,runs/none"], "runs/nothing/config.json"),
        (
            [DECODER[0], "--figures=docs"],
            "--figures=docs is not empty and holds no figures drawn here; name another",
        ),
        (
            [DECODER[0], "--figures=README.md"],
            "--figures=README.md is no folder; name one that is empty or new",
        ),
        (
            [DECODER[0], "--stages=trian"],
            "'trian'; choose one of train, measure, tangents, figures, matched",
        ),
        (
            [DECODER[0], "--over=contxt_gain"],
            "choose one of step, context_gain; did you mean 'context_gain'",
        ),
        (["--config=experiments/quickstart.py:"], "nothing stands after ':'; leave it out too"),
        (
            [DECODER[0], "--config.data.cache="],
            "data.cache is empty; name a folder, or leave it out",
        ),
        (
            [*DECODER, "--stages=train,figures"],
            "figures are drawn from tables, which the stage measure writes; add it",
        ),
        (
            [DECODER[0], "--config.model.width=10000000000000"],
            "model.width is 10000000000000; it must lie",
        ),
        ([DECODER[0], "--compare=runs/nothing"], "runs/nothing/train.jsonl does not exist"),
        ([*DECODER, "--config.mesh.fsdp=3"], "mesh.fsdp=3 does not use all of 1 devices"),
        ([*DECODER, "--stages=figures"], "--stages=train first"),
        (
            [DECODER[0], "--config.train.steps=20000", "--config.checkpoint.every=1"],
            "would keep 20,000 checkpoints",
        ),
        ([*DECODER, "--stages=train,matched"], "this experiment has one"),
        (
            [*DECODER, "--stages=train,matched", "--config.train.num_seeds=2"],
            "differ in their seeds alone",
        ),
        (
            [DECODER[0], "--config.data.path=/nowhere/enwik8"],
            "data.path /nowhere/enwik8 cannot be read",
        ),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(flags, words, tmp_path):
    refuse(tmp_path / "run", words, *flags)


@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_refused_by_the_process(tmp_path):
    refuse(
        tmp_path / "run", "--distributed finds no cluster", *DECODER, "--distributed", start=main
    )


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (UserError("two\nlines"), 2, "error: two lines\n"),
        (RunError("the loss is not finite"), 1, "error: the loss is not finite\n"),
        (
            OSError(28, "No space left on device", "a/b"),
            1,
            "error: a/b: No space left on device; make room on the disk, and the same command resumes there\n",
        ),
        (
            OSError(30, "Read-only file system", "a/b"),
            1,
            "error: a/b: Read-only file system; name a folder on another disk with --workdir= or --figures=\n",
        ),
        (
            MemoryError("Unable to allocate 3 GiB\nfor an array"),
            1,
            "error: out of memory (Unable to allocate 3 GiB): lower train.batch_size, measure.points or model.width; "
            "the same command resumes from what is saved\n",
        ),
        (
            jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory"),
            1,
            "error: out of memory (RESOURCE_EXHAUSTED: Out of memory): lower train.batch_size, measure.points or "
            "model.width; the same command resumes from what is saved\n",
        ),
        (
            RuntimeError("Unable to initialize backend 'tpu': no such device\nand more"),
            2,
            "error: Unable to initialize backend 'tpu': no such device: set JAX_PLATFORMS to a device that is there, "
            "or unset it\n",
        ),
        (
            KeyboardInterrupt(),
            130,
            "error: interrupted; the same command resumes from the last checkpoint\n",
        ),
        (Stopped("stopped at step 3"), 0, "stopped at step 3; the same command resumes there\n"),
    ],
)
def test_what_ends_a_run_is_one_line_and_an_exit_code(monkeypatch, tmp_path, error, code, words):
    def work(*_):
        raise error

    monkeypatch.setattr(training_stages, "work", work)
    process = here(*DECODER, f"--workdir={tmp_path / 'run'}")
    said = (words, "") if code == 0 else ("", words)
    assert (process.returncode, process.stdout, process.stderr) == (code, *said)


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
    """No file may grow over 8 blocks of 1 KiB, as on a full disk. In a process: Orbax leaves
    coroutines behind.
    """
    program = " ".join(command(*DECODER, "--stages=train", f"--workdir={tmp_path / 'run'}"))
    limited = ["bash", "-c", f"ulimit -f 8; exec {program}"]
    process = subprocess.run(
        limited, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=900
    )
    assert process.returncode == 1
    lines = [line for line in process.stderr.splitlines() if line.strip() and "step/s" not in line]
    assert len(lines) == 1
    assert re.search(r"checkpoints/0 could not be saved .*the same command resumes", lines[0])
