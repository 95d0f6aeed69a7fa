"""What is said in words is what stands in the tables, and nothing else."""

import pytest

from anisoscope.analysis.findings import sentences
from tests.plot.tables import make_run, shapes_at

OTHERS = tuple({*shapes_at(0, 2, True), "projection"} - {"anisotropy", "twonn"})
SMALL = {"steps": (0, 1000), "heads": 1, "batches": 2, "folds": 2, "without": OTHERS}


@pytest.fixture(scope="module")
def decoder():
    return make_run(**SMALL, nulls=("gaussian",))


def test_sentences_have_the_numbers_of_the_tables(decoder):
    table = decoder.results
    lines = list(sentences({"decoder": table}, {"decoder": {"test_bits": 2.5}}))
    assert len(lines) == 5
    assert "decoder 2.50" in lines[0]
    for line, positions in zip(lines[1:3], ("all", "without_first_token"), strict=True):
        last = table.anisotropy.isel(step=-1).sel(positions=positions)
        mean, low, high = (last.sel(statistic=end).values for end in ("mean", "low", "high"))
        top = mean.argmax()
        assert (
            f"layer {top}, {mean[top]:.2f} (95 % interval {low[top]:.2f} to {high[top]:.2f})"
            in line
        )
        others = [str(n) for n in range(len(mean)) if n != top and high[n] >= low[top]]
        assert line.partition("overlapping layers ")[2] == ", ".join(others)
    last = table.sel(positions="all", statistic="mean", null="gaussian").isel(step=-1, layer=-1)
    assert f"{last.twonn:.1f} (" in lines[3]
    assert f"against {last.twonn - last.twonn_excess:.1f} of a Gaussian cloud" in lines[3]


def test_of_many_runs_the_lowest_and_the_highest_are_named(decoder):
    runs = {f"run_{i}": decoder.results * (1 + i) for i in range(3)}
    for table in runs.values():
        table.attrs = decoder.results.attrs
    bits = {name: {"test_bits": 2.0 + i} for i, name in enumerate(runs)}
    lines = list(sentences(runs, bits))
    assert len(lines) == 3
    assert "from 2.00 (run_0) to 4.00 (run_2) over 3 runs" in lines[0]
    assert "(run_0) to " in lines[1]
