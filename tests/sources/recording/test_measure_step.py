"""Tables of steps: joined by name, whole or not at all, from threads too."""

import threading

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import anisoscope
from anisoscope.plot.draw import RUN_FIGURES
from anisoscope.plot.run_tables import Run
from anisoscope.results import join, joined_files

QUICK = {"families": "similarity", "nulls": ()}
MEAN = {"statistic": "mean", "positions": "all"}


def layers():
    rng = np.random.default_rng(0)
    return [rng.standard_normal((64, 4)) + 3 * number for number in range(2)]


def test_a_table_a_step_is_read_by_the_figures_over_training(tmp_path):
    rng, options = np.random.default_rng(0), {"families": "spectrum", "nulls": ()}
    for step in (0, 10, 20):
        recorder = anisoscope.record(lambda x: x, points=64)
        for _ in range(5):
            x = rng.standard_normal((4, 8, 4))
            recorder.add({"a": x, "b": x @ np.diag([1 + step, 1, 1, 1])})
        own = recorder.measure(**options)
        table = anisoscope.measure_step(recorder, step, tmp_path, **options)
        assert table.step.values.tolist() == list(range(0, step + 1, 10))
        found = table.anisotropy.sel(step=step, positions="all")
        np.testing.assert_array_equal(found, own.anisotropy)
        assert recorder.rows == 0
    mean = table.anisotropy_over_blocks
    np.testing.assert_allclose(mean, table.anisotropy.mean("layer").where(mean.notnull()), rtol=0.2)
    assert "mean over all layers" in mean.attrs["long_name"]
    figure = RUN_FIGURES["geometry_over_training"]({"mine": Run(table, [])})
    assert figure.axes[0].lines[0].get_xdata().tolist() == [0, 10, 20]


def test_what_needs_the_layer_before_is_averaged_over_the_others(tmp_path):
    table = anisoscope.measure_step(layers(), 0, tmp_path, families="linearity", nulls=())
    first, second = table.linearity.sel(statistic="mean").values.ravel()
    assert np.isnan(first)
    assert table.linearity_over_blocks.sel(statistic="mean").item() == pytest.approx(second)


def test_layers_are_joined_by_name_and_csv_has_the_names(tmp_path):
    a, b = layers()
    anisoscope.measure_step([a, b], 0, tmp_path, layer_names=["a", "b"], **QUICK)
    table = anisoscope.measure_step([b, a], 1, tmp_path, layer_names=["b", "a"], **QUICK)
    assert table.layer_name.values.tolist() == ["a", "b"]
    cosines = table.mean_cosine.sel(MEAN)
    np.testing.assert_array_equal(cosines.sel(step=1), cosines.sel(step=0))
    own = anisoscope.measure([a, b], **QUICK).mean_cosine.sel(statistic="mean")
    np.testing.assert_array_equal(cosines.sel(step=1), own)
    frame = pd.read_csv(tmp_path / "results.csv")
    rows = frame[(frame.metric == "mean_cosine") & (frame.step == 1)].set_index("layer_name")
    expected = {"a": float(own[0]), "b": float(own[1])}
    assert rows["mean"].to_dict() == pytest.approx(expected, rel=1e-5)
    assert table.provenance == "2 hook points; 64 vectors at a step; D=4"
    fewer = [x[:48] for x in (a, b)]
    table = anisoscope.measure_step(fewer, 2, tmp_path, layer_names=["a", "b"], **QUICK)
    assert table.provenance == "2 hook points; 48 to 64 vectors at a step; D=4"


def test_what_is_refused_leaves_the_folder_as_it_was(tmp_path):
    folder, x, names = tmp_path / "t", layers(), ["a", "b"]

    def contents():
        return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    anisoscope.measure_step(x, 0, folder, layer_names=names, **QUICK)
    before = contents()
    for vectors, step, labels, words in (
        (x[:1], 1, ["a"], "this step has 1 layers"),
        (x, 1, ["a", "c"], "names"),
        ([layer[:, :3] for layer in x], 1, names, "width of 3"),
        (x, 1.0, names, "step is 1.0"),
        (x, 0, names, "nothing is overwritten"),
    ):
        with pytest.raises(ValueError, match=words):
            anisoscope.measure_step(vectors, step, folder, layer_names=labels, **QUICK)
        assert contents() == before
    with pytest.raises(ValueError, match="at least 8 are needed"):
        anisoscope.measure_step(np.ones((2, 3)), 0, tmp_path / "new", **QUICK)
    assert not (tmp_path / "new").exists()
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ValueError, match="and nothing is overwritten"):
        anisoscope.measure_step(x, 0, tmp_path, **QUICK)
    table = anisoscope.measure_step(x, np.int64(2), folder, layer_names=names, **QUICK)
    assert table.step.values.tolist() == [0, 2]
    damaged = folder / "measurements" / "2.nc"
    damaged.write_bytes(damaged.read_bytes()[:-4] + b"flip")
    with pytest.raises(ValueError, match=r"2\.nc is damaged \(.*; move the file away to go on"):
        anisoscope.measure_step(x, 3, folder, layer_names=names, **QUICK)


def test_what_earlier_steps_have_stays_in_the_joined_table(tmp_path):
    first = anisoscope.measure_step(layers(), 1, tmp_path, families="spectrum", nulls=())
    both = anisoscope.measure_step(layers(), 0, tmp_path, **QUICK)  # an earlier step
    assert both.step.values.tolist() == [0, 1]
    np.testing.assert_array_equal(both.anisotropy.sel(step=1), first.anisotropy.sel(step=1))
    assert both.anisotropy.sel(step=0).isnull().all()
    assert both.mean_cosine.sel(step=0, statistic="mean").notnull().all()


def test_a_step_that_cannot_be_joined_leaves_no_table(tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(join, "write_joined", stop)
    with pytest.raises(KeyboardInterrupt):
        anisoscope.measure_step(layers(), 0, tmp_path / "run", **QUICK)
    assert not [*tmp_path.rglob("*.nc")]
    other = tmp_path / "run" / "measurements" / "5.nc"
    joined_files.write_table(xr.Dataset(attrs={"made_by": "{}"}), other)
    with pytest.raises(ValueError, match="run has measurements, and nothing is overwritten"):
        anisoscope.measure_step(layers(), 0, tmp_path / "run", **QUICK)


def test_threads_write_a_step_once_and_lose_none(tmp_path):
    """8 threads, of which 4 write step 0 and 4 a step of their own: 5 tables, 3 refusals."""
    outcomes, start = [], threading.Barrier(8)

    def write(step):
        start.wait()
        try:
            anisoscope.measure_step(layers(), step, tmp_path, **QUICK)
            outcomes.append("written")
        except ValueError as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=write, args=(step,)) for step in (0, 0, 0, 0, 1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("written") == 5
    assert sum("has a table of step 0" in outcome for outcome in outcomes) == 3
    assert sorted(pd.read_csv(tmp_path / "results.csv").step.unique()) == [0, 1, 2, 3, 4]
