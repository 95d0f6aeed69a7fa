"""Tables of steps: joined by name, whole or not at all, from threads too."""

import threading

import numpy as np
import pandas as pd
import pytest

import anisoscope

QUICK = {"families": "similarity", "nulls": ()}


def layers(seed=0, count=2):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((64, 4)) + 3 * number for number in range(count)]


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_layers_are_joined_by_name_and_csv_has_the_names(tmp_path):
    folder, (a, b) = tmp_path / "t", layers()
    anisoscope.write_table([a, b], 0, folder, names=["a", "b"], **QUICK)
    table = anisoscope.write_table([b, a], 1, folder, names=["b", "a"], **QUICK)
    assert table.layer_name.values.tolist() == ["a", "b"]
    cosines = table.mean_cosine.sel(statistic="mean", positions="all")
    np.testing.assert_array_equal(cosines.sel(step=1), cosines.sel(step=0))
    own = anisoscope.measure([a, b], **QUICK).mean_cosine.sel(statistic="mean")
    np.testing.assert_array_equal(cosines.sel(step=1), own)
    for frame in (pd.read_csv(folder / "results.csv"), anisoscope.to_frame(table)):
        rows = frame[(frame.metric == "mean_cosine") & (frame.step == 1)].set_index("layer_name")
        assert rows["mean"].to_dict() == pytest.approx(
            {"a": float(own[0]), "b": float(own[1])}, rel=1e-5
        )


def test_what_is_refused_leaves_the_folder_as_it_was(tmp_path):
    folder, x = tmp_path / "t", layers()
    anisoscope.write_table(x, 0, folder, names=["a", "b"], **QUICK)
    before = contents(folder)
    for given, step, names, words in (
        (x[:1], 1, ["a"], "a table of step 0 with layers 2, and this step has 1"),
        (x, 1, ["a", "c"], "with names .*, and this step has"),
        (x, 1, None, "with names .*, and this step has None"),
        ([layer[:, :3] for layer in x], 1, ["a", "b"], "with a width of 4, and this step has 3"),
        (x, True, ["a", "b"], "step is True; a whole number from 0 to 2147483647 is needed"),
        (x, 2**31, ["a", "b"], "step is 2147483648"),
        (x, 1.0, ["a", "b"], "step is 1.0"),
        (x, 0, ["a", "b"], "has a table of step 0, and nothing is overwritten"),
    ):
        with pytest.raises(ValueError, match=words):
            anisoscope.write_table(given, step, folder, names=names, **QUICK)
        assert contents(folder) == before
    with pytest.raises(ValueError, match="at least 8 are needed"):
        anisoscope.write_table(np.ones((2, 3)), 0, tmp_path / "new", **QUICK)
    assert not (tmp_path / "new").exists()
    table = anisoscope.write_table(x, np.int64(2), folder, names=["a", "b"], **QUICK)
    assert table.step.values.tolist() == [0, 2]


def test_what_earlier_steps_have_stays_in_the_joined_table(tmp_path):
    x = layers()
    first = anisoscope.write_table(x, 0, tmp_path / "t", families="spectrum", nulls=())
    both = anisoscope.write_table(x, 1, tmp_path / "t", **QUICK)
    np.testing.assert_array_equal(both.anisotropy.sel(step=0), first.anisotropy.sel(step=0))
    assert both.anisotropy.sel(step=1).isnull().all()
    assert both.mean_cosine.sel(step=1, statistic="mean").notnull().all()


def test_threads_write_a_step_once_and_lose_none(tmp_path):
    """8 threads, of which 4 write step 0 and 4 a step of their own: 5 tables, 3 refusals."""
    outcomes, start = [], threading.Barrier(8)

    def write(step):
        start.wait()
        try:
            anisoscope.write_table(layers(), step, tmp_path / "t", **QUICK)
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
    assert sorted(pd.read_csv(tmp_path / "t" / "results.csv").step.unique()) == [0, 1, 2, 3, 4]
