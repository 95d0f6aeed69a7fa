"""What is said in words is what stands in the tables, and nothing else."""

import re

import numpy as np
import pytest
import xarray as xr

from anisoscope.analysis.findings import _places, sentences
from tests.plot.tables import changed, lacking, make_run, shapes_at, spoiled

OTHERS = tuple({*shapes_at(0, 2, True), "projection"} - {"anisotropy", "twonn"})
SMALL = {
    "steps": (0, 1000),
    "heads": 1,
    "batches": 2,
    "folds": 2,
    "nulls": ("gaussian",),
    "without": OTHERS,
}


@pytest.fixture(scope="module")
def tables():
    return {
        "decoder": make_run(**SMALL).results,
        "encoder": make_run(False, layers=3, **SMALL).results,
    }


def bits(tables, value=2.5):
    return {name: {"test_bits": value, "valid_bits": 3.0} for name in tables}


def value(table, name, layer, positions="all", statistic="mean"):
    return (
        table[name].isel(step=-1, layer=layer).sel(positions=positions, statistic=statistic).values
    )


def test_two_runs_have_a_sentence_each_for_anisotropy_and_dimension(tables):
    lines = list(sentences(tables, bits(tables)))
    assert len(lines) == 5
    assert lines[0] == (
        "bits per character on the test split: decoder 2.50 (predicting next character); "
        "encoder 2.50 (predicting masked characters)"
    )
    for line, name in zip(lines[1:3], tables, strict=True):
        table = tables[name]
        for said, positions in zip(line.split("; "), ("all", "without_first"), strict=True):
            mean, low, high = value(
                table, "anisotropy", slice(None), positions, ["mean", "low", "high"]
            )
            top = mean.argmax()
            assert (
                f"block {top}, {mean[top]:.2f} (95 % interval {low[top]:.2f} to {high[top]:.2f}"
                in said
            )
            above = [
                layer for layer in range(len(mean)) if layer != top and high[layer] >= low[top]
            ]
            alike = re.search(r"overlapping that of (.*)\)", said)
            assert (alike[1] if alike else "") == _places(table, above)
        assert line.startswith(f"{name}, step 1,000: anisotropy is highest at block ")
        assert re.search("all positions; .*without token 0 of each window$", line)
    for line, name in zip(lines[3:], tables, strict=True):
        mean = value(tables[name], "twonn", -1)
        excess = value(tables[name].sel(null="gaussian"), "twonn_excess", -1)
        assert line.startswith(
            f"{name}, step 1,000: dimension at the last layer (TwoNN) {mean:.1f} (95 % interval"
        )
        assert (
            f"against {mean - excess:.1f} of a Gaussian cloud with the same spectrum, all positions"
            in line
        )


def test_where_one_layer_has_no_value_none_is_the_highest(tables):
    table = tables["decoder"].copy(deep=True)
    table["anisotropy"] = table.anisotropy.where(table.layer != 1)
    lines = list(sentences({"decoder": table}, bits(["decoder"])))
    assert any(
        "anisotropy is highest at an unknown layer (block 1 without a value)" in line
        for line in lines
    )


def test_what_was_not_measured_is_not_said(tables):
    decoder = make_run(**SMALL)
    one = {"decoder": lacking(decoder, "twonn").results}
    assert len(list(sentences(one, bits(one, np.nan)))) == 1
    no_dimension = {"decoder": spoiled(decoder, layer=-1).results}
    lines = list(sentences(no_dimension, bits(no_dimension)))
    assert (
        "dimension at the last layer (TwoNN) not defined, all positions; not defined, without"
        in lines[-1]
    )
    copies = no_dimension["decoder"].assign(
        duplicate_points=xr.full_like(no_dimension["decoder"].anisotropy, 4090.0)
    )
    said = list(sentences({"d": copies}, bits(["d"])))[-1]
    assert "(TwoNN) not defined (4,090 vectors of a cloud are duplicates), all" in said
    no_interval = changed(
        decoder, lambda t: t.where(~t.statistic.isin(["low", "high"])) if "statistic" in t else t
    )
    assert (
        "(no interval)" in list(sentences({"decoder": no_interval.results}, bits(["decoder"])))[1]
    )
    no_null = make_run(**SMALL | {"nulls": ()})
    assert "Gaussian" not in " ".join(sentences({"decoder": no_null.results}, bits(["decoder"])))
    assert not list(
        sentences(
            {"decoder": lacking(decoder, "twonn", "anisotropy").results}, bits(["decoder"], np.nan)
        )
    )


def test_of_many_runs_the_lowest_and_the_highest_are_named(tables):
    many = {f"run_{i}": tables["decoder"] for i in range(3)} | {"encoder": tables["encoder"]}
    scores = bits(many) | {
        "run_1": {"test_bits": 2.0},
        "run_2": {"test_bits": 3.0},
        "encoder": {"test_bits": 1.0},
    }
    lines = list(sentences(many, scores))
    assert len(lines) == 3
    assert (
        "predicting next character, from 2.00 (run_1) to 3.00 (run_2) over 3 runs; encoder 1.00 (pred"
        in lines[0]
    )
    low, high = (
        value(tables[name], "anisotropy", slice(None)).max() for name in ("encoder", "decoder")
    )
    assert (
        f"over depth, step 1,000, all positions: from {low:.2f} (encoder) to {high:.2f} (run_0) over 4"
        in lines[1]
    )
    ends = sorted(value(table, "twonn", -1).item() for table in tables.values())
    assert all(
        f"{word} {end:.2f} (" in lines[2] for word, end in zip(("from", "to"), ends, strict=True)
    )
    for steps in ([0, 0], [0]):
        shorter = many | {"run_0": many["run_0"].isel(step=steps)}
        assert ", last step of each, all positions" in list(sentences(shorter, scores))[1]
    alone = {run: table.isel(step=[-1]) for run, table in many.items()}
    assert "over depth, all positions" in list(sentences(alone, scores))[1]
