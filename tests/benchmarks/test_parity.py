"""A difference from a peer is explained only by a cause that shows itself."""

import math

import numpy as np
import pytest

from benchmarks import parity
from benchmarks.parity import Row, explain
from tests.zoo import ZOO

CLOUD = np.float32(ZOO["sphere 9 in 64"].draw(np.random.default_rng(0), 256))


def test_a_wrong_number_stays_unexplained():
    """Where a cause concerns the row and does not show itself, and where none concerns it."""
    right = parity.gride_of_the_peers(CLOUD, 1)
    assert "n - 1 for n" in explain(Row("DADApy", "sphere", "gride 1", 4.9, right), CLOUD)
    assert explain(Row("DADApy", "sphere", "gride 1", 4.9, 1.01 * right), CLOUD) is None
    for theirs in (4.7, math.nan):
        assert explain(Row("DADApy", "sphere", "twonn", 4.9, theirs), CLOUD) is None
    assert explain(Row("DADApy", "sphere", "twonn", 4.9, 4.901), CLOUD) == ""


def test_the_peers_gride_is_twonn_mle_at_the_first_rank():
    """(n - 1) / sum ln mu, over the ratios that are not cut off."""
    distance_PP = np.sort(np.linalg.norm(CLOUD[:, None] - CLOUD[None].astype(float), axis=2))
    expected = (len(CLOUD) - 1) / np.log(distance_PP[:, 2] / distance_PP[:, 1]).sum()
    assert parity.gride_of_the_peers(CLOUD, 1) == pytest.approx(expected, rel=1e-9)
