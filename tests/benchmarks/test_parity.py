"""A difference from a peer is explained only by a cause that shows itself."""

import math

import numpy as np
import pytest

from benchmarks import parity
from benchmarks.parity import GOLDEN, ONCE, PUBLISHED, Row, explain

NOTHING = {"DADApy": {}, "published": {}}


@pytest.fixture(scope="module")
def clouds():
    return parity.draw_clouds(256)


def test_the_golden_cloud_is_the_published_one(clouds):
    for quantity, value in PUBLISHED[GOLDEN].items():
        fraction = 0.95 if "0.95" in quantity else 0.9
        assert parity.twonn_from_zero(clouds[GOLDEN], fraction) == pytest.approx(value, abs=1e-5)
        row = Row("published", GOLDEN, quantity, 4.5, value)
        assert "numbered" in explain(row, clouds[GOLDEN], NOTHING)


def test_a_wrong_number_stays_unexplained(clouds):
    """Where a cause concerns the row and does not show itself, and where none concerns it."""
    right = parity.gride_of_the_peers(clouds[GOLDEN], 1)
    assert (
        explain(Row("DADApy", GOLDEN, "gride 1", 4.9, right), clouds[GOLDEN], NOTHING) is not None
    )
    assert (
        explain(Row("DADApy", GOLDEN, "gride 1", 4.9, 1.01 * right), clouds[GOLDEN], NOTHING)
        is None
    )
    assert explain(Row("DADApy", GOLDEN, "twonn", 4.9, 4.7), clouds[GOLDEN], NOTHING) is None
    assert explain(Row("DADApy", GOLDEN, "twonn", 4.9, math.nan), clouds[GOLDEN], NOTHING) is None


def test_copies_explain_what_goes_away_without_them(clouds):
    row = Row("DADApy", "20 % copies", "twonn", 8.0, math.nan)
    for alone, explained in ((8.0, True), (8.1, False)):
        theirs = {"DADApy": {"20 % copies" + ONCE: {"twonn": alone}}}
        assert (explain(row, clouds[row.cloud], theirs) is not None) == explained


def test_the_peers_gride_is_twonn_mle_at_the_first_rank(clouds):
    """(n - 1) / sum ln mu, over the ratios that are not cut off."""
    cloud_PD = clouds["sphere 9 in 64"]
    r1_P, r2_P = parity.distances(cloud_PD, 2).T
    expected = (len(cloud_PD) - 1) / np.log(r2_P / r1_P).sum()
    assert parity.gride_of_the_peers(cloud_PD, 1) == pytest.approx(expected, rel=1e-9)
