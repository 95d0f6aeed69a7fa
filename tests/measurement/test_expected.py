"""A time is told before long work, and nothing before short work."""

import numpy as np
import pytest

import anisoscope
from anisoscope.config.measure import MeasureConfig
from anisoscope.measurement import expected

FIRST = MeasureConfig(families=("spectrum", "dimension", "similarity"), nulls=("gaussian",))


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
