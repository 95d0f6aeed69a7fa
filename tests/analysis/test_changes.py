"""A change between two conditions: its error by paired and crossed seeds, and how often its
interval holds.
"""

import numpy as np
import pytest
from scipy import stats

from anisoscope.analysis.contrasts import change_between
from tests.analysis.seed_layouts import layout

DRAWS = 400
THREE = 3 * np.sqrt(0.95 * 0.05 / DRAWS)  # deviations of a binomial count at 95 %: 3 x 1.1 %


def test_complete_seeds_give_the_mean_of_paired_differences_with_the_error_of_the_additive_model():
    values_CS = np.random.default_rng(0).normal(size=(4, 3)) + np.array([[0], [5], [2], [1]])
    found = change_between(values_CS.ravel(), *layout(4, 3), 1, 3)
    change = (values_CS[3] - values_CS[1]).mean()
    residual = values_CS - values_CS.mean(0) - values_CS.mean(1, keepdims=True) + values_CS.mean()
    error = np.sqrt(np.square(residual).sum() / 6 * 2 / 3)
    half = stats.t.ppf(0.975, 6) * error
    assert found == pytest.approx((change, change - half, change + half, error, 6, 3))


def test_a_seed_alone_has_no_interval_and_conditions_without_a_common_seed_no_change():
    found = change_between(np.array([1.0, 4.0, 9.0]), *layout(3, 1), 0, 2)
    assert found.change == pytest.approx(8)
    assert np.isnan([found.low, found.high, found.error]).all()
    for pairs in ([[0, 0], [1, 1]], [[0, 0], [0, 1], [1, 0], [1, 1]]):
        condition = np.repeat([0, 1], len(pairs) // 2)
        found = change_between(np.arange(len(pairs)), condition, np.array(pairs), 0, 1)
        assert np.isnan(found.change)
        assert found.pairs == 0


def test_a_condition_without_a_common_seed_changes_nothing():
    values, (condition, seeds) = np.array([1.0, 4, 2, 8]), layout(2, 2)
    alone = change_between(values, condition, seeds, 0, 1)
    more = np.append(values, [5, 7]), np.append(condition, [2, 2]), [*seeds, [8, 8], [9, 9]]
    assert change_between(*map(np.array, more), 0, 1) == pytest.approx(alone)
    assert alone.freedom == 1


def test_a_run_without_a_number_is_left_out_and_a_missing_condition_is_nan():
    values, (condition, seeds) = np.array([1.0, 2.0, 5.0, np.nan, 3.0, 4.0]), layout(3, 2)
    found, kept = change_between(values, condition, seeds, 0, 1), [0, 1, 2, 4, 5]
    assert (found.pairs, found.freedom) == (1, 1)
    without = change_between(values[kept], condition[kept], seeds[kept], 0, 1)
    np.testing.assert_array_equal(found, without)
    for none in ([1.0, 2.0, np.nan, np.nan], [np.nan] * 4):
        assert np.isnan(change_between(np.array(none), *layout(2, 2), 0, 1).change)


@pytest.mark.parametrize(
    ("seeds", "deviations", "missing"),
    [
        (2, [1] * 9, [0, 5]),  # noise is pooled over all conditions
        (4, [0.02, 0.04, 1, 1], []),  # whatever other conditions do
        (4, [1, 1, 0.02, 0.02], []),
    ],
)
def test_the_interval_covers_the_truth_as_often_as_it_says(seeds, deviations, missing):
    rng, hits, conditions = np.random.default_rng(3), 0, len(deviations)
    condition, seed = (np.delete(index, missing, axis=0) for index in layout(conditions, seeds))
    truth, noise = np.linspace(0, 3, conditions), np.array(deviations)[condition]
    for _ in range(DRAWS):
        common = truth[condition] + 5 * rng.normal(size=seeds)[seed[:, 0]]
        values = common + noise * rng.normal(size=len(condition))
        found = change_between(values, condition, seed, 0, 1)
        hits += found.low <= truth[1] - truth[0] <= found.high
    assert found.freedom == (3 if seeds == 4 else 8 - len(missing))
    assert abs(hits / DRAWS - 0.95) < THREE


def drawn(rng, shape, deviations):
    """Values of conditions x weights x data: in each noise of the weights, the data and the rest,
    and 5 in common.
    """
    conditions, weights, data = shape
    parts = zip(((conditions, weights, 1), (conditions, 1, data), shape), deviations, strict=True)
    return sum(by * rng.normal(size=size) for size, by in parts) + 5 * rng.normal(size=shape[1:])


MIXES = ((1, 1, 0.5), (1, 0.2, 0.2), (0.2, 1, 0.2), (0, 1, 0.5))


@pytest.mark.parametrize(
    ("shape", "deviations"),
    [
        *(((9, 4, 2), mix) for mix in MIXES),
        *(((2, seeds, seeds), mix) for seeds in (2, 4) for mix in (*MIXES, (0, 0, 1))),
    ],
)
def test_the_interval_of_crossed_seeds_covers_the_truth(shape, deviations):
    """As often as it says with nine conditions, at least as often with two."""
    rng, hits, layouts = np.random.default_rng(7), 0, layout(*shape)
    for _ in range(DRAWS):
        found = change_between(drawn(rng, shape, deviations).ravel(), *layouts, 0, 1)
        hits += found.low <= 0 <= found.high
    assert hits / DRAWS > 0.95 - THREE
    assert shape[0] == 2 or hits / DRAWS < 0.95 + THREE


def test_crossed_seeds_are_a_table_of_paired_differences():
    """Two conditions: effects -2, 1, 1 of weights and -3, 3 of data, plus e."""
    a, b = np.array([[-2.0], [1], [1]]), np.array([-3.0, 3])
    e = np.array([[0.5, -0.5], [-1, 1], [0.5, -0.5]])
    common = np.random.default_rng(8).normal(size=(3, 2))
    values = np.stack([common, common + 10 + a + b + e]).ravel()
    found = change_between(values, *layout(2, 3, 2), 0, 1)
    weights, data, rest = 2 * 6 / 2, 3 * 18 / 1, 3 / 2  # mean squares of the differences
    error = np.sqrt((weights + data - rest) / 6)
    two, one = stats.t.ppf(0.975, [2, 1]) ** 2
    half = np.sqrt((two * weights + one * data - two * rest) / 6)
    assert found == pytest.approx((10, 10 - half, 10 + half, error, 1, 6))


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
    torn = change_between(values_CP.ravel(), condition, seeds, 0, 3)
    assert torn.change == pytest.approx((values_CP[3] - values_CP[0])[[0, 2, 3]].mean())
    assert np.isnan([torn.low, torn.high, torn.error]).all()
    assert (torn.freedom, torn.pairs) == (0, 3)


def test_crossed_seeds_of_a_third_condition_leave_two_with_enough_pairs_as_they_are():
    rng = np.random.default_rng(10)
    condition, seeds = layout(2, 5)
    values, more = rng.normal(size=10), rng.normal(size=10)
    crossed = np.array([(w, d) for w in range(5) for d in (5, 6)])
    seeds = np.stack([seeds[:, 0], 5 + 0 * seeds[:, 0]], axis=1)  # one data seed
    alone = change_between(values, condition, seeds, 0, 1)
    both = np.append(values, more), np.append(condition, 10 * [2]), np.concatenate([seeds, crossed])
    assert change_between(*both, 0, 1) == pytest.approx(alone)
    assert alone.freedom == 4


def test_seeds_that_share_but_make_no_grid_have_no_interval():
    triples = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)]
    for pairs in ([(0, 0), (1, 0), (2, 1)], [(0, 0), (0, 1), (1, 2), (1, 3)], triples):
        condition, seeds = np.repeat([0, 1], len(pairs)), np.tile(pairs, (2, 1))
        values = np.random.default_rng(10).normal(size=len(condition))
        found = change_between(values, condition, seeds, 0, 1)
        assert np.isfinite(found.change)
        assert np.isnan(found.error)


def test_data_of_one_seed_are_held_and_leaks_go_with_the_weights():
    values = np.random.default_rng(11).normal(size=6)
    own = change_between(values, *layout(2, 3), 0, 1)
    for seeds in ([(0, 5), (1, 5), (2, 5)], [(5, 0), (5, 1), (5, 2)], [(0, 9), (1, 3), (2, 4)]):
        found = change_between(values, np.repeat([0, 1], 3), np.tile(seeds, (2, 1)), 0, 1)
        np.testing.assert_array_equal(found, own)
    values = np.random.default_rng(12).normal(size=8)
    condition, seeds = layout(2, 2, 2)
    leaking = np.concatenate([seeds, 7 - seeds[:, :1]], axis=1)
    whole = change_between(values, condition, seeds, 0, 1)
    np.testing.assert_allclose(change_between(values, condition, leaking, 0, 1), whole)
    with pytest.raises(ValueError, match="all seeds in common"):
        change_between(values, condition, 0 * seeds, 0, 1)
