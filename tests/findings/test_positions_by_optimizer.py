"""The three claims on positions and optimizers, from values whose differences are known."""

import pandas as pd
import pytest

from findings.claims.positions_by_optimizer import PRIMARY, judge_differences, read_late

LEVELS = {"muon_learned": 0.4, "muon_rotary": 0.2, "adamw_learned": 0.19, "adamw_rotary": 0.21}


def test_differences_are_between_runs_of_a_seed_and_judged_by_the_bound():
    rows = [
        {"condition": name, "seed": seed, "at": at, PRIMARY: level + 0.1 * seed + noise}
        for at in ("matched", "late", "last")
        for seed in (2, 3, 4, 5)
        for name, level in LEVELS.items()
        for noise in [0.004 * (seed % 2) * (name == "muon_learned")]
        if (name, seed) != ("adamw_learned", 5)
    ]
    judged = judge_differences(pd.DataFrame(rows)).set_index(["at", "claim"]).loc["matched"]
    assert judged["effect"].tolist() == pytest.approx([0.202, 0.02, 0.22 + 0.004 / 3])
    assert judged["n"].tolist() == [4, 3, 3]
    assert judged["verdict"].tolist() == ["reproduced", "equivalent to none", "reproduced"]
    low = 0.202 - 3.1824 * 0.004 / 12**0.5
    assert judged.loc["muon", "low"] == pytest.approx(low, abs=1e-5)


def test_late_values_are_read_where_a_run_first_has_the_gain_with_which_the_least_one_ends():
    gains = {"muon_learned": [0, 1, 3, 2.5], "muon_rotary": [0, 1.5, 1.8, 2]}
    rows = [
        {"condition": name, "seed": 2, "step": step, "gain": gain, PRIMARY: 10 * gain + step}
        for name, own in gains.items()
        for step, gain in enumerate(own)
    ]
    late = read_late(pd.DataFrame(rows)).set_index("condition")
    assert late["gain"].tolist() == [2, 2]
    assert late[PRIMARY].to_dict() == {"muon_learned": 21.5, "muon_rotary": 23}
