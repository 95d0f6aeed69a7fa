"""Coverage on estimators whose replicates are made by hand, and draws through the package."""

import numpy as np
import pytest

from benchmarks import coverage
from benchmarks.coverage import score
from tests.zoo import ZOO

BATCHES, SECTIONS, DRAWS = 4, 4, 4000


def replicates(width=1.0):
    """Of a statistic with standard error 1 on a batch: its value, and sections of which it is the
    mean.
    """
    sections_GRN = 10 + width * 2 * np.random.default_rng(0).normal(size=(BATCHES, SECTIONS, DRAWS))
    whole_GN = 10 + (sections_GRN.mean(axis=1) - 10) / width
    return np.concatenate([whole_GN[:, None], sections_GRN], axis=1)


def test_an_honest_interval_covers_what_it_says_and_bias_shows_in_the_truth_alone():
    for truth, share in ((10.0, 0.95), (8.0, 0.0), (np.nan, np.nan)):
        values = replicates()
        values[:, :, ::2] = np.nan if truth == 8 else values[:, :, ::2]  # draws without a value
        row = score("twonn", values, truth)
        assert row["truth held"] == pytest.approx(
            share, abs=0.015 if truth != 8 else 0.1, nan_ok=True
        )
        assert row["expectation held"] == pytest.approx(0.95, abs=0.015)
        assert row["mean"] == pytest.approx(10, abs=0.05)
        assert row["bias"] == pytest.approx(10 / truth - 1, abs=0.008, nan_ok=True)
        # Student's t of 12 degrees, E s = 0.98
        assert row["half-width"] == pytest.approx(2.18 / 2 * 0.98, rel=0.03)
        assert row["verdict"] == ""
        assert row["draws"] == (DRAWS if truth != 8 else DRAWS / 2)


@pytest.mark.parametrize(("width", "verdict"), [(0.6, "too narrow"), (2.0, "too wide")])
def test_dishonest_intervals_are_called_so(width, verdict):
    assert score("twonn", replicates(width), 10.0)["verdict"] == verdict


def test_the_truth_is_read_off_the_population():
    known = coverage.truths(ZOO["gaussian 8 in 64"])
    assert known["anisotropy"] == pytest.approx(1 / 8)
    assert known["isoscore"] == pytest.approx(7 / 63)
    for name in (
        "participation_ratio",
        "effective_rank",
        "rankme_centered",
        "stable_rank",
        "twonn",
    ):
        assert known[name] == pytest.approx(8, rel=1e-5)


@pytest.mark.slow
def test_a_run_has_a_row_of_each_number(monkeypatch):
    monkeypatch.setattr(coverage, "POINTS", 256)
    families = ("dimension", "linearity", "alignment", "logit_lens", "similarity", "sinks")
    rows = coverage.cover_zoo(families, 2, {"sphere": ZOO["sphere 2 in 64"]})
    values = rows.set_index("metric")["mean"]
    assert values["twonn"] == pytest.approx(2, rel=0.2)
    # of the sphere's spectrum: 3 dimensions
    assert values["twonn excess"] == pytest.approx(-0.9, abs=0.5)
    assert 0.5 < values["linearity"] < 1
    assert 0.5 < values["rsa_layers"] < 0.999
    assert 0.01 < values["logit_lens_divergence"] < 10
    assert values["drift"] < 0.5
    assert {"sink_rate 0.1", "twonn_without_longest longest 1 %"} <= set(values.index)
