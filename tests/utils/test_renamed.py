"""What earlier versions wrote under other names is read as before."""

import json

import pandas as pd
import pytest
import xarray as xr

from anisoscope.analysis import loss_matched, on_disk, runs
from anisoscope.config.experiment import Config
from anisoscope.measurement.tables import files
from anisoscope.training import finished, log, replay
from anisoscope.utils import folder, renamed
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import filled, from_dict, to_dict
from tests.analysis.tables import folders, made
from tests.program import ROOT

BELL = {"quantity": "middle_less_ends", "before": "plain", "after": "sink", "at": "matched", "margin": 0.1}


def of_before(text: str) -> str:
    for names in (renamed.VERDICTS, renamed.FILES, renamed.QUANTITIES, renamed.SCORES):
        for then, now in names.items():
            text = text.replace(now, then)
    return text.replace(",matched,", ",equal,")


def test_log_score_and_table_are_read_by_the_names_of_today(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"step": 4, "kind": "valid", "gain": 1.5}\n')
    (tmp_path / "test.json").write_text('{"bits_per_character": 2.5, "gain": 2.5}')
    assert log.read_log(tmp_path) == [{"step": 4, "kind": "valid", "context_gain": 1.5}]
    assert finished.read_score(tmp_path) == {"bits_per_character": 2.5, "context_gain": 2.5}
    then = xr.Dataset({"validation_gain": ("step", [0.5, 1.5])}, {"step": [0, 4]})
    files.write(then, tmp_path / "results.nc")
    assert files.read_table(tmp_path / "results.nc").validation_context_gain.values.tolist() == [0.5, 1.5]


def test_tables_of_an_experiment_are_read_as_they_were_and_give_way_to_those_of_today(tmp_path):
    tables = {f"{kind}_{seed}": made(seed, model__sink=kind == "sink") for kind in ("plain", "sink") for seed in (0, 1)}
    where, joined = folders(tables, tmp_path), runs.join(tables, {name: {} for name in tables})
    matched = loss_matched.plan(joined, dict.fromkeys(tables, 1.0))
    cut = {(name, 1.0): table for name, table in tables.items()}
    written = on_disk.write_loss_matched(matched, cut, where, tmp_path, joined, {"it": BELL})
    on_disk.write(where, tmp_path, {"it": BELL})

    def there():
        matched = on_disk.read_loss_matched(tmp_path, where)
        return [*on_disk.read_runs(tmp_path), matched, on_disk.read_primary(tmp_path)]

    now = there()
    assert "steps_to_context_gain" in set(now[2].quantity)
    assert set(now[3].verdict) <= {*renamed.VERDICTS.values()}
    for path in [path for path in tmp_path.iterdir() if path.suffix in (".csv", ".json")]:
        text = of_before(path.read_text())
        path.unlink()
        (tmp_path / of_before(path.name)).write_text(text)
    assert (tmp_path / "contrasts_equal_gain.csv").exists()
    assert not written[0].exists()
    for then, today in zip(there(), now, strict=True):
        pd.testing.assert_frame_equal(then, today)
    on_disk.write_loss_matched(matched, cut, where, tmp_path, joined, {"it": BELL})
    assert not list(tmp_path.glob("*equal_gain*"))


def test_what_was_replayed_stays_in_the_folder_that_it_has(tmp_path):
    assert replay.folder(tmp_path) == "loss_matched"
    (tmp_path / "equal_gain").mkdir()
    assert replay.folder(tmp_path) == "equal_gain"


def test_primary_contrasts_of_a_run_that_has_begun_are_the_same_by_todays_names(tmp_path):
    then = {"quantity": "steps_to_gain", "before": "equal", "after": "sink", "at": "equal"}
    now = then | {"quantity": "steps_to_context_gain", "at": "matched"}  # a condition may be called as it likes
    (tmp_path / "config.json").write_text(json.dumps({"primary": {"steps": then}}))
    folder.check_same(tmp_path / "config.json", {"primary": {"steps": now}}, (), "")
    with pytest.raises(UserError, match="holds a run with other settings: primary"):
        folder.check_same(tmp_path / "config.json", {"primary": {"steps": now | {"after": "plain"}}}, (), "")
    bells = {"primary": {"bell_by_mask": BELL | {"quantity": "bell"}}}
    (tmp_path / "config.json").write_text(json.dumps(bells))
    folder.check_same(tmp_path / "config.json", {"primary": {"middle_less_ends_by_mask": BELL}}, (), "")


def test_the_glossary_has_each_name_of_before_beside_that_of_today():
    text = (ROOT / "docs" / "reference" / "glossary.md").read_text().partition("## Words of earlier versions")[2]
    rows = [row.split("|")[1:3] for row in text.splitlines() if row.startswith("| ")]
    named = [*(value for kind, value in vars(renamed).items() if kind.isupper())]
    for then, now in [pair for names in named for pair in names.items()]:
        assert any(then in left and now in right for left, right in rows), then


def test_settings_of_a_run_of_before_are_read_by_the_names_of_today():
    then = {"mesh": {"data": 1, "fsdp": 1, "members": 2}}
    assert from_dict(filled(then, to_dict(Config())), Config).mesh.seeds == 2
