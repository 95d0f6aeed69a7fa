"""Whatever surrounds the command: variables, links, closed output, names. One line each, before any
work is done.
"""

import subprocess
import sys
from types import SimpleNamespace

from anisoscope.cli import process
from tests.program import ROOT, main


def test_what_jax_reads_of_the_environment_changes_no_number():
    """Nor ends the command where JAX would not have it."""
    done = main("--version", JAX_ENABLE_X64="maybe", JAX_DEFAULT_PRNG_IMPL="rbg", MPLBACKEND="junk")
    assert done.returncode == 0, done.stderr
    for name in ("JAX_ENABLE_X64=maybe", "JAX_DEFAULT_PRNG_IMPL=rbg"):
        assert f"{name} is ignored: results would depend on it" in done.stdout.splitlines()


def test_the_line_of_an_error_is_written_in_one_piece(monkeypatch):
    """Threads of JAX write to the same stream."""
    chunks = []
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(write=chunks.append, flush=lambda: None))
    assert process.fail("two\nlines", 2) == 2
    assert [chunk for chunk in chunks if chunk] == ["error: two lines\n"]


INTERRUPTED_WHILE_COLLECTING = """
import gc, os, signal, time
from anisoscope.cli import process

def asked(phase, _):
    gc.callbacks.clear()
    os.kill(os.getpid(), signal.SIGTERM)

with process.interruptible():
    process.begin_writing()
    gc.callbacks.append(asked)
    try:
        gc.collect()
        time.sleep(30)
    except KeyboardInterrupt:
        print("heard")
"""


def test_an_interruption_while_memory_is_collected_is_not_lost():
    """Python drops what a callback raises, with a traceback."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_WHILE_COLLECTING],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("heard\n", "")
