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
        joined_files.write(made(**changes), tmp_path / kind / "results.nc")
        (tmp_path / kind / "train.jsonl").write_text(gains)
        (tmp_path / kind / log.SCORE).write_text('{"bits_per_character": 9.0}')
    return tmp_path


def of(root):
    return {kind: root / kind for kind in KINDS}


def test_all_pairs_are_contrasted_and_outdated_contrasts_are_not_read(root, monkeypatch, capsys):
    named = {
        "bells": {
            "quantity": "middle_minus_ends",
            "before": "sink",
            "after": "plain",
            "at": "matched",
            "margin": 0.1,
        }
    }
    experiment = replace(tiny.config(steps=10), {"primary": named})
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
    joined_files.write(made(model__sink=True, train__seed=1), root / "sink" / "results.nc")
    assert on_disk.read_loss_matched(root, of(root)).empty
    assert "are outdated" in capsys.readouterr().out


@pytest.mark.slow
def test_contrasts_loss_matched_from_training_to_the_figure(tmp_path, capsys):
    """Of two conditions; the second time nothing is done again."""
    changes = {
        "measure.families": ("similarity", "spectrum"),
        "measure.nulls": ("untrained",),
        "checkpoint.every": 200,
    }
    conditions = {"plain": {"model.sink": False}, "sink": {"model.sink": True}}
    named = {
        "bells": {
            "quantity": "middle_minus_ends",
            "before": "plain",
            "after": "sink",
            "at": "matched",
            "margin": 0.1,
        }
    }
    experiment = tiny.config(
        steps=200, schedule="constant", learning_rate=1e-2, steps_per_call=20, log_every=50
    )
    experiment = replace(
        experiment, changes | {"model.layers": 4, "evaluate.every": 40, "variants": conditions}
    )
    experiment = replace(experiment, {"primary": named})
    configs, root = variants.expand(experiment), tmp_path / "sinks"
    for _ in range(2):
        training_stages.work(experiment, configs, asked(root, "train", "measure", "matched"))
    assert capsys.readouterr().out.count("trained already") == 2
    found = on_disk.read_loss_matched(root, {name: root / name for name in configs})
    assert {"middle_minus_ends", "drift_growth", "steps_to_gain_over_unigram"} <= set(
        found.quantity
    )
    assert np.isfinite(found[found.quantity == "middle_minus_ends"].change).all()
    first = found[found.role == "primary"].iloc[0]
    told = on_disk.read_primary(root).iloc[0]
    assert (told.change, told.verdict) == (first.change, "no p")  # of a single seed
    rows = pd.read_csv(root / "loss_matched.csv").set_index("run")
    best, made = {}, 0
    for name in configs:
        gains = {
            line["step"]: line["gain_over_unigram"]
            for line in log.read_log(root / name)
            if line["kind"] == "valid"
        }
        # before the decay
        best[name] = max(gain for step, gain in gains.items() if 10 <= step <= 160)
        crossings = json.loads((root / name / "loss_matched" / "crossings.json").read_text())
        ((level, crossing),) = crossings.items()
        assert crossing["step"] == rows.loc[name, "steps_to_gain_over_unigram"] <= 160
        assert rows.loc[name, "gain_over_unigram_there"] == pytest.approx(
            crossing["gain_over_unigram"]
        )
        assert (
            crossing["gain_over_unigram"] >= float(level) == pytest.approx(rows.loc[name, "level"])
        )
        if not (root / name / "measurements" / f"{crossing['step']}.nc").exists():
            made += (
                root / name / "loss_matched" / "measurements" / f"{crossing['step']}.nc"
            ).exists()
    assert float(level) == min(best.values()) > 0
    assert made
    drawing.draw_figures(
        {name: root / name for name in configs}, root / "figures", root, "gain_over_unigram"
    )
    assert (root / "figures" / "contrasts_loss_matched.png").exists()
    assert "in the constant part" in (root / "figures" / "contrasts_loss_matched.txt").read_text()
