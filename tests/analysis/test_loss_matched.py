"""At which gain over unigram a contrast is read, between which checkpoints, and by which runs."""

import json

import numpy as np
import pytest

from anisoscope.analysis import loss_matched, on_disk, run_summaries
from anisoscope.analysis.loss_matched import GAIN
from anisoscope.analysis.shapes import shapes
from anisoscope.config import variants
from anisoscope.results import joined_files
from tests import tiny
from tests.analysis.synthetic_runs import made, sinks

STEPS = "steps_to_gain_over_unigram"
NAN = float("nan")


def gaining(table, *gains, **train):
    """The table of a run that has these gains at its steps 0, 1 and 10, without a decay."""
    config = json.loads(table.attrs["config"])
    config["train"] |= {"schedule": "constant", "warmup_fraction": 0.0, "decay_fraction": 0.0}
    config["train"] |= {"steps": 10} | train
    return table.assign_attrs(config=json.dumps(config)).assign({GAIN: ("step", list(gains))})


def contrast(tables):
    joined = run_summaries.join_runs(tables, {name: {} for name in tables})
    return loss_matched.contrast_at_equal_gain(joined, tables)


@pytest.mark.parametrize(
    ("gains", "train", "best"),
    [
        ((-3.0, 2.5, 1.5), {}, 2.5),
        ((-3.0, 1.5, 2.5), {"decay_fraction": 0.5}, 1.5),  # the rate falls after step 5
        ((2.5, 1.5, 1.0), {"warmup_fraction": 0.1}, 1.5),  # and grows until step 1
        ((2.5, 1.5, 1.75), {"schedule": "cosine", "warmup_fraction": 0.1}, 1.75),
        ((NAN, NAN, NAN), {}, NAN),
    ],
)
def test_the_best_gain_is_that_of_the_constant_part(gains, train, best):
    changes = {"schedule": "constant", "warmup_fraction": 0.0, "decay_fraction": 0.0} | train
    config = tiny.config(steps=10, **changes)
    found = loss_matched.best_gain(gaining(made(), *gains), config)
    np.testing.assert_equal(found, best)
    assert np.isnan(loss_matched.best_gain(made().drop_vars(GAIN), config))


def test_each_run_is_read_between_the_checkpoints_on_both_sides_of_the_level():
    """The level is what every run reaches that learns anything; the others are named."""
    own = {"plain": [(0, 1, 4), (0, 2, 2), (0, -1, 0)], "sink": [(0, 2, 5), (-1, 0, 3), (0, 3, 3)]}
    tables = {
        name: gaining(table, *own[name[:-2]][int(name[-1])])
        for name, table in sinks((0, 1, 2)).items()
    }
    by_seed = {name: tables[name] for name in sorted(tables, key=lambda name: name[-1])}
    found = contrast(by_seed)
    assert {*found.level} == {2.0}
    assert {*found.without} == {"plain_2"}
    found = found[found.positions == "all"].set_index("quantity")
    row = found.loc[STEPS]
    assert (row.before, row.after, row.pairs) == ("no sink", "sink", 2)
    assert row.change == pytest.approx(((1 - (1 + 9 / 3)) + (1 + 9 * 2 / 3 - 1)) / 2)

    def between(name, share):
        ends = [shapes(tables[name].sel(step=slice(None, at))).growth[0].item() for at in (1, 10)]
        return ends[0] + share * (ends[1] - ends[0])

    changes = (
        between("sink_0", 0) - between("plain_0", 1 / 3),
        between("sink_1", 2 / 3) - between("plain_1", 0),
    )
    assert found.change["growth"] == pytest.approx(np.mean(changes))
    assert changes[0] != pytest.approx(between("sink_0", 0) - between("plain_0", 1), rel=0.01)


def test_two_conditions_are_one_contrast_whatever_differs_except_the_text():
    pair = {"decoder": made(0), "encoder": made(0, causal=False)}
    found = contrast({name: gaining(table, 0, 1, 2) for name, table in pair.items()})
    assert {*found.setting} == {"model.mask, objective"}
    assert (found.before[0], found.after[0]) == ("causal, next", "bidirectional, masked")
    texts = {"one": made(0), "other": made(0, corpus="other")}
    assert contrast({name: gaining(table, 0, 1, 2) for name, table in texts.items()}).empty
    bare = {name: table.drop_vars(GAIN) for name, table in pair.items()}
    assert contrast(bare).empty  # nothing was scored


def test_runs_whose_scores_are_of_other_characters_are_not_compared(capsys):
    masks = {
        "causal": {},
        "window": {"model__mask": "window", "model__window": 2},
        "prefix": {"model__mask": "prefix", "model__prefix": 4},
    }
    tables = {name: gaining(made(**changes), 0, 1, 2) for name, changes in masks.items()}
    assert {*contrast(tables).after} == {"window 2"}
    assert "not causal → prefix" in capsys.readouterr().out


def test_a_primary_contrast_is_read_at_equal_gain(tmp_path):
    """From the runs' tables to contrasts_loss_matched.csv and primary.csv."""
    folders = {}
    for name, table in sinks((0, 1)).items():
        folders[name] = tmp_path / name
        joined_files.write_table(gaining(table, 0, 1, 3), folders[name] / "results.nc")
    named = variants.matched_contrasts({"bells": ("sink", "plain")}, {"middle_minus_ends": 0.1})
    on_disk.write_experiment(folders, tmp_path, named)
    found = on_disk.read_contrasts(tmp_path, on_disk.LOSS_MATCHED_CSV)
    assert {*found.level} == {3.0}
    assert {*on_disk.read_runs(tmp_path)[1].role} == {"exploratory"}  # at the last checkpoint
    first, told = found[found.role == "primary"].iloc[0], on_disk.read_primary(tmp_path).iloc[0]
    assert np.isfinite(told.change)
    assert told.change == -first.change
