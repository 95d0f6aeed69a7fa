"""Contrasts between the conditions of an experiment: which pairs differ in one setting alone, and
in what words.
"""

import itertools

import numpy as np
import pytest

from anisoscope.analysis.contrasts import change_between, contrasts
from tests.analysis.seed_layouts import experiment, grid_of_leaks, layout

MASKS = [
    {"model.mask": mask, "model.window": window, "objective": objective}
    for objective in ("next", "masked")
    for mask, window in (("causal", 0), ("window", 16), ("window", 64), ("bidirectional", 0))
    if objective == "masked" or mask != "bidirectional"
]


def test_pairs_differ_in_one_setting_and_a_mask_with_its_own_is_one():
    frame = contrasts(
        experiment(MASKS, 2, lambda of, _: of["model.window"] + 100 * (of["objective"] == "next"))
    )
    bell = frame[(frame.quantity == "middle_less_ends") & (frame.positions == "all")]
    three = ("causal", "window 16", "window 64")
    pairs = {("model.mask", *pair, "next") for pair in itertools.combinations(three, 2)}
    pairs |= {
        ("model.mask", *pair, "masked")
        for pair in itertools.combinations((*three, "bidirectional"), 2)
    }
    pairs |= {("objective", "next", "masked", held) for held in three}
    assert (
        set(bell[["setting", "before", "after", "held"]].itertuples(index=False, name=None))
        == pairs
    )
    assert len(bell) == len(pairs) == 12
    change = bell.set_index(["setting", "before", "after", "held"]).change
    assert change["model.mask", "window 16", "window 64", "next"] == pytest.approx(48)
    assert change["model.mask", "window 64", "bidirectional", "masked"] == pytest.approx(-64)
    np.testing.assert_allclose(change["objective"], -100)
    twice = frame[(frame.quantity == "middle_less_ends") & (frame.positions == "without_first")]
    np.testing.assert_allclose(twice.change.values, 2 * bell.change.values)
    assert set(frame.pairs) == {2}
    assert set(frame.freedom) == {6}


def test_the_seed_of_a_leak_pairs_runs_only_where_they_differ_in_it_alone():
    """Set in the leaking condition alone, it is 0 in the other, whose mask draws nothing."""
    noise = np.random.default_rng(13).normal(size=(2, 5))
    runs = experiment([{"model.mask": "causal"}, {"model.mask": "leak"}], 5, lambda c, s: 0.0)
    values = np.array([noise[int(name[0]), int(name[2])] for name in runs.run.values])
    runs = runs.assign(middle_less_ends=(("run", "positions"), np.stack([values, values], axis=1)))
    leaking = np.where(runs["model.mask"] == "leak", runs["train.seed"], 0)
    frame = contrasts(runs.assign_coords({"model.leak_seed": ("run", leaking)}))
    row = frame[frame.quantity == "middle_less_ends"].iloc[0]
    assert row.pairs == 5
    assert row.change == pytest.approx((noise[1] - noise[0]).mean())
    assert np.isfinite(row.low)


def test_runs_that_differ_in_the_seed_of_a_leak_alone_are_pairs_of_their_own():
    row = contrasts(grid_of_leaks([0.0, 10, 0, 10, 1, 11, 1, 31])).iloc[0]
    assert (row.change, row.pairs) == (6, 4)
    condition, seeds = layout(2, 2)
    with pytest.raises(ValueError, match="two runs of one condition have all seeds in common"):
        change_between(np.arange(4.0), condition, 0 * seeds, 0, 1)


def test_bits_of_two_objectives_are_not_compared_but_gains_are():
    frame = contrasts(experiment(MASKS, 2))
    assert set(frame[frame.setting == "objective"].quantity) == {
        "middle_less_ends",
        "test_context_gain",
    }
    assert set(frame[frame.setting == "model.mask"].quantity) == {
        "middle_less_ends",
        "test_bits",
        "test_context_gain",
    }


def test_an_optimizer_and_its_rates_are_one_setting():
    own = [
        {"train.optimizer": name, "train.learning_rate": rate, "model.positions": kind}
        for name, rate in (("adamw", 0.004), ("muon", 0.02))
        for kind in ("learned", "rotary")
    ]
    frame = contrasts(experiment(own, 2))
    pairs = {("train.optimizer", "adamw", "muon", held) for held in ("learned", "rotary")}
    pairs |= {("model.positions", "learned", "rotary", held) for held in ("adamw", "muon")}
    assert (
        set(frame[["setting", "before", "after", "held"]].itertuples(index=False, name=None))
        == pairs
    )
    several = [{"train.optimizer": "adamw", "train.learning_rate": rate} for rate in (0.001, 0.002)]
    frame = contrasts(
        experiment([*several, {"train.optimizer": "muon", "train.learning_rate": 0.02}], 2)
    )
    assert set(frame.setting) == {"train.optimizer"}
    assert "adamw, learning_rate 0.001" in set(frame.before)
    alone = contrasts(experiment([{"train.learning_rate": rate} for rate in (0.001, 0.002)], 2))
    assert set(alone.setting) == {"train.learning_rate"}


def test_conditions_that_differ_in_two_settings_or_in_seeds_only_have_no_contrast():
    assert contrasts(experiment([MASKS[0], MASKS[-1]], 2)).empty
    assert contrasts(experiment([{}], 3)).empty
