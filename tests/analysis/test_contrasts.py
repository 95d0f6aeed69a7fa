"""Contrasts between the conditions of an experiment: their changes, and how often their intervals hold."""

import itertools

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from anisoscope.analysis.contrasts import change_between, contrasts, words

DRAWS = 400


def layout(conditions: int, seeds: int, data: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Condition of each run, and its (weight seed, data seed): of its own, or crossed with so many of the data."""
    pairs = [(s, s) for s in range(seeds)] if data is None else list(np.ndindex(seeds, data))
    return np.repeat(np.arange(conditions), len(pairs)), np.tile(pairs, (conditions, 1))


def test_with_complete_seeds_the_change_is_the_mean_of_paired_differences_and_the_error_that_of_the_additive_model():
    values_CS = np.random.default_rng(0).normal(size=(4, 3)) + np.array([[0], [5], [2], [1]])
    found = change_between(values_CS.ravel(), *layout(4, 3), 1, 3)
    assert found.change == pytest.approx((values_CS[3] - values_CS[1]).mean())
    residual = values_CS - values_CS.mean(0) - values_CS.mean(1, keepdims=True) + values_CS.mean()
    error = np.sqrt(np.square(residual).sum() / 6 * 2 / 3)
    assert found.error == pytest.approx(error)
    assert found.high - found.low == pytest.approx(2 * stats.t.ppf(0.975, 6) * error)
    assert (found.low + found.high) / 2 == pytest.approx(found.change)
    assert (found.freedom, found.pairs) == (6, 3)


def test_two_conditions_are_scipys_paired_t_test():
    values_CS = np.random.default_rng(2).normal(size=(2, 5))
    found = change_between(values_CS.ravel(), *layout(2, 5), 0, 1)
    interval = stats.ttest_rel(values_CS[1], values_CS[0]).confidence_interval(0.95)
    np.testing.assert_allclose((found.low, found.high), interval, rtol=1e-9)


def test_one_seed_has_no_interval_and_conditions_without_a_common_seed_no_change():
    found = change_between(np.array([1.0, 4.0, 9.0]), *layout(3, 1), 0, 2)
    assert found.change == pytest.approx(8)
    assert np.isnan([found.low, found.high, found.error]).all()
    apart = change_between(np.array([1.0, 4.0]), np.array([0, 1]), np.array([[0, 0], [1, 1]]), 0, 1)
    assert np.isnan(apart.change)
    assert apart.pairs == 0


def test_a_run_without_a_number_is_left_out_and_a_missing_condition_is_nan():
    values = np.array([1.0, 2.0, 5.0, np.nan, 3.0, 4.0])
    found = change_between(values, *layout(3, 2), 0, 1)
    assert found.pairs == 1
    without = [0, 1, 2, 4, 5]
    condition, seeds = layout(3, 2)
    np.testing.assert_array_equal(found, change_between(values[without], condition[without], seeds[without], 0, 1))
    assert found.freedom == 1
    assert np.isnan(change_between(np.array([1.0, 2.0, np.nan, np.nan]), *layout(2, 2), 0, 1).change)
    assert np.isnan(change_between(np.full(4, np.nan), *layout(2, 2), 0, 1).change)


@pytest.mark.parametrize("missing", [[], [0, 5]], ids=["complete", "two runs missing"])
def test_the_interval_covers_the_truth_as_often_as_it_says(missing):
    """Within three deviations of a binomial count of 400 draws at 95 %: 3 x 1.1 %."""
    rng, hits = np.random.default_rng(3), 0
    condition, seeds = (np.delete(index, missing, axis=0) for index in layout(9, 2))
    truth = np.linspace(0, 3, 9)
    for _ in range(DRAWS):
        values = truth[condition] + 5 * rng.normal(size=2)[seeds[:, 0]] + rng.normal(size=len(condition))
        found = change_between(values, condition, seeds, 0, 4)
        hits += found.low <= truth[4] - truth[0] <= found.high
    assert abs(hits / DRAWS - 0.95) < 3 * np.sqrt(0.95 * 0.05 / DRAWS)


@pytest.mark.parametrize("deviations", [(1, 1, 1, 1), (0.02, 0.04, 1, 1), (1, 1, 0.02, 0.02)])
def test_the_interval_of_four_seeds_or_more_covers_the_truth_whatever_other_conditions_do(deviations):
    rng, hits = np.random.default_rng(4), 0
    condition, seeds = layout(4, 4)
    for _ in range(DRAWS):
        noise = np.array(deviations)[condition] * rng.normal(size=len(condition))
        found = change_between(5 * rng.normal(size=4)[seeds[:, 0]] + noise, condition, seeds, 0, 1)
        hits += found.low <= 0 <= found.high
    assert found.freedom == 3
    assert abs(hits / DRAWS - 0.95) < 3 * np.sqrt(0.95 * 0.05 / DRAWS)


def drawn(rng: np.random.Generator, shape: tuple[int, int, int], deviations: tuple[float, float, float]) -> np.ndarray:
    """Values of conditions x weights x data: in each noise of the weights, the data and the rest, and 5 in common."""
    conditions, weights, data = shape
    parts = zip(((conditions, weights, 1), (conditions, 1, data), shape), deviations, strict=True)
    return sum(by * rng.normal(size=size) for size, by in parts) + 5 * rng.normal(size=shape[1:])


MIXES = ((1, 1, 0.5), (1, 0.2, 0.2), (0.2, 1, 0.2), (0, 1, 0.5))


def coverage(shape: tuple[int, int, int], deviations: tuple[float, float, float]) -> float:
    rng, hits, layouts = np.random.default_rng(7), 0, layout(*shape)
    for _ in range(DRAWS):
        found = change_between(drawn(rng, shape, deviations).ravel(), *layouts, 0, 1)
        hits += found.low <= 0 <= found.high
    return hits / DRAWS


@pytest.mark.parametrize("deviations", MIXES)
@pytest.mark.parametrize("seeds", [(2, 2), (4, 2)])
def test_the_interval_covers_the_truth_as_often_as_it_says_where_seeds_are_crossed(seeds, deviations):
    assert abs(coverage((9, *seeds), deviations) - 0.95) < 3 * np.sqrt(0.95 * 0.05 / DRAWS)


@pytest.mark.parametrize("deviations", [*MIXES, (0, 0, 1)])
@pytest.mark.parametrize("seeds", [(2, 2), (4, 2), (4, 4)])
def test_the_interval_of_two_conditions_covers_the_truth_at_least_as_often_as_it_says(seeds, deviations):
    assert coverage((2, *seeds), deviations) > 0.95 - 3 * np.sqrt(0.95 * 0.05 / DRAWS)


def test_crossed_seeds_are_a_table_of_paired_differences():
    """Of two conditions: weights -2, 1, 1 and data -3, 3 beside e."""
    a, b, e = np.array([-2.0, 1, 1]), np.array([-3.0, 3]), np.array([[0.5, -0.5], [-1, 1], [0.5, -0.5]])
    common = np.random.default_rng(8).normal(size=(3, 2))
    found = change_between(np.stack([common, common + 10 + a[:, None] + b + e]).ravel(), *layout(2, 3, 2), 0, 1)
    weights, data, rest = 2 * 6 / 2, 3 * 18 / 1, 3 / 2  # mean squares of the differences
    assert found.change == pytest.approx(10)
    assert found.error == pytest.approx(np.sqrt((weights + data - rest) / 6))
    two, one = stats.t.ppf(0.975, [2, 1]) ** 2
    half = np.sqrt((two * weights + one * data - two * rest) / 6)
    assert (found.low, found.high) == pytest.approx((10 - half, 10 + half))
    assert (found.freedom, found.pairs) == (1, 6)


def test_the_variance_is_never_less_than_that_of_the_rest_alone():
    e = np.array([[1.0, -1], [-1, 1]])
    found = change_between(np.stack([0 * e, 3 + e]).ravel(), *layout(2, 2, 2), 0, 1)
    assert found.error == pytest.approx(1)  # mean squares 0, 0 and 4 of the four differences
    assert found.high - 3 == pytest.approx(stats.t.ppf(0.975, 1))
    still = change_between(np.stack([0 * e, 3 + 0 * e]).ravel(), *layout(2, 2, 2), 0, 1)
    assert (still.low, still.high) == (3, 3)


def test_noise_of_crossed_seeds_is_pooled_over_the_conditions_that_have_the_whole_grid():
    values_CP = drawn(np.random.default_rng(9), (4, 2, 2), (1, 1, 1)).reshape(4, 4)
    condition, seeds = layout(4, 2, 2)
    values_CP[3, 1] = np.nan  # one run of the last condition is missing
    three = change_between(values_CP[:3].ravel(), condition[:12], seeds[:12], 0, 2)
    np.testing.assert_array_equal(change_between(values_CP.ravel(), condition, seeds, 0, 2), three)
    assert three.freedom == 2
    assert not np.allclose(three[1:], change_between(values_CP[[0, 2]].ravel(), *layout(2, 2, 2), 0, 1)[1:])
    torn = change_between(values_CP.ravel(), condition, seeds, 0, 3)
    assert torn.change == pytest.approx((values_CP[3] - values_CP[0])[[0, 2, 3]].mean())
    assert np.isnan([torn.low, torn.high, torn.error]).all()
    assert (torn.freedom, torn.pairs) == (0, 3)


def test_seeds_that_share_but_make_no_grid_have_no_interval():
    rng = np.random.default_rng(10)
    for pairs in (
        [(0, 0), (1, 0), (2, 1)],
        [(0, 0), (0, 1), (1, 2), (1, 3)],
        [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)],
    ):
        found = change_between(
            rng.normal(size=2 * len(pairs)), np.repeat([0, 1], len(pairs)), np.tile(pairs, (2, 1)), 0, 1
        )
        assert np.isfinite(found.change)
        assert np.isnan(found.error)
    apart = change_between(rng.normal(size=4), np.array([0, 0, 1, 1]), np.array([[0, 0], [0, 1], [1, 0], [1, 1]]), 0, 1)
    assert np.isnan(apart.change)


def test_data_of_one_seed_are_held_and_leaks_go_with_the_weights():
    values = np.random.default_rng(11).normal(size=6)
    own = change_between(values, *layout(2, 3), 0, 1)
    for seeds in ([(0, 5), (1, 5), (2, 5)], [(5, 0), (5, 1), (5, 2)], [(0, 9), (1, 3), (2, 4)]):
        np.testing.assert_array_equal(change_between(values, np.repeat([0, 1], 3), np.tile(seeds, (2, 1)), 0, 1), own)
    values = np.random.default_rng(12).normal(size=8)
    condition, seeds = layout(2, 2, 2)
    leaking = np.concatenate([seeds, 7 - seeds[:, :1]], axis=1)
    np.testing.assert_allclose(
        change_between(values, condition, leaking, 0, 1), change_between(values, condition, seeds, 0, 1)
    )


def experiment(conditions: list[dict], seeds: int, effect=lambda condition, seed: 0.0) -> xr.Dataset:
    """A joined table: `conditions` are the settings of each, in the order of the experiment."""
    members = [(c, s) for s in range(seeds) for c in range(len(conditions))]
    values = np.array([effect(conditions[c], s) for c, s in members])
    coords = {name: ("run", np.array([conditions[c][name] for c, _ in members])) for name in conditions[0]}
    coords |= {name: ("run", np.array([s for _, s in members])) for name in ("train.seed", "train.data_seed")}
    coords |= {"run": [f"{c}_{s}" for c, s in members], "condition": ("run", [f"condition {c}" for c, _ in members])}
    both = np.stack([values, 2 * values], axis=1)
    variables = {
        "middle_less_ends": (("run", "positions"), both),
        "test_bits": ("run", values + 1),
        "test_context_gain": ("run", -values),
    }
    return xr.Dataset(variables, coords | {"positions": ["all", "without_first"]})


MASKS = [
    {"model.mask": mask, "model.window": window, "objective": objective}
    for objective in ("next", "masked")
    for mask, window in (("causal", 0), ("window", 16), ("window", 64), ("bidirectional", 0))
    if objective == "masked" or mask != "bidirectional"
]


def test_pairs_differ_in_one_setting_and_a_mask_with_its_own_is_one():
    frame = contrasts(
        experiment(
            MASKS, 2, lambda condition, seed: condition["model.window"] + 100 * (condition["objective"] == "next")
        )
    )
    bell = frame[(frame.quantity == "middle_less_ends") & (frame.positions == "all")]
    pairs = {
        ("model.mask", before, after, held)
        for held, masks in (
            ("next", ("causal", "window 16", "window 64")),
            ("masked", ("causal", "window 16", "window 64", "bidirectional")),
        )
        for before, after in itertools.combinations(masks, 2)
    } | {("objective", "next", "masked", held) for held in ("causal", "window 16", "window 64")}
    assert set(bell[["setting", "before", "after", "held"]].itertuples(index=False, name=None)) == pairs
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
    row = (
        contrasts(runs.assign_coords({"model.leak_seed": ("run", leaking)}))
        .query("quantity == 'middle_less_ends'")
        .iloc[0]
    )
    assert row.pairs == 5
    assert row.change == pytest.approx((noise[1] - noise[0]).mean())
    assert np.isfinite(row.low)


def grid_of_leaks(gains: list[float]) -> xr.Dataset:
    """Two conditions, p and q, of two weight seeds × two leak seeds."""
    condition, (weights, leaks) = np.repeat([0, 1], 4), np.tile([[0, 0, 1, 1], [0, 1, 0, 1]], 2)
    coords = {"run": np.arange(8), "condition": ("run", np.array(["p", "q"])[condition])}
    coords |= dict.fromkeys(("train.seed", "train.data_seed"), ("run", weights))
    coords |= {"model.leak_seed": ("run", leaks), "model.sink": ("run", condition == 1)}
    return xr.Dataset({"test_context_gain": ("run", gains)}, coords)


def test_runs_that_differ_in_the_seed_of_a_leak_alone_are_pairs_of_their_own():
    row = contrasts(grid_of_leaks([0.0, 10, 0, 10, 1, 11, 1, 31])).iloc[0]
    assert (row.change, row.pairs) == (6, 4)
    condition, seeds = layout(2, 2)
    with pytest.raises(ValueError, match="two runs of one condition have all seeds in common"):
        change_between(np.arange(4.0), condition, 0 * seeds, 0, 1)


def test_bits_of_two_objectives_are_not_compared_but_gains_are():
    frame = contrasts(experiment(MASKS, 2))
    assert set(frame[frame.setting == "objective"].quantity) == {"middle_less_ends", "test_context_gain"}
    assert set(frame[frame.setting == "model.mask"].quantity) == {"middle_less_ends", "test_bits", "test_context_gain"}


def test_an_optimizer_and_its_rates_are_one_setting():
    own = [
        {"train.optimizer": name, "train.learning_rate": rate, "model.positions": kind}
        for name, rate in (("adamw", 0.004), ("muon", 0.02))
        for kind in ("learned", "rotary")
    ]
    frame = contrasts(experiment(own, 2))
    pairs = set(frame[["setting", "before", "after", "held"]].itertuples(index=False, name=None))
    assert pairs == {
        ("train.optimizer", "adamw", "muon", "learned"),
        ("train.optimizer", "adamw", "muon", "rotary"),
        ("model.positions", "learned", "rotary", "adamw"),
        ("model.positions", "learned", "rotary", "muon"),
    }
    several = [{"train.optimizer": "adamw", "train.learning_rate": rate} for rate in (0.001, 0.002)]
    frame = contrasts(experiment([*several, {"train.optimizer": "muon", "train.learning_rate": 0.02}], 2))
    assert set(frame.setting) == {"train.optimizer"}
    assert "adamw, learning_rate 0.001" in set(frame.before)
    alone = contrasts(experiment([{"train.learning_rate": rate} for rate in (0.001, 0.002)], 2))
    assert set(alone.setting) == {"train.learning_rate"}


def test_conditions_that_differ_in_two_settings_or_in_seeds_only_have_no_contrast():
    twins = [MASKS[0], MASKS[-1]]
    assert contrasts(experiment(twins, 2)).empty
    alone = experiment([{}], 3)
    assert contrasts(alone).empty


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"model.mask": "window", "model.prefix": 0, "model.window": 16, "model.leak": 0.0}, "window 16"),
        ({"model.mask": "leak", "model.leak": 0.01}, "leak 0.01"),
        ({"model.mask": "causal", "model.leak": 0.0}, "causal"),
        ({"model.window": 16}, "window 16"),
        ({"train.penalty": 0.0}, "penalty 0"),
        ({"train.penalty": -1.0}, "penalty -1"),
        ({"model.qk_norm": np.True_}, "qk_norm"),
        ({"model.qk_norm": np.False_}, "no qk_norm"),
        ({"model.attention": "sigmoid"}, "sigmoid"),
    ],
)
def test_settings_in_words(values, expected):
    assert words(values) == expected
