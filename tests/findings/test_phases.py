"""Phases of curves whose collapse, growth and compression are known, and the verdicts on them."""

import numpy as np
import pandas as pd
import pytest

from findings.claims.phases import PHASES, judge_phases

STEPS = np.array([0, 16, 256, 1000, 2000, 3000])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([16, 8, 12, 32, 24, 16], (1, 2, 1)),
        ([4, 5, 6, 7, 8, 8], (0, 1, 0)),
        ([16, 8, 12, 2, 4, 4], (1, np.log2(1.5), np.log2(3))),  # a late fall is no collapse
    ],
)
def test_phases_are_read_in_their_order(values, expected):
    values = np.array(values, float)
    assert [read(STEPS, values) for read in PHASES.values()] == pytest.approx(expected)
    assert np.isnan(PHASES["compression"](STEPS[:-1], values[:-1]))


def test_a_contrast_is_judged_with_three_seeds_of_both_texts():
    natural = pd.DataFrame({"text": "many_natural", "seed": range(3), "collapse": [1.0, 1.1, 0.9]})
    flat = natural.assign(text="many_flattened", collapse=[0.1, 0.1, 0.1])
    few = natural.assign(text="few_natural", collapse=[1.0, 1.1, 1.0])[:2]
    table = pd.concat([natural, flat, few]).assign(growth=np.nan, compression=np.nan)
    judged = judge_phases(table).set_index(["phase", "claim"])
    assert judged.loc[("collapse", "exists"), "verdict"] == "reproduced"
    assert judged.loc[("collapse", "skew"), "verdict"] == "reproduced"
    assert judged.loc[("collapse", "skew"), "low"] == pytest.approx(
        0.9 - 4.3027 * 0.1 / 3**0.5, abs=1e-3
    )
    assert judged.loc[("collapse", "width"), "verdict"].startswith("inconclusive: 2 of 3")
    assert judged.loc[("growth", "exists"), "verdict"].startswith("inconclusive: 0 of 3")
