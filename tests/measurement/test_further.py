"""Families that are measured where they are named: their resamples, on clouds of whole windows."""

import jax
import numpy as np
import pytest

from anisoscope.config.measure import DEFAULT, FURTHER
from anisoscope.measurement.families.entries import FAMILIES
from anisoscope.measurement.resamples import Cloud, Places, search

FOLDS, WINDOWS, TIME, WIDTH = 4, 8, 20, 10
GENERATOR = np.random.default_rng(0)
CLOUD = GENERATOR.normal(size=(WINDOWS * TIME, WIDTH)).astype(np.float32) * np.float32(0.8) ** np.arange(WIDTH)
APPROXIMATE = ("turning_angle_of_walk",)  # another draw
OF_CLOUD = [name for name in FURTHER if FAMILIES[name].of == "cloud"]


def measured(name, kept=slice(None), folds=1):
    family, place = FAMILIES[name], np.arange(WINDOWS * TIME)[kept]
    cloud = np.asarray(CLOUD[kept])

    def measure(points):
        places = Places(place // TIME, place % TIME)
        return family.measure(Cloud(points, folds, search(points, family.neighbours, folds), places))

    return jax.tree.map(np.asarray, jax.jit(measure)(cloud))


@pytest.mark.parametrize("name", OF_CLOUD)
def test_a_replicate_of_the_jackknife_is_the_value_without_its_fold(name):
    share = len(CLOUD) // FOLDS
    found, without = measured(name, folds=FOLDS), measured(name, slice(share, None))
    for quantity, about in FAMILIES[name].quantities.items():
        if about.resampling == "jackknife" and quantity not in APPROXIMATE:
            np.testing.assert_allclose(found[quantity][..., 1], without[quantity][..., 0], rtol=1e-3, err_msg=quantity)
            np.testing.assert_allclose(
                found[quantity][..., 0], measured(name)[quantity][..., 0], rtol=1e-4, err_msg=quantity
            )


def test_the_default_panel_has_none_of_them():
    assert not set(DEFAULT) & set(FURTHER)
    assert {*DEFAULT, *FURTHER} == set(FAMILIES)
