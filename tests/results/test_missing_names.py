"""A name that a table lacks is an error with the reason, in one line."""

import pickle

import numpy as np
import pytest

import anisoscope
from anisoscope.metrics.registry import quantities
from anisoscope.results.missing_names import Table, missing_reason

CLOUD = np.random.default_rng(0).standard_normal((3, 64, 8)).astype(np.float32)
LAYERS, CLUSTERS = list(CLOUD), np.arange(64) // 4


@pytest.fixture(scope="module")
def table():
    return anisoscope.measure(LAYERS, CLUSTERS, families="spectrum", nulls=())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mean_cosine", "it was measured with spectrum; the family similarity has it$"),
        ("twonn_excess", "the family dimension has it$"),
        ("rsa", "the family alignment has it$"),
        ("rankme", "it has effective_rank and rankme_centered$"),
        ("anisotropi", "it has anisotropy$"),
        ("intrinsic_dimension", "the family dimension has it$"),
        ("anisotropy_excess", r"none of the null models of anisotropy was asked for \(shuffled or"),
        ("anisotropy_over_blocks", "averages are in tables of whole models"),
    ],
)
def test_the_reason_is_in_the_error(table, name, words):
    for lacking in (table, table.sel(statistic="mean"), pickle.loads(pickle.dumps(table))):
        with pytest.raises(AttributeError, match=f"^this table has no .*{words}") as error:
            getattr(lacking, name)
        assert len(str(error.value).splitlines()) == 1
        with pytest.raises(KeyError, match=words.removesuffix("$")):
            lacking[name]


def test_what_nobody_knows_is_left_to_xarray(table):
    for name in ("zebra", "_repr_png_"):
        assert not hasattr(table, name)
        with pytest.raises(AttributeError, match="object has no attribute"):
            getattr(table, name)
    with pytest.raises(KeyError, match="zebra"):
        table["zebra"]
    assert table["anisotropy"].identical(table.anisotropy)


def test_every_quantity_has_a_reason(table):
    absent = [name for name in quantities() if name not in table]
    assert all(missing_reason(name, table) for name in absent)


def test_other_tables_say_it_too(table):
    tables = {
        "compare": anisoscope.compare(LAYERS[0], LAYERS[1], CLUSTERS),
        "queries and keys": anisoscope.measure_attention(
            *np.zeros((2, 1, 2, 8, 8, 4), np.float32), mask="causal"
        ),
    }
    for name, other in tables.items():
        assert isinstance(other, Table), name
        with pytest.raises(AttributeError, match="the family spectrum has it"):
            other.anisotropy  # noqa: B018
