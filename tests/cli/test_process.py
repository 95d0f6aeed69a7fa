"""Whatever surrounds the command: variables, links, closed output, names. One line each, before any
work is done.
"""

import sys
from types import SimpleNamespace

from anisoscope.cli import process
from tests.program import main


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
    process.fail("two\nlines")
    assert [chunk for chunk in chunks if chunk] == ["error: two lines\n"]
