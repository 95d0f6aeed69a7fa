"""The parts of a leading direction that is known: one of positions, one of the mean."""

import numpy as np
import pandas as pd
import pytest

from findings.scripts import bell_over_training

WINDOWS, TIME, WIDTH = 16, 8, 32


@pytest.mark.parametrize("direction", ["position", "mean"])
def test_a_direction_of_positions_is_not_that_of_the_mean(direction):
    x_LWTD = np.random.default_rng(0).normal(size=(4, WINDOWS, TIME, WIDTH))
    along_T = np.where(np.arange(TIME) % 2, 30.0, -30.0 if direction == "position" else 30.0)
    x_LWTD += along_T[:, None] * np.ones(WIDTH) / WIDTH**0.5
    table = bell_over_training.read_step(x_LWTD, np.ones(WIDTH)).set_index("factor")
    assert table.loc["position", "alone"] > 0.85  # the means of positions hold that of all
    assert (table.loc["mean", "alone"] > 0.85) == (direction == "mean")
    assert table.loc["position", "alone_low"] < table.loc["position", "alone"]
    rows = pd.concat([table.reset_index().assign(step=step) for step in (0, 1)])
    held = {claim: holds for claim, (_, holds) in bell_over_training.judge(rows).items()}
    of_positions = direction == "position"
    assert held == {
        "token_little": True,
        "positions_most": of_positions,
        "mean_first": not of_positions,
    }
