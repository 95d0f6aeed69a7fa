"""At which context gain a contrast is read, by which runs, and what the table says where there is
nothing to read.
"""

import numpy as np
import pytest

from anisoscope.analysis import loss_matched, on_disk, run_summaries
from anisoscope.analysis.shapes import shapes
from tests.analysis.run_tables import made, sinks


def lines(*gains, every=10):
    return [
        {"step": every * i, "kind": "valid", "context_gain": gain} for i, gain in enumerate(gains)
    ]


def test_the_best_gain_is_that_of_the_constant_part():
    log = [*lines(-3.0, 0.5, 1.5, 1.25, 2.5), {"step": 20, "kind": "train", "context_gain": 9.0}]
    assert loss_matched.best_gain(log, 10, 30) == 1.5
    assert loss_matched.best_gain(log, 1, 9) is None
    assert loss_matched.best_gain([{"step": 10, "kind": "valid"}], 0, 30) is None  # a log of old
    assert loss_matched.bracket(log, 1.5) == (10, 20)
    assert loss_matched.bracket(log, 1.4) == (10, 20)
    assert loss_matched.bracket(log, -4.0) == (0, 0)


def joined(tables):
    return run_summaries.join(tables, {name: {} for name in tables})


def crossed(tables):
    """Up to the step at which each has a level of 2 bits."""
    return {
        (name, 2.0): table.sel(step=slice(None, 1 if "sink" in name else 10))
        for name, table in tables.items()
    }


@pytest.fixture(scope="module")
def tables():
    return sinks((0, 1, 2))


def test_the_level_is_what_all_runs_reach_that_learn_anything(tables):
    best = dict(zip(tables, (2.0, 1.5, 2.5, 1.75, -0.5, None), strict=True))
    (one,) = loss_matched.plan(joined(tables), best)
    assert one.level == 1.5
    assert one.about == {"setting": "model.sink", "before": "no sink", "after": "sink", "held": ""}
    assert one.without == {
        "sink_1": "it never gains anything",
        "sink_2": "its log has no context gain",
    }
    assert one.runs == ["plain_0", "plain_1", "plain_2", "sink_0"]


def test_a_matched_pair_is_one_contrast_whatever_differs():
    pair = {"decoder": made(0), "encoder": made(0, causal=False)}
    (one,) = loss_matched.plan(joined(pair), {"decoder": 2.0, "encoder": 1.0})
    assert one.about["setting"] == "model.mask, objective"
    assert (one.about["before"], one.about["after"]) == ("causal, next", "bidirectional, masked")
    texts = {"one": made(0), "other": made(0, corpus="other")}
    assert loss_matched.plan(joined(texts), {"one": 2.0, "other": 1.0}) == []


@pytest.mark.parametrize("missing", ["sink_0"])
def test_a_run_without_value_does_not_turn_the_contrast_round(tables, tmp_path, missing):
    """Runs come seed by seed, as in the ablation suites; the sign is that of after less before."""
    by_seed = {name: tables[name] for name in sorted(tables, key=lambda name: name[-1])}
    planned, cut = (
        loss_matched.plan(joined(by_seed), dict.fromkeys(by_seed, 2.0) | {missing: 0.0}),
        crossed(by_seed),
    )
    on_disk.write_loss_matched(planned, cut, {}, tmp_path, joined(by_seed), {})
    found = on_disk.read_loss_matched(tmp_path, {}).set_index("quantity")
    row = found.loc["steps_to_context_gain"]
    assert (row.before, row.after, row.pairs) == ("no sink", "sink", 2)
    assert row.change == pytest.approx(-9)


def test_each_run_is_read_where_it_crosses_and_who_never_does_has_an_empty_row(tables, tmp_path):
    best = dict.fromkeys(tables, 2.0) | {"plain_2": 0.0}
    planned = loss_matched.plan(joined(tables), best)
    cut = crossed({name: table for name, table in tables.items() if name != "plain_2"})
    paths = on_disk.write_loss_matched(planned, cut, {}, tmp_path, joined(tables), {})
    assert [path.name for path in paths] == ["contrasts_loss_matched.csv", "loss_matched.csv"]
    found = on_disk.read_loss_matched(tmp_path, {})
    assert set(found.level) == {2.0}
    assert set(found.without) == {"plain_2"}
    bell = found[(found.quantity == "middle_less_ends") & (found.positions == "all")].iloc[0]
    each = {
        name: shapes(table).middle_less_ends.sel(positions="all").item()
        for (name, _), table in cut.items()
    }
    pairs = [each[f"sink_{seed}"] - each[f"plain_{seed}"] for seed in (0, 1)]
    assert bell.change == pytest.approx(np.mean(pairs))
    steps = found[found.quantity == "steps_to_context_gain"].iloc[0]
    assert steps.change == pytest.approx(-9)
    rows = on_disk.pd.read_csv(paths[1]).set_index("run")
    assert rows.loc["plain_2", "why_not"] == "it never gains anything"
    assert np.isnan(rows.loc["plain_2", "middle_less_ends"])
    assert rows.loc["sink_1", "steps_to_context_gain"] == 1
    nobody = loss_matched.plan(joined(tables), dict.fromkeys(tables, 0.0))
    on_disk.write_loss_matched(nobody, {}, {}, tmp_path, joined(tables), {})
    (left,) = on_disk.read_loss_matched(tmp_path, {}).itertuples()
    assert np.isnan([left.change, left.level]).all()
    assert left.without.count("_") == 6
