"""A time is told before long work, and nothing before short work."""

import pytest

from anisoscope.config.measure import MeasureConfig
from anisoscope.measurement import expected

FIRST = MeasureConfig(families=("spectrum", "dimension", "similarity"), nulls=("gaussian",))


def test_the_work_grows_as_the_products_that_it_is_made_of():
    one = expected.operations(1, 4096, 1024, FIRST)
    assert expected.operations(3, 4096, 1024, FIRST) == 3 * one
    assert expected.operations(1, 8192, 8192, FIRST) == pytest.approx(8 * expected.operations(1, 4096, 4096, FIRST))
    without = expected.operations(1, 4096, 1024, MeasureConfig(families=FIRST.families, nulls=()))
    assert one / 3 < without < one
