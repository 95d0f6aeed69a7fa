"""Coverage on estimators whose replicates are made by hand, and a draw through the product's own
functions.
"""

import numpy as np
import pytest

from anisoscope.measurement.families import comparison_family
from anisoscope.measurement.families.registry import quantities
from benchmarks import coverage
from benchmarks.coverage import score
from tests.zoo import ZOO

BATCHES, SECTIONS, DRAWS = 4, 4, 4000


def replicates(width=1.0, seed=0):
    """Of a statistic with standard error 1 on a batch: its value, and sections of which it is the
    mean.
    """
    sections_GRN = 10 + width * 2 * np.random.default_rng(seed).normal(
        size=(BATCHES, SECTIONS, DRAWS)
    )
    whole_GN = 10 + (sections_GRN.mean(axis=1) - 10) / width
    return np.concatenate([whole_GN[:, None], sections_GRN], axis=1)


def test_an_honest_interval_covers_what_it_says():
    row = score("twonn", "toy", 10.0, replicates(), 64)
    assert row.truth_share == pytest.approx(0.95, abs=0.01)
    assert row.expectation_share == pytest.approx(0.95, abs=0.01)
    assert row.mean == pytest.approx(10, abs=0.03)
    assert abs(row.bias) < 0.003
    # Student's t of 12 degrees, E s = 0.98
    assert row.half_width == pytest.approx(2.18 / 2 * 0.98, rel=0.02)
    assert row.verdict == ""


def test_bias_shows_in_the_coverage_of_the_truth_alone():
    row = score("twonn", "toy", 8.0, replicates(), 64)
    assert row.truth_share < 0.1
    assert row.expectation_share == pytest.approx(0.95, abs=0.01)
    assert row.bias == pytest.approx(0.25, abs=0.005)


@pytest.mark.parametrize(("width", "verdict"), [(0.6, "too narrow"), (2.0, "too wide")])
def test_dishonest_intervals_are_called_so(width, verdict):
    assert score("twonn", "toy", 10.0, replicates(width), 64).verdict == verdict


def test_what_is_unknown_is_left_out():
    row = score("drift", "toy", np.nan, replicates(), 64)
    assert np.isnan(row.truth_share)
    assert not np.isnan(row.expectation_share)
    assert "nan" not in coverage.table([row])
    silent = score("twonn", "toy", 2.0, np.full((BATCHES, 1 + SECTIONS, 3), np.nan), 64)
    assert silent.verdict == "no value"
    assert "nan" not in coverage.overview([row, silent])


def test_the_truth_is_read_off_the_population():
    known = coverage.truths(ZOO["gaussian 8 in 64"])
    assert known["anisotropy"] == pytest.approx(1 / 8)
    for name in (
        "participation_ratio",
        "participation_ratio_corrected",
        "effective_rank",
        "stable_rank",
        "twonn",
    ):
        assert known[name] == pytest.approx(8, rel=1e-5)
    assert coverage.truths(ZOO["power law in 64"])["alpha_req"] == pytest.approx(1, rel=1e-4)


@pytest.mark.slow
def test_a_run_gives_a_row_for_each_metric():
    rows = coverage.run("sphere 2 in 64", ZOO["sphere 2 in 64"], coverage.METRICS, 256, 3)
    assert [row.metric for row in rows] == list(coverage.METRICS)
    values = {row.metric: row for row in rows}
    assert values["twonn"].mean == pytest.approx(2, rel=0.2)
    assert values["participation_ratio_corrected"].mean == pytest.approx(3, rel=0.05)
    assert values["gride 64"].verdict == "no value"  # a section of 64 points has no 128th neighbor
    assert len(coverage.table(rows).splitlines()) == 1 + len(rows)
    assert "twonn" in coverage.overview(rows)
    assert 0.5 < values["neighbor_overlap_last"].mean < values["cka_last"].mean < 1
    # of the sphere's spectrum: 3 dimensions
    assert values["twonn excess"].mean == pytest.approx(-0.9, abs=0.4)


def test_every_quantity_with_resamples_is_asked_for():
    """But for comparisons that differ only in what is compared."""
    asked = {name.split()[0] for name in coverage.METRICS}
    left = {name for name, quantity in quantities().items() if quantity.resampling} - asked
    compared = {
        f"{kind}_{which}" for kind in comparison_family.KINDS for which in ("layers", "previous")
    }
    assert left == compared


def test_parts_are_where_their_names_say():
    value_LSR = np.arange(7)[None, :, None] * np.ones(3)
    found = coverage.split_indexed({"gride": value_LSR, "twonn": value_LSR[:, 5]})
    assert {name: value[0] for name, value in found.items()} == {
        "gride 1": 0,
        "gride 8": 3,
        "gride 64": 6,
        "twonn": 5,
    }


def test_draws_without_a_value_are_left_out_and_told():
    values = replicates()
    values[:, :, ::2] = np.nan
    row = score("twonn", "toy", 10.0, values, 64)
    assert row.mean == pytest.approx(10, abs=0.05)
    assert row.truth_share == pytest.approx(0.95, abs=0.015)
    assert row.verdict == "(50% of the draws have one)"


def test_each_coordinate_is_shown_apart():
    """Else whole curves would be taken for replicates."""
    sides = {"layer", "other_layer", "block", "head"}
    for metric in coverage.METRICS:
        assert set(quantities()[metric.split()[0]].dims) - sides <= set(coverage.SHOWN), metric


def test_a_second_layer_is_there_for_what_compares_two():
    rows = coverage.run(
        "gaussian 8 in 64",
        ZOO["gaussian 8 in 64"],
        ("linearity", "rsa_layers", "logit_lens_divergence", "drift"),
        256,
        2,
    )
    values = {row.metric: row.mean for row in rows}
    assert 0.5 < values["linearity"] < 1
    assert 0.5 < values["rsa_layers"] < 0.999
    assert 0.01 < values["logit_lens_divergence"] < 10
    assert values["drift"] < 0.5
