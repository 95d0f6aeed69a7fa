"""Prespecified contrasts: known answers of both tests, of the correction, and what is refused."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats

from anisoscope.analysis import primary
from anisoscope.analysis.contrasts import CONTRAST_COLUMNS, Change
from anisoscope.config.experiment_config import Config
from anisoscope.engine.intervals import holm_of
from anisoscope.utils.errors import UserError
from anisoscope.utils.folder import claim_folder
from tests.analysis.seed_layouts import experiment, grid_of_leaks

CONDITIONS = [{"model.mask": mask} for mask in ("causal", "window", "prefix")]
EMPTY = pd.DataFrame(columns=[*CONTRAST_COLUMNS, *Change._fields, "level", "without", "role"])
ONE = {"quantity": "middle_minus_ends", "before": "condition 0", "after": "condition 1"}


def runs(effect: float, scatter: float) -> xr.Dataset:
    noise = np.random.default_rng(0).normal(size=(3, 5))
    places = {condition["model.mask"]: i for i, condition in enumerate(CONDITIONS)}

    def value(of, seed):
        return (
            effect * (of["model.mask"] == "window")
            + scatter * noise[places[of["model.mask"]], seed]
        )

    return experiment(CONDITIONS, 5, value)


@pytest.mark.parametrize(
    ("effect", "scatter", "verdict"),
    [
        (1.0, 0.02, primary.DIFFERS),
        (0.0, 0.01, primary.WITHIN),
        (0.05, 0.001, primary.BOTH),
        (0.0, 1.0, primary.OPEN),
        (0.0, 0.0, primary.UNTESTED),  # no seed scatters
        (1.0, 5.0, primary.OPEN),
    ],
)
def test_what_is_planted_is_found_and_what_scatters_is_left_open(effect, scatter, verdict):
    (row,) = primary.primary_table(
        {"it": ONE | {"margin": 0.1}}, runs(effect, scatter), EMPTY
    ).itertuples()
    assert row.verdict == verdict
    assert row.change == pytest.approx(effect, abs=4 * scatter)
    assert row.pairs == 5


def test_the_p_are_those_of_scipy_for_two_conditions():
    table = runs(0.3, 1.0)
    two = table.isel(run=np.isin(table["condition"], ["condition 0", "condition 1"]))
    (row,) = primary.primary_table({"it": ONE | {"margin": 0.5}}, two, EMPTY).itertuples()
    values = two.middle_minus_ends.sel(positions="all").values
    before, after = (values[two["condition"] == f"condition {n}"] for n in (0, 1))
    assert row.p == pytest.approx(stats.ttest_rel(after, before).pvalue)
    above = stats.ttest_rel(after + 0.5, before, alternative="greater").pvalue
    below = stats.ttest_rel(after - 0.5, before, alternative="less").pvalue
    assert row.p_margin == pytest.approx(max(above, below))


@pytest.mark.parametrize("truth", [0.0, 0.5])
def test_one_of_six_conclusions_is_wrong_at_most_as_often_as_it_says(truth):
    """In 1,000 draws, within three deviations. No change, and a change as large as the margin: one
    of both is true.
    """
    rng, wrong, draws, margin = np.random.default_rng(1), 0, 1000, 0.5
    scatter = np.array([[0.05], [0.1], [0.3], [0.5], [1], [3]])
    for _ in range(draws):
        differences = truth + rng.normal(size=(6, 5)) * scatter
        error = differences.std(axis=1, ddof=1) / np.sqrt(5)
        far = abs(differences.mean(axis=1))
        both = [2 * stats.t.sf(far / error, 4), stats.t.sf((margin - far) / error, 4)]
        corrected = holm_of(np.concatenate(both), 6).reshape(2, 6)
        wrong += (corrected[int(truth > 0)] < 0.05).any()
    assert wrong / draws < 0.05 + 3 * np.sqrt(0.05 * 0.95 / draws)


def test_at_equal_gain_the_row_of_the_table_is_read_and_turned_round_where_it_must_be():
    row = {"setting": "model.mask", "before": "causal", "after": "window", "held": ""}
    row |= {"quantity": "middle_minus_ends", "positions": "all", "level": 1.0, "without": ""}
    matched = pd.DataFrame([row | Change(0.4, 0.3, 0.5, 0.05, 4, 5)._asdict()])
    named = {
        "one": ONE | {"at": "matched"},
        "turned": ONE | {"at": "matched", "before": ONE["after"], "after": ONE["before"]},
        "none": ONE | {"at": "matched", "after": "condition 2"},
    }
    found = primary.primary_table(named, runs(0, 1), matched).set_index("name")
    assert tuple(found.loc["one", ["change", "low", "high"]]) == (0.4, 0.3, 0.5)
    assert tuple(found.loc["turned", ["change", "low", "high"]]) == (-0.4, -0.5, -0.3)
    assert found.loc["one", "p"] == found.loc["turned", "p"] == pytest.approx(2 * stats.t.sf(8, 4))
    assert found.loc["one", "p_holm"] == pytest.approx(3 * found.loc["one", "p"])
    assert found.loc["none", "verdict"] == primary.NOTHING


def test_crossed_seeds_have_an_interval_and_no_p():
    """Weights and data; weights and what a mask draws."""
    leaks = grid_of_leaks(np.random.default_rng(3).normal(size=8))
    data = leaks.drop_vars("model.leak_seed")
    data = data.assign_coords({"train.data_seed": leaks["model.leak_seed"]})
    named = {"it": {"quantity": "test_gain_over_unigram", "before": "p", "after": "q"}}
    for crossed in (data, leaks):
        (row,) = primary.primary_table(named, crossed, EMPTY).itertuples()
        assert np.isfinite([row.low, row.high]).all()
        assert np.isnan(row.p)
        assert row.verdict == primary.UNTESTED


def test_bits_of_two_objectives_have_no_value():
    conditions = [{"model.mask": "causal", "objective": kind} for kind in ("next", "masked")]
    named = {name: ONE | {"quantity": name} for name in ("test_bits", "test_gain_over_unigram")}
    found = primary.primary_table(named, experiment(conditions, 5), EMPTY).set_index("name")
    assert found.loc["test_bits", "verdict"] == primary.NOTHING
    assert found.loc["test_gain_over_unigram", "change"] == 0


def test_a_change_of_two_settings_is_tested_if_it_is_prespecified():
    conditions = [
        {"model.mask": mask, "objective": kind}
        for mask in ("causal", "bidirectional")
        for kind in ("next", "masked")
    ]
    table = experiment(conditions, 5, lambda of, _: float(of["model.mask"] == "bidirectional"))
    (row,) = primary.primary_table(
        {"it": ONE | {"after": "condition 3"}}, table, EMPTY
    ).itertuples()
    assert (row.change, row.pairs) == (pytest.approx(1), 5)


@pytest.mark.parametrize("margin", [0.2, None])
def test_a_run_that_has_begun_refuses_what_is_named_later(tmp_path, margin):
    begun = Config(primary={"it": ONE | {"margin": 0.1}})
    claim_folder(tmp_path / "run", begun, new=True)
    claim_folder(tmp_path / "run", begun, new=True)
    named = {"it": ONE | {"margin": margin}} if margin else {}
    with pytest.raises(UserError, match="other settings: primary"):
        claim_folder(tmp_path / "run", Config(primary=named), new=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"quantity": "bel"}, r"primary\.x\.quantity"),
        ({"quantity": "test_gain_over_unigram", "at": "matched"}, r"primary\.x\.quantity"),
        ({"at": "first"}, r"primary\.x\.at"),
        ({"margin": 0}, r"primary\.x\.margin"),
        ({"margins": 1.0}, "'margins'"),
        ({"positions": "some"}, r"primary\.x\.positions"),
        ({"after": "condition 4"}, "names 'condition 4'"),
        ({"after": "cond"}, "names 'cond'"),
    ],
)
def test_what_cannot_be_named_is_refused(change, words):
    names = ["condition 0_0", "condition 1_0", "condition_0"]
    primary.check_primary({"x": ONE, "y": ONE | {"after": "condition"}}, names)
    with pytest.raises(UserError, match=words):
        primary.check_primary({"x": ONE | change}, names)
