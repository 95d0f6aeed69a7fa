"""The family of outliers: what is left without the top coordinates, whatever way it is computed."""

import jax
import numpy as np
import pytest

from anisoscope.measurement.families import outliers
from anisoscope.measurement.resamples import Cloud
from tests.metrics.clouds import gaussian


@pytest.mark.slow
def test_spectra_one_after_another_are_those_of_all_at_once(monkeypatch):
    cloud = gaussian(64, 24) * np.arange(1, 25, dtype=np.float32)
    at_once = jax.jit(lambda cloud_PD: outliers.measure(Cloud(cloud_PD, 4, None)))(cloud)
    monkeypatch.setattr(outliers, "LARGE", 24)
    in_turn = jax.jit(lambda cloud_PD: outliers.measure(Cloud(cloud_PD, 4, None)))
    for name, values in in_turn(cloud).items():
        np.testing.assert_allclose(values, at_once[name], rtol=1e-5, err_msg=name)
    cloud[3, 1] = np.nan  # of which no comparison holds
    assert np.isnan(in_turn(cloud)["anisotropy_left_out"]).all()
