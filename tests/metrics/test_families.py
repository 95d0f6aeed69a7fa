"""What every family says of itself, and that no value changes while its version stays."""

import json
import pathlib
import textwrap

import jax
import numpy as np
import pytest

from anisoscope.config.measure_config import FAMILY_NAMES, NULLS, MeasureConfig
from anisoscope.engine.intervals import RESAMPLINGS
from anisoscope.metrics.logit_lens import build_unembedding
from anisoscope.metrics.quantity import MEASURED
from anisoscope.metrics.registry import (
    FAMILIES,
    coordinates,
    null_models_for,
    quantities,
)
from anisoscope.metrics.resampling import Types
from anisoscope.sources.activations import BatchActivations, measure_batch

# written by `python -m tests.metrics.test_families`
PINNED = pathlib.Path(__file__).with_name("pinned.json")
WINDOWS, TIME, WIDTH = 8, 16, 12


def values_on_fixed_clouds() -> dict[str, dict]:
    """{quantity: its version, its value on the whole of a fixed cloud, and of its first resample}.

    The cloud has what trips an estimator: a drift, a large coordinate, copies, points of one window
        alike.
    """
    generator = np.random.default_rng(0)
    shape = (2, WINDOWS, TIME, WIDTH)
    cloud = generator.normal(size=shape) * 0.8 ** np.arange(WIDTH) + 0.3 * generator.normal(
        size=(2, WINDOWS, 1, WIDTH)
    )
    cloud[..., 0] = 5 * cloud[..., 0] + 3
    cloud[:, :, -1] = cloud[:, :, -2]
    resid = np.float32(cloud)
    q, k = generator.normal(size=(2, 1, WINDOWS, TIME, 2, 4)) + 0.5
    visible = np.tril(np.ones((TIME, TIME), bool))
    families = FAMILY_NAMES
    settings = MeasureConfig(points=WINDOWS * TIME, batches=1, folds=4, families=families, nulls=())
    picks = np.arange(WINDOWS * TIME)
    letters = generator.choice(6, picks.size, p=(0.3, 0.25, 0.2, 0.15, 0.06, 0.04))
    types = Types(
        np.stack([letters, letters // 2, picks]),
        np.float32([-letters, -letters // 2, -picks]),
        letters % 4,
    )
    how = build_unembedding(np.float32(generator.normal(size=(WIDTH, 6))), "layer")
    read = BatchActivations(
        *(np.float32(x)[None] for x in (resid, q, k)),
        how,
        letters.reshape(1, WINDOWS, TIME),
        types_Z=jax.tree.map(lambda x: x[None], types),
    )
    last = resid.reshape(2, -1, WIDTH)[::-1].reshape(resid.shape)
    others = {"previous": resid + np.float32(0.1), "last": last}
    found = measure_batch(0, read, others, picks[None], visible[None], settings)[MEASURED]
    return {
        name: pinned(found[name][0, 0], bool(quantity.resampling))
        for name, quantity in quantities().items()
    }


def pinned(values: np.ndarray, resampled: bool) -> list[float]:
    kept = values[..., :2] if resampled else values
    return [float(f"{value:.6g}") for value in np.asarray(kept, np.float64).ravel()]


@pytest.fixture(scope="module")
def found():
    return values_on_fixed_clouds()


def test_no_value_changes_unseen(found):
    written = json.loads(PINNED.read_text())
    assert found.keys() == written.keys(), (
        "quantities came or went: python -m tests.metrics.test_families"
    )
    for name, now in found.items():
        np.testing.assert_allclose(
            now,
            written[name],
            rtol=2e-4,
            atol=1e-6,
            err_msg=f"{name}: raise SCHEMA, and pin the new values",
        )


def test_every_value_lies_in_its_range(found):
    """To rounding: resamples may leave it, and so may an interval before it is cut."""
    for name, now in found.items():
        values = np.array(now)[:: 1 + bool(quantities()[name].resampling)]
        least, most = quantities()[name].range
        inside = (values >= least - 1e-6) & (values <= most + 1e-6)
        assert (inside | np.isnan(values)).all(), name
        assert np.isfinite(values).any(), name


def test_settings_name_every_family_in_the_order_of_tables():
    assert tuple(FAMILIES) == FAMILY_NAMES


def test_every_quantity_says_what_it_is():
    for name, quantity in quantities().items():
        assert quantity.resampling in ("", *RESAMPLINGS), name
        assert all((quantity.long_name, quantity.units, quantity.formula, quantity.source)), name
        assert quantity.range[0] < quantity.range[1], name
        assert (quantity.units == "activation") == bool(quantity.symbol), name
        assert set(quantity.dims) <= {"layer", "other_layer", "block", "head", *coordinates()}, name
        assert set(null_models_for(name)) <= set(NULLS)
        assert len(set(null_models_for(name))) == len(null_models_for(name))
        assert not quantity.nulls or all(null in quantity.null_words for null in quantity.nulls)
    names = [name for family in FAMILIES.values() for name in family.quantities]
    assert len(names) == len(set(names))
    labels = [dim for family in FAMILIES.values() for dim in family.coordinates]
    assert len(labels) == len(set(labels)) == len(coordinates())


if __name__ == "__main__":
    rows = [
        f" {json.dumps(name)}: {json.dumps(one)}" for name, one in values_on_fixed_clouds().items()
    ]
    rows = [textwrap.fill(row, 119, subsequent_indent="  ", break_on_hyphens=False) for row in rows]
    PINNED.write_text("{\n" + ",\n".join(rows) + "\n}\n")
