"""The command for files prints the library's table, and writes it where nothing is."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from anisoscope import measure, to_frame, to_text
from anisoscope.results import joined_files
from tests.program import here

LAYERS = np.float32(np.random.default_rng(0).normal(size=(2, 96, 6)) + 1)
LABELS = np.repeat(np.arange(12), 8)
FEW = ("--families=similarity", "--nulls=", "--folds=4")
READERS = {
    "a.csv": pd.read_csv,
    "a.json": lambda path: pd.DataFrame(json.loads(path.read_text())),
    "a.nc": lambda path: to_frame(joined_files.read_table(path)),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("acts.npz", early=LAYERS[0], late=LAYERS[1], labels=LABELS)
    return tmp_path


def test_a_file_gives_the_table_of_its_arrays_in_every_format(folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    layers = {"early": LAYERS[0], "late": LAYERS[1]}
    table = measure(layers, LABELS, families="similarity", nulls=(), folds=4)
    for name, read in READERS.items():
        flags = ("--vectors=early,late", "--clusters=labels", *FEW, f"--out={name}")
        done = here("measure", "acts.npz", *flags)
        assert done.stdout == f"{to_text(table, 60)}\nevery number: {name}\n", done.stderr
        frames = (read(folder / name).dropna(axis=1, how="all"), to_frame(table))
        ordered = (frame.sort_values(["metric", "layer", "at"]) for frame in frames)
        found, expected = (frame.reset_index(drop=True) for frame in ordered)
        pd.testing.assert_frame_equal(found, expected, check_dtype=False)
        again = here("measure", "acts.npz", *flags)
        assert again.returncode == 2
        assert again.stderr.endswith("exists, and nothing is overwritten; name another file\n")
    assert max(map(len, done.stdout.splitlines()[1:])) <= 60


def test_text_has_a_row_for_each_layer_and_set_of_positions():
    hidden = [*LAYERS.reshape(2, 12, 8, 6)]
    table = measure(hidden, families=("spectrum", "similarity"), nulls=())
    lines = to_text(table, 80).splitlines()
    assert lines[1].split()[:4] == ["positions", "layer", "anisotropy", "mean_cosine"]
    for line, where in zip(lines[2:6], np.ndindex(2, 2), strict=True):
        positions, layer = table.positions.values[where[0]], table.layer.values[where[1]]
        values = table.mean_cosine.sel(positions=positions, layer=layer)
        mean, low, high = (f"{float(values.sel(statistic=x)):.2f}" for x in ("mean", "low", "high"))
        assert re.match(rf"{positions} +{layer} .* {mean} \[{low}, {high}\]", line.strip())
    assert lines[6].startswith("columns left out: ")
    chosen = to_text(table, quantities=["stable_rank", "drift"]).splitlines()
    assert chosen[1].split() == ["positions", "layer", "stable_rank", "drift"]
    options = {"families": "spectrum", "nulls": "isotropic", "without_massive": True}
    with_null = measure(LAYERS[0], **options)
    excess = with_null.anisotropy_excess.sel(null="isotropic", positions="all")
    excess = excess.sel(statistic=["mean", "low", "high"]).values
    names = ["massive_vectors", "anisotropy_excess"]
    row = to_text(with_null, quantities=names, null="isotropic").splitlines()[2]
    assert row.split(maxsplit=2) == ["all", "0", "{:.2f} [{:.2f}, {:.2f}]".format(*excess)]
    for wrong, words in (
        ((table, ["anisotropy"]), "pass a number of characters, and columns as quantities="),
        ((table, None, "drif"), "did you mean drift?"),
        (
            (with_null, None, "anisotropy_excess"),
            "null 'gaussian' is not in the table; choose from isotropic",
        ),
    ):
        with pytest.raises(ValueError, match=re.escape(words)):
            to_text(*wrong[:2], quantities=wrong[2:])


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "name one file, as in: anisoscope measure acts.npz"),
        (["a.npz", "b.npz"], "name one file"),
        (["none.npz"], "there is no file none.npz"),
        (["acts.npz"], "name what to measure: --vectors="),
        (["acts.npz", "--clusters=none", "--vectors=late"], "has no array 'none'"),
        (["acts.npz", "--out=a.xls"], "--out=a.xls: name a file that ends with .csv, .json, .nc"),
        (["acts.npz", "--out=none/a.csv"], "the folder none does not exist"),
        (["acts.npz", "--cluster=labels"], "did you mean --clusters?"),
        (["acts.npz", "--folds=x"], "--folds=x"),
        (["acts.npz", "--vectors=late", "--families=spectra"], "'spectra' cannot be measured"),
    ],
)
@pytest.mark.filterwarnings("ignore:acts.npz. labels has an entry")
def test_bad_input_is_one_line_and_exit_code_2(words, line):
    done = here("measure", *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert line in done.stderr


@pytest.mark.filterwarnings("ignore:acts.npz. labels has an entry")
def test_the_written_table_outlives_columns_that_do_not_exist():
    words = ["acts.npz", "--vectors=late", "--families=similarity", "--nulls=", "--out=kept.csv"]
    done = here("measure", *words, "--quantities=drif")
    assert done.returncode == 2
    assert "'drif' is not a quantity of the table; did you mean drift?" in done.stderr
    kept = pd.read_csv("kept.csv")
    assert {"mean_cosine", "drift"} <= {*kept["metric"]}
