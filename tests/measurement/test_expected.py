"""A time is told before long work, and nothing before short work."""

import numpy as np
import pytest

import anisoscope
from anisoscope.config.measure import MeasureConfig
from anisoscope.measurement import expected

FIRST = MeasureConfig(families=("spectrum", "dimension", "similarity"), nulls=("gaussian",))


def test_long_work_is_told_in_one_line_and_short_work_is_begun_without_timing_the_machine(monkeypatch, capsys):
    for speed, words in (
        (1e11, "measure: 32 layers of 4,096 points of width 4,096, in 2 pieces: roughly "),
        (1e14, ""),
    ):
        monkeypatch.setattr(expected, "speed", lambda speed=speed: speed)
        expected.tell(32, 2, 4096, 4096, FIRST)
        printed = capsys.readouterr().err
        assert printed.startswith(words)
        assert printed.endswith(" minutes on this machine\n" if words else "")
        assert bool(printed) == bool(words)
    monkeypatch.setattr(expected, "speed", lambda: pytest.fail("timed"))
    expected.tell(4, 1, 4096, 256, FIRST)


def test_the_work_grows_as_the_products_that_it_is_made_of():
    one = expected.operations(1, 4096, 1024, FIRST)
    assert expected.operations(3, 4096, 1024, FIRST) == 3 * one
    assert expected.operations(1, 8192, 8192, FIRST) == pytest.approx(8 * expected.operations(1, 4096, 4096, FIRST))
    without = expected.operations(1, 4096, 1024, MeasureConfig(families=FIRST.families, nulls=()))
    assert one / 3 < without < one


def test_measure_tells_it_before_it_begins(monkeypatch, capsys):
    monkeypatch.setattr(expected, "SLOW", 0.0)
    monkeypatch.setattr(expected, "speed", lambda: 1.0)
    anisoscope.measure(np.random.default_rng(0).standard_normal((40, 3)), families="similarity", folds=1)
    assert capsys.readouterr().err.startswith("measure: 1 layer of 40 points of width 3: roughly ")
