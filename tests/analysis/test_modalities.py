"""Correlations by modality, of planted clouds of points."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from anisoscope.analysis import correlations
from anisoscope.analysis.correlations import Correlation, correlate


def table(drift, cosine, positions=("all", "without_first")):
    """As results.nc has them; the values of an earlier revision say nothing."""
    values = np.stack([np.full((2, len(drift)), 7.0), np.stack([drift, cosine])])
    dims = ("step", "statistic", "positions", "layer")
    coords = {"step": [0, 10], "statistic": ["mean"], "positions": list(positions)}
    shape = (2, 1, len(positions), len(drift))
    made = [np.broadcast_to(values[:, n][:, None, None], shape) for n in (0, 1)]
    return xr.Dataset({"drift": (dims, made[0]), "mean_cosine": (dims, made[1])}, coords)


@pytest.fixture(scope="module")
def found():
    """In text every model rises while their means fall; in pictures there is nothing."""
    rng, depth = np.random.default_rng(0), np.linspace(0, 1, 8)
    tables = {
        f"text{n}": table(10.0 * n + depth, 0.5 - 0.1 * n + 0.05 * depth**2) for n in range(4)
    }
    tables |= {f"vision{n}": table(*rng.normal(size=(2, 40))) for n in range(3)}
    frame = correlations.by_modality(tables, {name: name[:-1] for name in tables})
    return tables, frame.set_index(["modality", "positions", "over", "model"]).sort_index()


def test_layers_and_models_are_told_apart(found):
    _, frame = found
    of_text = frame.loc[("text", "all")]
    assert of_text.loc[(correlations.WITHIN, "")].spearman == pytest.approx(1)
    assert of_text.loc[(correlations.MODELS, "")].spearman == pytest.approx(-1)
    assert of_text.loc[(correlations.MODELS, "")].n == 4
    assert of_text.loc[(correlations.POOLED, "")].spearman < -0.8
    assert of_text.loc[(correlations.POOLED, "")].n == 32
    of_vision = frame.loc[("vision", "all")]
    for over in (correlations.WITHIN, correlations.POOLED):
        row = of_vision.loc[(over, "")]
        assert row.pearson_low < 0 < row.pearson_high
    assert set(frame.index.get_level_values("modality")) == {
        "text",
        "vision",
        correlations.ALL,
    }
    assert "layers" not in frame.loc[(correlations.ALL, "all")].index.get_level_values("over")


def test_values_are_those_of_the_last_revision_and_of_scipy(found):
    tables, frame = found
    x, y = (tables["vision1"][name].values[-1, 0, 0] for name in ("drift", "mean_cosine"))
    row = frame.loc[("vision", "without_first", "layers", "vision1")]
    assert row.pearson == pytest.approx(stats.pearsonr(x, y).statistic)
    assert row.spearman == pytest.approx(stats.spearmanr(x, y).statistic)


def test_the_mean_within_models_has_students_interval():
    rng = np.random.default_rng(1)
    inside = [correlate(*rng.normal(size=(2, 12))) for _ in range(5)]
    row, own = correlations.within_models(inside), [one.pearson for one in inside]
    expected = stats.t.interval(0.95, 4, np.mean(own), stats.sem(own))
    np.testing.assert_allclose((row.pearson_low, row.pearson_high), expected)
    assert row.pearson_p == pytest.approx(stats.ttest_1samp(own, 0).pvalue)
    assert row.n == 5


def test_the_interval_within_models_holds_the_truth_as_often_as_it_says():
    """Models differ in drift and in slope, which pooling would mistake for a correlation."""
    inside, truth = 0, 0.0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        clouds = (rng.normal(size=(2, 13)) + rng.normal() * 5 for _ in range(5))
        found = (np.corrcoef(*cloud)[0, 1] for cloud in clouds)
        row = correlations.within_models([Correlation(13, *[r] * 8) for r in found])
        inside += row.pearson_low <= truth <= row.pearson_high
    assert 0.9 < inside / 300 < 0.99


def test_a_model_without_a_correlation_counts_for_nothing():
    constant = correlate(np.arange(5.0), np.ones(5))
    one = correlate(np.arange(5.0), np.array([1.0, 3.0, 2.0, 5.0, 4.0]))
    row = correlations.within_models([constant, one])
    assert (row.n, row.pearson) == (1, one.pearson)
    assert np.isnan(row.pearson_low)
    assert np.isnan(correlations.within_models([constant])[1:]).all()
    assert isinstance(row, Correlation)
