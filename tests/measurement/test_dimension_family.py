import functools

import jax
import numpy as np
import pytest

from anisoscope.measurement.families import dimension_family
from anisoscope.measurement.resampling import Cloud, search

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
def measured(cloud_PD, folds):
    cloud = Cloud(
        cloud_PD, folds, search(cloud_PD, dimension_family.FAMILIES["scale"].neighbors, folds)
    )
    return dimension_family.measure_dimension(cloud) | dimension_family.measure_scale(cloud)


def cloud(points, distinct):
    """Copies of the same number each, as near as can be, in random order."""
    generator = np.random.default_rng(distinct)
    words = generator.normal(size=(distinct, 6)).astype(np.float32)
    return words[generator.permutation(np.arange(points) % distinct)]


@pytest.mark.slow
@pytest.mark.parametrize(("points", "least"), [(256, 64), (96, 48)])
def test_a_dimension_of_few_distinct_points_is_none(points, least):
    """64, or half of a cloud that is small by choice; of the whole cloud, whatever its sections
    hold.
    """
    few, enough = (measured(cloud(points, distinct), 4) for distinct in (least - 1, least))
    for name in DIMENSIONS:
        assert np.isnan(few[name]).all(), name
        assert np.isfinite(np.asarray(enough[name]).reshape(-1)[0]), name
    assert np.isfinite(enough["twonn"]).all()  # sections too, where fewer are distinct
    assert few["duplicate_points"] == points - least + 1
    assert np.isnan(few["twonn_microscope"]).all() == np.isnan(enough["twonn_microscope"]).all()
