"""The source of docs/howto/adding.md, as somebody else writes one: measured, resumed, refused."""

import importlib.util
import json
import pathlib

import numpy as np
import pytest

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.results.joined_files import read_table
from anisoscope.sources.sweep import sweep
from anisoscope.utils.errors import Stopped, UserError
from anisoscope.utils.processes import Stop
from anisoscope.utils.settings import replace
from tests import reference

FILE = pathlib.Path(__file__).parents[2] / "examples" / "folder_of_arrays.py"
spec = importlib.util.spec_from_file_location("folder_of_arrays", FILE)
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)
SETTINGS = MeasureConfig(points=64, batches=2, folds=4, families=("similarity",), nulls=())


def source(folder, **changes):
    return example.FolderOfArrays(folder / "arrays", folder / "run", replace(SETTINGS, changes))


@pytest.fixture
def arrays(tmp_path):
    (tmp_path / "arrays").mkdir()
    for step in (0, 5, 10):
        x_NWTD = np.random.default_rng(step).normal(size=(3, 16, 8, 8)) + step
        np.save(tmp_path / "arrays" / f"step_{step}.npy", x_NWTD)
    return tmp_path


def measured(one, stop=None):
    with Stop() as own:
        sweep(one, stop or own)
    return read_table(one.root / "results.nc")


def test_every_step_is_measured_and_a_changed_one_again(arrays, capsys):
    one = source(arrays)
    results = measured(one)
    assert results.step.values.tolist() == [0, 5, 10]
    picks_P = one.picks(8, 8)[0]
    batches = [
        np.load(one.path(5))[2, start : start + 8].reshape(-1, 8)[picks_P] for start in (0, 8)
    ]
    value = results.mean_norm.sel(step=5, layer=2, positions="all", statistic="mean").item()
    assert value == pytest.approx(
        np.mean([reference.mean_norm(cloud) for cloud in batches]), rel=1e-5
    )
    before = {path.name: path.read_bytes() for path in (arrays / "run" / "measurements").iterdir()}
    np.save(one.path(5), np.load(one.path(5)) * 2)
    one.path(10).unlink()
    again = measured(source(arrays))
    assert "measured again, since its file has changed: step 5" in capsys.readouterr().out
    assert again.step.values.tolist() == [0, 5, 10]
    assert again.mean_norm.sel(step=5, layer=2, statistic="mean").item() == pytest.approx(
        2 * value, rel=1e-5
    )
    now = {path.name: path.read_bytes() for path in (arrays / "run" / "measurements").iterdir()}
    assert [name for name in before if now[name] != before[name]] == ["5.nc"]


def test_stopped_and_resumed_is_as_never_stopped(arrays, tmp_path):
    whole = measured(source(arrays))
    one, read = source(arrays), []
    one = example.FolderOfArrays(one.folder, tmp_path / "stopped", one.measure)

    class StopAfterOne:
        def check(self, words):
            read.append(words)
            if len(read) == 2:
                raise Stopped(words)

    with pytest.raises(Stopped, match="stopped before measuring step 5"):
        measured(one, StopAfterOne())
    assert [path.name for path in (tmp_path / "stopped" / "measurements").iterdir()] == ["0.nc"]
    assert measured(example.FolderOfArrays(one.folder, one.root, one.measure)).equals(whole)


def test_what_the_source_cannot_give_is_one_line(arrays):
    measured(source(arrays))
    table = read_table(arrays / "run" / "measurements" / "0.nc")
    assert json.loads(table.attrs["made_by"])["measure.points"] == 64
    with pytest.raises(UserError, match=r"measure\.points=64 there, 32 now"):
        measured(source(arrays, points=32))
    for changes, words in (
        ({"families": ("similarity", "comparison")}, "comparison cannot be measured"),
        ({"families": ("attention",)}, "attention cannot be measured on these"),
        ({"nulls": ("shuffled",)}, "activations have 1 inputs; pass 2: measured and shuffled"),
        ({"families": ("frequency",)}, "frequency cannot be measured on these"),
    ):
        with pytest.raises((UserError, ValueError), match=words):
            measured(source(arrays, **changes))
    empty = example.FolderOfArrays(arrays / "nothing", arrays / "elsewhere", SETTINGS)
    with pytest.raises(UserError, match="arrays: no step can be read"):
        measured(empty)
