"""Families that are measured where they are named: their resamples, on clouds of whole windows."""

import functools

import jax
import numpy as np
import pytest

from anisoscope.config.measure_config import OPTIONAL_FAMILIES
from anisoscope.engine.sizes import lay_out
from anisoscope.metrics import attention, dimension, outliers, scale
from anisoscope.metrics.attention import Heads
from anisoscope.metrics.registry import FAMILIES
from anisoscope.metrics.resampling import Cloud, TokenPositions, search
from anisoscope.sources.folds import cut_runs

FOLDS, WINDOWS, TIME, WIDTH = 4, 8, 20, 10
GENERATOR = np.random.default_rng(0)
CLOUD = GENERATOR.normal(size=(WINDOWS * TIME, WIDTH)).astype(np.float32) * np.float32(
    0.8
) ** np.arange(WIDTH)


def equal_labels(folds, points):
    labels = lay_out(cut_runs(np.arange(points), folds), None, exact=True).labels
    return jax.tree.map(jax.numpy.asarray, labels)


WHOLE = equal_labels(1, WINDOWS * TIME)
# Another draw; the median of the whole; the eigenvalues to first order.
APPROXIMATE = (
    "curvature_random_walk",
    "long_points",
    "marchenko_pastur_rank",
    "gavish_donoho_rank",
)
JACKKNIFE = {
    family: own
    for family in OPTIONAL_FAMILIES
    if FAMILIES[family].kind == "cloud"
    and (
        own := [
            name
            for name, about in FAMILIES[family].quantities.items()
            if about.resampling == "jackknife" and name not in APPROXIMATE
        ]
    )
}


def measured(name, kept=slice(None), folds=1):
    family, place = FAMILIES[name], np.arange(WINDOWS * TIME)[kept]
    cloud = np.asarray(CLOUD[kept])

    def measure(points):
        places = TokenPositions(place // TIME, place % TIME)
        labels = equal_labels(folds, len(points))
        searched = search(points, family.neighbors, labels)
        constants = family.constants and family.constants(*points.shape, *[len(points)] * 2)
        return family.compute(Cloud(points, labels, places, searched, None, constants))

    return jax.tree.map(np.asarray, jax.jit(measure)(cloud))


@pytest.mark.parametrize("name", JACKKNIFE)
def test_a_replicate_of_the_jackknife_is_the_value_without_its_fold(name):
    share = len(CLOUD) // FOLDS
    found, whole = measured(name, folds=FOLDS), measured(name)
    without = measured(name, slice(share, None))
    for quantity in JACKKNIFE[name]:
        for replicate, expected, rtol in ((0, whole, 1e-4), (1, without, 1e-3)):
            np.testing.assert_allclose(
                found[quantity][..., replicate],
                expected[quantity][..., 0],
                rtol=rtol,
                err_msg=quantity,
            )


def test_sinks_and_massive_activations_are_counted_above_each_threshold():
    generator = np.random.default_rng(1)
    # blocks, windows, T, heads, K
    q, k = generator.normal(size=(2, 2, 3, TIME, 4, 5)).astype(np.float32)
    k[:, :, 0] += 2 * q.mean(axis=2)
    heads = Heads(q, k, np.arange(3 * TIME), np.tril(np.ones((TIME, TIME), bool)))
    rates, first = jax.jit(
        lambda heads: [
            FAMILIES[name].compute(heads, np.ones((1, 3))) for name in ("sinks", "attention")
        ]
    )(heads)
    for number, threshold in enumerate(attention.SINK_THRESHOLDS):
        for name, of in attention.SINK_WEIGHTS.items():
            np.testing.assert_allclose(
                rates[name][:, number], (np.asarray(first[of]) > threshold).mean(axis=1)
            )
    assert 0 < rates["sink_rate_anywhere"][..., 0].mean() < 1

    cloud = CLOUD.copy()
    cloud[:3, 4] += np.float32([50, 500, 5000])
    found = jax.jit(lambda points: outliers.measure_massive(Cloud(points, WHOLE, None)))(cloud)
    x = np.sort(np.abs(cloud.astype(np.float64)), axis=1)
    norm = np.linalg.norm(x, axis=1)
    for number, ratio in enumerate(outliers.RATIOS):
        above = x[:, -1] > ratio * x[:, (WIDTH - 1) // 2]
        np.testing.assert_allclose(found["massive_points"][number], above.mean(), rtol=1e-6)
        np.testing.assert_allclose(
            found["long_points"][number], (norm > ratio * np.median(norm)).mean(), rtol=1e-6
        )
    assert float(found["long_points"][3, 0]) > 0
    cloud[7, 7] = np.nan
    assert np.isnan(outliers.measure_massive(Cloud(cloud, WHOLE, None))["long_points"]).all()


DIMENSIONS = (
    "twonn",
    "twonn_mle",
    "twonn_bayes",
    "gride",
    "levina_bickel",
    "local_dimension",
    "decimation",
)


@functools.partial(jax.jit, static_argnums=1)
def dimensions(cloud_PD, folds):
    labels = equal_labels(folds, len(cloud_PD))
    count = scale.SCALE.neighbors
    unknown = TokenPositions(*[np.full(len(cloud_PD), -1)] * 2)
    cloud = Cloud(cloud_PD, labels, unknown, search(cloud_PD, count, labels))
    return dimension.measure_dimension(cloud) | scale.measure_scale(cloud)


def copied(points, distinct):
    """Copy every point equally often, as nearly as possible, in random order."""
    generator = np.random.default_rng(distinct)
    words = generator.normal(size=(distinct, 6)).astype(np.float32)
    return words[generator.permutation(np.arange(points) % distinct)]


@pytest.mark.slow
def test_a_dimension_of_few_distinct_points_is_none():
    """Half of a small cloud; of the whole cloud, whatever its sections hold."""
    points, least = 96, 48
    few, enough = (dimensions(copied(points, distinct), 4) for distinct in (least - 1, least))
    for name in DIMENSIONS:
        assert np.isnan(few[name]).all(), name
        assert np.isfinite(np.asarray(enough[name]).reshape(-1)[0]), name
    assert np.isfinite(enough["twonn"]).all()  # sections too, where fewer are distinct
    assert few["duplicate_points"] == points - least + 1
    assert np.isnan(few["twonn_microscope"]).all() == np.isnan(enough["twonn_microscope"]).all()
