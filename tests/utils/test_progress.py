"""What is said while a call of the library takes long, and that a quiet call says nothing."""

import time

import numpy as np
import pytest

import anisoscope
from anisoscope.sources import array_chunks
from anisoscope.utils import progress


@pytest.mark.parametrize(("quiet", "lines"), [(False, 1), (True, 0)])
def test_a_line_is_logged_once_while_a_call_takes_long(monkeypatch, caplog, quiet, lines):
    monkeypatch.setattr(progress, "PATIENCE", 0.05)
    progress._log_compiling.cache_clear()
    for seconds in (0.0, 0.3, 0.3):
        with progress.library_call(quiet):
            time.sleep(seconds)
            assert progress.bar(range(3), "measure", "layer").disable == quiet
    assert [record.getMessage() for record in caplog.records] == [progress.COMPILING] * lines


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
