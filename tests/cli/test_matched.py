"""Loss-matched contrasts, from training to the figure."""

import json

import numpy as np
import pandas as pd
import pytest

from anisoscope.analysis import loss_matched, on_disk
from anisoscope.cli import drawing, training_stages
from anisoscope.config import variants
from anisoscope.results import joined_files
from anisoscope.training import log, replay
from anisoscope.utils.settings import replace
from tests import tiny
from tests.analysis.synthetic_runs import made
from tests.program import asked

KINDS = {"plain": {}, "sink": {"model__sink": True}, "norm": {"model__qk_norm": True}}


@pytest.fixture
def root(tmp_path):
    """Three conditions of a seed, trained and measured as far as the stage reads it."""
    scores = [
        {"step": step, "kind": "valid", "bits_per_character": 9.0, "gain_over_unigram": float(step)}
        for step in (0, 1, 10)
    ]
    gains = "".join(json.dumps(line) + "\n" for line in scores)
    for kind, changes in KINDS.items():
        joined_files.write_table(made(**changes), tmp_path / kind / "results.nc")
        (tmp_path / kind / "train.jsonl").write_text(gains)
        (tmp_path / kind / log.SCORE).write_text('{"bits_per_character": 9.0}')
    return tmp_path


def of(root, names=KINDS):
    return {name: root / name for name in names}


def bells(before, after):
    return variants.matched_contrasts({"bells": (before, after)}, {"middle_minus_ends": 0.1})


def test_all_pairs_are_contrasted_and_outdated_contrasts_are_not_read(root, monkeypatch, capsys):
    experiment = replace(tiny.config(steps=10), {"primary": bells("sink", "plain")})
    monkeypatch.setattr(
        loss_matched,
        "measured",
        lambda *args: {level: replay.Crossing(10, level) for level in args[3]},
    )
    configs = dict.fromkeys(KINDS, experiment)
    loss_matched.contrast_runs(experiment, configs, dict.fromkeys(configs), root, None)
    whole = on_disk.read_loss_matched(root, of(root))
    assert set(whole.setting) == {"model.sink", "model.qk_norm"}
    assert np.isfinite(on_disk.read_primary(root).change).all()
    assert "loss-matched: 2 contrasts" in capsys.readouterr().out
    joined_files.write_table(made(model__sink=True, train__seed=1), root / "sink" / "results.nc")
    assert on_disk.read_loss_matched(root, of(root)).empty
    assert "contrasts_loss_matched.csv is outdated" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("programs_are_shared")
def test_contrasts_loss_matched_from_training_to_the_figure(tmp_path, capsys, monkeypatch):
    """Of two conditions; the second time nothing is done again."""
    changes = {"measure.families": ("similarity", "spectrum"), "measure.nulls": ("untrained",)}
    changes |= {"checkpoint.every": 200, "evaluate.every": 40, "model.layers": 4}
    changes["variants"] = {"plain": {"model.sink": False}, "sink": {"model.sink": True}}
    train = {"schedule": "constant", "learning_rate": 5e-3, "steps_per_call": 20, "log_every": 50}
    experiment = replace(tiny.config(steps=200, **train), changes)
    experiment = replace(experiment, {"primary": bells("plain", "sink")})
    configs, root = variants.expand(experiment), tmp_path / "sinks"
    for _ in range(2):
        training_stages.work(experiment, configs, asked(root, "train", "measure", "matched"))
    assert capsys.readouterr().out.count("trained already") == 2
    found = on_disk.read_loss_matched(root, of(root, configs))
    names = {"middle_minus_ends", "drift_growth", "steps_to_gain_over_unigram"}
    assert names <= set(found.quantity)
    assert np.isfinite(found[found.quantity == "middle_minus_ends"].change).all()
    first, told = found[found.role == "primary"].iloc[0], on_disk.read_primary(root).iloc[0]
    assert (told.change, told.verdict) == (first.change, "no p")  # of a single seed
    rows = pd.read_csv(root / "loss_matched.csv").set_index("run")
    best, made = {}, 0
    for name, path in of(root, configs).items():
        lines = [line for line in log.read_log(path) if line["kind"] == "valid"]
        # before the decay
        best[name] = max(x["gain_over_unigram"] for x in lines if 10 <= x["step"] <= 160)
        ((level, crossing),) = json.loads(
            (path / "loss_matched" / "crossings.json").read_text()
        ).items()
        step, gain, row = crossing["step"], crossing["gain_over_unigram"], rows.loc[name]
        assert step == row.steps_to_gain_over_unigram <= 160
        assert row.gain_over_unigram_there == pytest.approx(gain)
        assert gain >= float(level) == pytest.approx(row.level)
        if not (path / "measurements" / f"{step}.nc").exists():
            made += (path / "loss_matched" / "measurements" / f"{step}.nc").exists()
    assert float(level) == min(best.values()) > 0
    assert made
    monkeypatch.setattr(drawing.draw, "RUNS", {})  # other figures
    drawing.draw_figures(of(root, configs), root / "figures", root, "gain_over_unigram")
    assert (root / "figures" / "contrasts_loss_matched.png").exists()
    assert (
        "that all its runs reach" in (root / "figures" / "contrasts_loss_matched.txt").read_text()
    )
