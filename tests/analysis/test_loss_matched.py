"""At which gain over unigram a contrast is read, by which runs, and what the table says where there is
nothing to read.
"""

import numpy as np
import pandas as pd
import pytest

from anisoscope.analysis import loss_matched, on_disk, run_summaries
from anisoscope.analysis.loss_matched import Matched
from anisoscope.analysis.shapes import shapes
from anisoscope.utils.settings import replace
from tests import tiny
from tests.analysis.synthetic_runs import made, sinks

STEPS = "steps_to_gain_over_unigram"


def test_the_best_gain_is_that_of_the_constant_part(capsys):
    gains = (-3.0, 0.5, 1.5, 1.25, 2.5)
    log = [{"step": 10 * i, "kind": "valid", "gain_over_unigram": x} for i, x in enumerate(gains)]
    log.append({"step": 20, "kind": "train", "gain_over_unigram": 9.0})
    bare = [{"step": 10, "kind": "valid"}]
    config = tiny.config(steps=40, schedule="constant", warmup_fraction=0.25, decay_fraction=0.25)
    found = loss_matched.best_gains({"a": config, "b": config}, {"a": log, "b": bare})
    assert found == {"a": 1.5, "b": None}
    config = tiny.config(steps=40, schedule="cosine", warmup_fraction=0.25)
    assert loss_matched.best_gains({"a": config}, {"a": log}) == {"a": 2.5}
    assert "no constant part (a)" in capsys.readouterr().out
    found = [loss_matched.bracket(log, level) for level in (1.5, 1.4, -4.0)]
    assert found == [(10, 20), (10, 20), (0, 0)]


def plan(tables, best):
    joined = run_summaries.join_runs(tables, {name: {} for name in tables})
    return loss_matched.plan(joined, best)


def write(tables, best, folder):
    """Loss-matched contrasts of runs that have 2 bits at step 1 with a sink, else at step 10."""
    joined, planned = (
        run_summaries.join_runs(tables, {name: {} for name in tables}),
        plan(tables, best),
    )
    cut = {
        (name, 2.0): tables[name].sel(step=slice(None, 1 if "sink" in name else 10))
        for matched in planned
        for name in matched.runs
    }
    paths = loss_matched.write_loss_matched(planned, cut, {}, folder, joined, {})
    assert [path.name for path in paths] == ["contrasts_loss_matched.csv", "loss_matched.csv"]
    return cut, on_disk.read_loss_matched(folder, {})


@pytest.fixture(scope="module")
def tables():
    return sinks((0, 1, 2))


def test_runs_whose_scores_are_of_other_characters_are_not_compared(capsys):
    masks = {"causal": {}, "window": {"model.mask": "window", "model.window": 2}}
    masks["prefix"] = {"model.mask": "prefix", "model.prefix": 4}
    configs = {name: replace(tiny.config(), changes) for name, changes in masks.items()}
    found = {}
    for after in ("window", "prefix"):
        about = {"before": "causal", "after": after}
        found[after] = loss_matched.scores_agree(
            Matched(about, 1.0, ["causal", after], {}), configs
        )
    assert found == {"window": True, "prefix": False}
    assert "not causal → prefix" in capsys.readouterr().out


def test_the_level_is_what_all_runs_reach_that_learn_anything(tables):
    (one,) = plan(tables, dict(zip(tables, (2.0, 1.5, 2.5, 1.75, -0.5, None), strict=True)))
    assert one.level == 1.5
    assert one.about == {"setting": "model.sink", "before": "no sink", "after": "sink", "held": ""}
    assert "never gains" in one.without["sink_1"]
    assert "no gain over unigram" in one.without["sink_2"]
    assert one.runs == ["plain_0", "plain_1", "plain_2", "sink_0"]


def test_a_matched_pair_is_one_contrast_whatever_differs():
    pair = {"decoder": made(0), "encoder": made(0, causal=False)}
    (one,) = plan(pair, {"decoder": 2.0, "encoder": 1.0})
    assert one.about["setting"] == "model.mask, objective"
    assert (one.about["before"], one.about["after"]) == ("causal, next", "bidirectional, masked")
    assert (
        plan({"one": made(0), "other": made(0, corpus="other")}, {"one": 2.0, "other": 1.0}) == []
    )


def test_a_run_without_value_does_not_turn_the_contrast_round(tables, tmp_path):
    """Runs come seed by seed, as in the ablation suites; the sign is that of after less before."""
    by_seed = {name: tables[name] for name in sorted(tables, key=lambda name: name[-1])}
    _, found = write(by_seed, dict.fromkeys(by_seed, 2.0) | {"sink_0": 0.0}, tmp_path)
    row = found.set_index("quantity").loc[STEPS]
    assert (row.before, row.after, row.pairs) == ("no sink", "sink", 2)
    assert row.change == pytest.approx(-9)


def test_each_run_is_read_where_it_crosses_and_a_run_without_value_has_an_empty_row(
    tables, tmp_path
):
    cut, found = write(tables, dict.fromkeys(tables, 2.0) | {"plain_2": 0.0}, tmp_path)
    assert set(found.level) == {2.0}
    assert set(found.without) == {"plain_2"}
    found = found[found.positions == "all"].set_index("quantity")
    each = {name: shapes(table).middle_minus_ends[0].item() for (name, _), table in cut.items()}
    pairs = [each[f"sink_{seed}"] - each[f"plain_{seed}"] for seed in (0, 1)]
    assert found.change["middle_minus_ends"] == pytest.approx(np.mean(pairs))
    assert found.change[STEPS] == pytest.approx(-9)
    rows = pd.read_csv(tmp_path / "loss_matched.csv").set_index("run")
    assert "never gains" in rows.loc["plain_2", "why_not"]
    assert np.isnan(rows.loc["plain_2", "middle_minus_ends"])
    assert rows.loc["sink_1", STEPS] == 1
