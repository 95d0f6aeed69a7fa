"""A user-defined function is measured as a built-in quantity is: value, interval, excess."""

import jax
import numpy as np
import pytest
import xarray as xr

import anisoscope
from anisoscope.sources.array_chunks import cloud_keys
from tests import reference
from tests.sources.array_clouds import CLOUDS, UNEQUAL_P, measured

pytestmark = pytest.mark.filterwarnings("ignore:clusters. 12 of 1 to 31 points:UserWarning")
QUICK = {"families": "similarity", "nulls": ()}


def share(cloud):
    """Share of the largest eigenvalue."""
    values = np.linalg.svd(cloud - cloud.mean(axis=0), compute_uv=False) ** 2
    return values.max() / values.sum()


def mean_norm(cloud):
    """Mean norm."""
    return np.linalg.norm(cloud, axis=1).mean()


@pytest.mark.parametrize("options", [{"clusters": UNEQUAL_P, "num_chunks": n} for n in (1, 2)])
def test_a_known_quantity_has_the_interval_that_its_family_gives(options):
    table = anisoscope.measure([*CLOUDS], metrics={"own": mean_norm}, **QUICK, seed=5, **options)
    np.testing.assert_allclose(table.own, table.mean_norm, rtol=2e-4, atol=1e-6)
    assert table.own.dims == table.mean_norm.dims
    assert table.own.attrs["formula"] == "Mean norm."


def test_the_key_of_a_null_model_depends_on_every_row_of_its_cloud_and_not_on_its_place():
    clouds = np.tile(CLOUDS[:1], (3, 1, 1))
    clouds[1, -1] += 1
    first, other, again = np.asarray(jax.random.key_data(cloud_keys(clouds, 0))).tolist()
    assert first == again != other


def centered_norm(cloud):
    """Norm of the mean, of a cloud that it centers in place."""
    norm = np.linalg.norm(cloud.mean(axis=0))
    cloud -= cloud.mean(axis=0)
    return norm


def test_a_metric_that_works_in_place_changes_no_other():
    metrics = {"first": centered_norm, "second": centered_norm}
    table = anisoscope.measure([*CLOUDS], metrics=metrics, families="similarity")
    means = (table[name].sel(statistic="mean") for name in ("first", "drift"))
    np.testing.assert_allclose(*means, rtol=2e-4)
    xr.testing.assert_equal(table.first, table.second.rename("first"))


def test_the_excess_is_over_gaussian_clouds_of_the_same_spectrum():
    metrics = {"own": share, "twonn_again": reference.twonn}
    table = measured([*CLOUDS], metrics=metrics, seed=5)
    excess = table.own_excess.sel(null="gaussian", statistic="mean")
    np.testing.assert_allclose(excess, 0, atol=1e-4)  # which the spectrum alone decides
    assert table.own_excess.sel(null="isotropic").isnull().all()
    both = (table[f"{name}_excess"].sel(null="gaussian") for name in ("twonn", "twonn_again"))
    (low, high), (own_low, own_high) = (
        x.sel(statistic=["low", "high"]).transpose("statistic", ...) for x in both
    )
    assert ((own_low < high) & (low < own_high)).all()
    alone = measured([*CLOUDS], metrics=metrics, families="similarity", seed=5)
    assert alone.null.values.tolist() == ["flipped", "gaussian"]
    np.testing.assert_allclose(
        alone.own_excess.sel(null="gaussian"),
        table.own_excess.sel(null="gaussian"),
        rtol=1e-5,
        atol=1e-6,
    )
    assert alone.mean_cosine_excess.sel(null="flipped", statistic="mean").notnull().all()


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ({"twonn": share}, "is a quantity of families="),
        ({"a b": share}, "is not a valid name"),
        ({"own": 3}, "metrics is {'own': 3}; pass your own functions"),
        ({"layer": share}, "'layer' names an axis of the table; choose another name"),
        ({"depth": share}, "'depth' names an axis of the table"),
        ({"own": lambda cloud: cloud.mean(axis=0)}, "return one number"),
        ({"own": lambda cloud: 1 + 2j}, "'own' returned a complex; return one real number"),
        ({"own": lambda cloud: None}, "'own' returned a NoneType; return one real number"),
        ({"own": lambda cloud: 1 // 0}, r"'own' raised ZeroDivisionError.*shape \(96, 6\)"),
    ],
)
def test_what_cannot_be_measured_is_one_line(metrics, words):
    with pytest.raises(ValueError, match=words):
        anisoscope.measure([*CLOUDS], metrics=metrics, **QUICK)
