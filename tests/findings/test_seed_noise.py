"""The number of seeds against a simulated test, and pooled deviations against their definition."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from findings.scripts import seed_noise


@pytest.mark.parametrize("deviation", [0.02, 0.06])
def test_as_many_seeds_as_said_show_the_difference(deviation):
    draw = np.random.default_rng(0).normal
    needed = seed_noise.seeds_needed(deviation)
    power = []
    for seeds in (needed - 1, needed):
        first = draw(0, deviation, (20_000, seeds))
        second = draw(seed_noise.DIFFERENCE, deviation, (20_000, seeds))
        power.append((stats.ttest_ind(first, second, axis=1).pvalue < 0.05).mean())
    assert power[0] < seed_noise.POWER < power[1] + 0.01


def test_deviations_are_pooled_by_their_degrees_of_freedom():
    frame = pd.DataFrame({"group": [0] * 3 + [1] * 2 + [2], "value": [0, 1, 2, 5, 7, 100.0]})
    deviation, freedom = seed_noise.pool(frame.groupby("group")["value"])
    assert (deviation, freedom) == (pytest.approx(np.sqrt((2 + 2) / 3)), 3)
