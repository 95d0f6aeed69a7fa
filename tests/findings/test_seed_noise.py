"""The number of seeds against a simulated test, and pooled deviations against their definition."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats

from findings.scripts import eight_seeds, objective_and_mask, seed_noise


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


def test_deviations_of_eight_seeds_are_those_of_known_runs():
    """Seeds differ by whole units, blocks by a factor of 4 (2 log2 units), step 500 by a bend."""
    steps = [*eight_seeds.LINE, 1200]
    half_S = stats.t.ppf(0.975, 2 * 3) * np.array([1, 1, 1, 1, 0.1])  # four sections, two batches
    runs = []
    for seed in range(8):
        log_SL = np.full((5, 3), float(seed)) + np.array([-9, -1, 1])
        log_SL[1] += 0.6
        over_S = log_SL[:, 1:].mean(axis=1)
        mean = np.stack([over_S, over_S - half_S, over_S + half_S])
        dims, coords = ("statistic", "step", "positions"), {"step": steps, "positions": ["all"]}
        coords |= {"statistic": ["mean", "low", "high"], "layer": [0, 1, 2]}
        values = np.stack([2**log_SL] * 3)[:, :, None]
        layers = ((*dims, "layer"), values, {"resampling": "sections"})
        variables = {"twonn": layers, "twonn_over_blocks": (dims, 2 ** mean[..., None])}
        runs.append(xr.Dataset(variables, coords, {"folds": 8, "batches": 2}))
    row = eight_seeds.describe("decoder", "twonn", runs)
    deviation = np.arange(8).std(ddof=1)
    assert [row["seeds"], row["block"]] == pytest.approx([deviation, deviation])
    assert [row["blocks"], row["windows"]] == pytest.approx([2**0.5, 0.1])
    assert row["steps"] == pytest.approx(np.sqrt((1.2**2 + 0.6**2) / 2 / 6))


def test_the_objective_less_the_mask_is_recomputed_seed_by_seed():
    runs = pd.read_csv(objective_and_mask.FOLDER / "loss_matched.csv")
    table = pd.read_csv(objective_and_mask.FOLDER / "objective_less_mask.csv").set_index("quantity")
    for name in objective_and_mask.QUANTITIES:
        value = dict(zip(runs["run"], runs[name], strict=True))
        change = [
            [value[f"{after}_{seed}"] - value[f"{before}_{seed}"] for seed in range(2, 7)]
            for before, after in objective_and_mask.CHANGES
        ]
        sizes = [np.array(x) * np.sign(np.mean(x)) for x in change]
        assert table["mean"][name] == pytest.approx(np.mean(sizes[0] - sizes[1]))
