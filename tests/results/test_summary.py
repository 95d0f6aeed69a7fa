import numpy as np
import pytest
from scipy import stats

from anisoscope.engine.intervals import clip, estimate
from anisoscope.metrics.registry import quantities
from anisoscope.results.summary import summarize_checkpoint
from tests.results.made import NAMES, NULLS, G, table, values


@pytest.fixture
def raw():
    return table(values())


@pytest.fixture
def untrained():
    return table(values(1), 0)


def test_results_hold_moments_and_intervals_and_batches_one_value_per_cloud(raw):
    results, batches = summarize_checkpoint(raw, None, ())
    shared = ("step", "statistic", "positions")
    assert results.anisotropy.dims == (*shared, "layer")
    assert results.query_drift.dims == (*shared, "block", "head")
    assert results.top_coordinate_variance_share.dims == (*shared, "layer", "top")
    assert batches.anisotropy.dims == ("step", "positions", "batch", "layer")
    measured = values()["measured"]["anisotropy"][:, 1, 2]
    place = {"step": 7, "positions": "without_first_token", "layer": 2}
    np.testing.assert_array_equal(batches.anisotropy.sel(place), measured[:, 0])
    found, expected = results.anisotropy.sel(place), clip(estimate(measured, "jackknife"), 0, 1)
    for statistic in ("mean", "std", "low", "high"):
        assert found.sel(statistic=statistic).item() == getattr(expected, statistic)
    np.testing.assert_allclose(found.sel(statistic="mean"), measured[:, 0].mean(), rtol=1e-6)
    for name in NAMES:
        about = {"long_name", "units", "formula", "source", "resampling", "family", "range"}
        assert about == results[name].attrs.keys() - {"symbol", "null_models"}
        low, mean, high = (results[name].sel(statistic=end) for end in ("low", "mean", "high"))
        assert ((low < mean) & (mean < high)).all()


def test_the_interval_of_a_value_ends_where_its_range_does_and_that_of_an_excess_does_not(
    raw, untrained
):
    """The values are uniform on [0, 1], with 4 replicates far apart: their intervals reach
    beyond.
    """
    results, _ = summarize_checkpoint(raw, untrained, NULLS)
    assert results.anisotropy.attrs["range"] == "0 to 1"
    assert results.query_drift.attrs["range"] == "0 to inf"
    for name in (
        "anisotropy",
        "anisotropy_over_blocks",
        "cka_layers",
        "query_drift",
        "query_drift_over_heads",
    ):
        low, high = (results[name].sel(statistic=end) for end in ("low", "high"))
        least, most = quantities()[name.split("_over_")[0]].range
        assert low.min() >= least
        assert high.max() <= most
    assert (results.anisotropy.sel(statistic="low") == 0).any()
    assert (results.anisotropy.sel(statistic="high") == 1).any()
    assert results.anisotropy_excess.sel(null="shuffled", statistic="low").min() < -1


def by_hand(own, null, kind, axes):
    """Mean and ends of the interval of an average, from (batch, replicate, …): in float64, written
    apart.
    """

    def moved(values):
        values = np.asarray(values, np.float64)
        if kind == "jackknife":
            return values
        whole, parts = values[:, :1], values[:, 1:]
        ratio = whole / parts.mean(1, keepdims=True)
        return np.concatenate(
            [whole, whole + (parts - parts.mean(1, keepdims=True)) * ratio], axis=1
        )

    replicates_GR = (moved(own) - (0 if null is None else moved(null))).mean(axes)
    parts, count = replicates_GR[:, 1:], replicates_GR.shape[1] - 1
    scale = (count - 1) / count if kind == "jackknife" else 1 / (count * (count - 1))
    variance_G = scale * np.square(parts - parts.mean(1, keepdims=True)).sum(1)
    half = stats.t.ppf(0.975, G * (count - 1)) * np.sqrt(variance_G.sum()) / G
    mean = replicates_GR[:, 0].mean()
    return mean, mean - half, mean + half


