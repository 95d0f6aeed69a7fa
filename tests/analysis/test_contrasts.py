"""Contrasts between the conditions of an experiment: which pairs differ in one setting alone, and
in what words.
"""

import itertools

import numpy as np
import pytest

from anisoscope.analysis.contrasts import contrast_conditions
from tests.analysis.seed_layouts import experiment, grid_of_leaks

MASKS = [
    {"model.mask": mask, "model.window": window, "objective": objective}
    for objective in ("next", "masked")
    for mask, window in (("causal", 0), ("window", 16), ("window", 64), ("bidirectional", 0))
    if objective == "masked" or mask != "bidirectional"
]


def places(frame):
    return {*frame[["setting", "before", "after", "held"]].itertuples(index=False, name=None)}


def test_pairs_differ_in_one_setting_and_a_mask_with_its_own_is_one():
    def effect(of, _):
        return of["model.window"] + 100 * (of["objective"] == "next")

    frame = contrast_conditions(experiment(MASKS, 2, effect))
    bell, twice = (
        frame[(frame.quantity == "middle_minus_ends") & (frame.positions == positions)]
        for positions in ("all", "without_first_token")
    )
    three = ("causal", "window 16", "window 64")
    four = (*three, "bidirectional")
    pairs = {("model.mask", *pair, "next") for pair in itertools.combinations(three, 2)}
    pairs |= {("model.mask", *pair, "masked") for pair in itertools.combinations(four, 2)}
    pairs |= {("objective", "next", "masked", held) for held in three}
    assert places(bell) == pairs
    assert len(bell) == len(pairs) == 12
    change = bell.set_index(["setting", "before", "after", "held"]).change
    assert change["model.mask", "window 16", "window 64", "next"] == pytest.approx(48)
    assert change["model.mask", "window 64", "bidirectional", "masked"] == pytest.approx(-64)
    np.testing.assert_allclose(change["objective"], -100)
    np.testing.assert_allclose(twice.change.values, 2 * bell.change.values)
    assert {*zip(frame.pairs, frame.freedom, strict=True)} == {(2, 6)}
    # bits of two objectives are not compared, but gains are
    compared = frame.groupby("setting").quantity.unique().map(set)
    assert compared["objective"] == {"middle_minus_ends", "test_gain_over_unigram"}
    assert compared["model.mask"] == {"middle_minus_ends", "test_gain_over_unigram", "test_bits"}


def test_the_seed_of_a_leak_pairs_runs_only_where_they_differ_in_it_alone():
    """Set in the leaking condition alone, it is 0 in the other, whose mask draws nothing."""
    noise = np.random.default_rng(13).normal(size=(2, 5))
    kinds = ("causal", "leak")
    runs = experiment(
        [{"model.mask": mask} for mask in kinds],
        5,
        lambda of, seed: noise[kinds.index(of["model.mask"]), seed],
    )
    leaking = np.where(runs["model.mask"] == "leak", runs["train.seed"], 0)
    frame = contrast_conditions(runs.assign_coords({"model.leak_seed": ("run", leaking)}))
    row = frame[frame.quantity == "middle_minus_ends"].iloc[0]
    assert row.pairs == 5
    assert row.change == pytest.approx((noise[1] - noise[0]).mean())
    assert np.isfinite(row.low)
    row = contrast_conditions(grid_of_leaks([0.0, 10, 0, 10, 1, 11, 1, 31])).iloc[0]
    assert (row.change, row.pairs) == (6, 4)


def test_an_optimizer_and_its_rates_are_one_setting():
    rates = [("adamw", 0.004), ("muon", 0.02)]
    own = [
        {"train.optimizer": name, "train.learning_rate": rate, "model.position_encoding": kind}
        for name, rate in rates
        for kind in ("learned", "rotary")
    ]
    pairs = {("train.optimizer", "adamw", "muon", held) for held in ("learned", "rotary")}
    pairs |= {("model.position_encoding", "learned", "rotary", held) for held in ("adamw", "muon")}
    assert places(contrast_conditions(experiment(own, 2))) == pairs
    several = [
        {"train.optimizer": name, "train.learning_rate": rate}
        for name, rate in (*rates, ("adamw", 0.001))
    ]
    frame = contrast_conditions(experiment(several, 2))
    assert {*frame.setting} == {"train.optimizer"}
    assert "adamw, learning_rate 0.001" in {*frame.before, *frame.after}
    alone = contrast_conditions(experiment([{"train.learning_rate": rate} for _, rate in rates], 2))
    assert {*alone.setting} == {"train.learning_rate"}


def test_conditions_that_differ_in_two_settings_or_in_seeds_only_have_no_contrast():
    assert contrast_conditions(experiment([MASKS[0], MASKS[-1]], 2)).empty
    assert contrast_conditions(experiment([{}], 3)).empty
    assert contrast_conditions(experiment([MASKS[0]] * 2, 2)).empty  # two of the same settings
