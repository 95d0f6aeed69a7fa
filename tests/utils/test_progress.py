"""What is said while a call of the library compiles, and that a quiet call says nothing."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import anisoscope
from anisoscope.sources import array_chunks
from anisoscope.utils import progress


def compile_slowly(seconds):
    """Compile a program; its lowering, which ends before the compiler starts, is what is slow."""
    jax.monitoring.record_event_duration_secs(progress.LOWERED, 0.0)
    time.sleep(seconds)
    jax.jit(lambda x: x + seconds)(jnp.zeros(3))


@pytest.mark.parametrize(
    ("quiet", "seconds", "lines"), [(False, 0.3, 1), (False, 0.0, 0), (True, 0.3, 0)]
)
def test_a_line_is_logged_while_something_compiles_for_long(
    monkeypatch, caplog, quiet, seconds, lines
):
    monkeypatch.setattr(progress, "PATIENCE", 0.1 if seconds else 60.0)
    with progress.library_call(quiet):
        for _ in range(2):
            compile_slowly(seconds)
        assert progress.progress_bar(range(3), "measure", "layer").disable == quiet
    assert [progress.COMPILING in record.getMessage() for record in caplog.records] == [
        True
    ] * lines
    assert all(record.levelname == "INFO" for record in caplog.records)
    compile_slowly(seconds)  # outside of a call
    assert len(caplog.records) == lines


def test_quiet_reaches_what_measures(monkeypatch):
    calls = []

    def record(*_):
        calls.append(progress._quiet.get())
        raise ValueError("recorded")

    for name in ("measure_chunks", "measure_head_chunks"):
        monkeypatch.setattr(array_chunks, name, record)
    x = np.arange(64.0)
    for quiet in (True, False):
        with pytest.raises(ValueError, match="recorded"):
            anisoscope.measure(x.reshape(16, 4), quiet=quiet)
        q_NHBTK = x.reshape(1, 1, 8, 4, 2)
        with pytest.raises(ValueError, match="recorded"):
            anisoscope.measure_attention(q_NHBTK, q_NHBTK, mask="causal", quiet=quiet)
    assert [*calls, progress._quiet.get()] == [True, True, False, False, None]