@pytest.mark.parametrize(
    ("name", "average", "place", "pick", "axes"),
    [
        ("twonn", "twonn_over_blocks", {}, np.s_[:, 0, 1:], 2),
        ("gride", "gride_over_blocks", {"neighbors": 4}, np.s_[:, 0, 1:, 2], 2),
        ("query_drift", "query_drift_over_blocks", {}, np.s_[:, 0], (2, 3)),
        ("query_drift", "query_drift_over_heads", {"block": 2}, np.s_[:, 0, 1], 2),
    ],
)
def test_an_average_is_resampled_as_its_terms_are(raw, name, average, place, pick, axes):
    results = summarize_checkpoint(raw, None, ("shuffled",))[0].sel(
        step=7, positions="all", **place
    )
    assert results[average].attrs["resampling"] == results[name].attrs["resampling"] != "batches"
    assert "mean over" in results[average].attrs["long_name"]
    own, null = (
        np.moveaxis(values()[cloud][name][pick], -1, 1) for cloud in ("measured", "shuffled")
    )
    for variable, model in ((average, None), (f"{average}_excess", null)):
        mean, low, high = by_hand(own, model, quantities()[name].resampling, axes)
        expected = [mean, low, high] if model is not None else [mean, max(low, 0), high]
        found = results[variable].sel(statistic=["mean", "low", "high"])
        np.testing.assert_allclose(found.squeeze(), expected, rtol=1e-6)


def test_a_layer_without_a_number_leaves_no_average_and_the_embedding_counts_for_nothing():
    measured = values()["measured"]["twonn"].copy()
    measured[:, :, 0] = np.nan
    measured[1, 0, 2, 0] = np.inf
    results, _ = summarize_checkpoint(table({"measured": {"twonn": measured}}), None, ())
    mean = results.twonn_over_blocks.sel(step=7, statistic="mean")
    assert np.isnan(mean.sel(positions="all"))
    np.testing.assert_allclose(
        mean.sel(positions="without_first_token"), measured[:, 1, 1:, 0].mean(), rtol=1e-6
    )


def test_counts_have_the_interval_of_the_batches_and_one_batch_has_no_deviation_but_an_interval(
    raw,
):
    one = (
        summarize_checkpoint(raw, None, ())[0].duplicate_points.sel(statistic="low").values[0, 0, 0]
    )
    found = estimate(values()["measured"]["duplicate_points"][:, 0, :1], "")
    np.testing.assert_allclose(one, np.maximum(found.low, 0))
    results, batches = summarize_checkpoint(raw.isel(batch=[0]), None, ())
    assert np.isnan(results.anisotropy.sel(statistic="std")).all()
    assert np.isfinite(results.anisotropy.sel(statistic="low")).all()
    np.testing.assert_allclose(
        results.anisotropy.sel(statistic="mean"), batches.anisotropy.sel(batch=0)
    )


def test_the_excess_is_that_of_each_replicate_over_its_null_model(raw, untrained):
    results = summarize_checkpoint(raw, untrained, NULLS)[0].sel(step=7, positions="all", layer=1)
    assert list(results["null"].values) == [*NULLS]
    models = values() | {"untrained": values(1)["measured"]}
    own = models["measured"]["twonn"][:, 0, 1].astype(float)
    for null in NULLS:
        model = models[null]["twonn"][:, 0, 1]
        found = estimate(own, "sections", model)
        one = results.twonn_excess.sel(null=null)
        assert [one.sel(statistic=name).item() for name in ("mean", "std", "low", "high")] == [
            *found
        ]
        difference = own[:, 0] - model[:, 0]
        np.testing.assert_allclose(one.sel(statistic="std"), difference.std(ddof=1))
        value = results.twonn.sel(statistic="mean")
        np.testing.assert_allclose(value - one.sel(statistic="mean"), model[:, 0].mean(), rtol=1e-5)


def test_what_a_null_model_does_not_have_is_nan_and_what_none_has_is_not_there(raw, untrained):
    results = summarize_checkpoint(raw, untrained, NULLS)[0]
    assert np.isnan(results.query_drift_excess.sel(null="gaussian")).all()
    assert np.isfinite(results.query_drift).all()
    assert np.isfinite(results.query_drift_excess.sel(null=["shuffled", "untrained"])).all()
    assert "cka_layers_excess" not in results
    assert "query_drift_excess" not in summarize_checkpoint(raw, untrained, ("gaussian",))[0]
    assert "null" not in summarize_checkpoint(raw, untrained, ())[0].coords
    assert np.isnan(
        summarize_checkpoint(raw, None, NULLS)[0].twonn_excess.sel(null="untrained")
    ).all()
