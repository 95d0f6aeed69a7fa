"""A file of vectors as a source: every format is measured as its array is, in a folder that is
verified.
"""

import numpy as np
import pytest
import tensorstore
import xarray as xr
from safetensors.numpy import save_file

from anisoscope import measure
from anisoscope.results import joined_files
from tests.program import here, refuse
from tests.sources.test_vector_files import LABELS, VECTORS

CONFIG = "--config=experiments/vectors.py"
QUICK = (
    CONFIG,
    "--stages=measure",
    "--config.measure.families=('similarity',)",
    "--config.measure.folds=4",
)


def zarr(path, driver):
    for name, array in (("groups", LABELS), ("vectors", VECTORS)):
        spec = {"driver": driver, "kvstore": {"driver": "file", "path": str(path / name)}}
        store = tensorstore.open(spec, create=True, dtype=array.dtype, shape=array.shape).result()
        store[...] = array


def netcdf(path, engine):
    dims = ("layer", "point", "width")
    dataset = xr.Dataset({"groups": ("point", LABELS), "vectors": (dims, VECTORS)})
    dataset.to_netcdf(path, engine=engine)


WRITERS = {
    "a.npy": lambda path: np.save(path, VECTORS),  # without labels
    "a.npz": lambda path: np.savez(path, groups=LABELS, vectors=VECTORS),
    "a.safetensors": lambda path: save_file({"groups": LABELS, "vectors": VECTORS}, path),
    "two.zarr": lambda path: zarr(path, "zarr"),
    "three.zarr": lambda path: zarr(path, "zarr3"),
    "three.nc": lambda path: netcdf(path, "scipy"),
    "four.nc": lambda path: netcdf(path, "h5netcdf"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_what_the_array_gives(name, tmp_path):
    WRITERS[name](tmp_path / name)
    labels = None if name == "a.npy" else LABELS
    options = {"families": "similarity", "nulls": (), "folds": 4}
    found, expected = measure(tmp_path / name, **options), measure(VECTORS, labels, **options)
    for quantity in ("mean_cosine", "drift"):
        np.testing.assert_array_equal(found[quantity], expected[quantity])


def test_what_is_measured_stays_and_the_folder_is_verified(tmp_path):
    path, run = tmp_path / "a.npz", tmp_path / "run"
    np.savez(path, first=VECTORS[0], second=VECTORS[1], sentence=LABELS)
    flags = [
        *(*QUICK, f"--config.vectors.path={path}", f"--workdir={run}"),
        "--config.vectors.layers=second,first",
        "--config.vectors.clusters=sentence",
        "--config.vectors.num_chunks=2",
    ]
    verify = [CONFIG, *flags[-5:], "--stages=verify"]
    refuse(run, "holds no run (no config.json)", CONFIG, flags[4], "--stages=verify")
    assert here(*flags).returncode == 0
    table, results = run / "measurements" / "0.nc", run / "results.nc"
    written, content = table.stat().st_mtime_ns, results.read_bytes()
    found = joined_files.read_table(results)
    assert list(found.layer_name.values) == ["second", "first"]
    expected = measure(VECTORS[::-1], LABELS, families="similarity", folds=4, num_chunks=2)
    np.testing.assert_array_equal(found.drift.isel(step=0, positions=0), expected.drift)

    assert here(*verify).returncode == 0
    results.write_bytes(b"other")
    damaged = here(*verify)
    assert (damaged.returncode, damaged.stderr.count("\n")) == (1, 1)
    assert f"{results} has changed since it was written; delete it" in damaged.stdout
    results.unlink()
    assert here(*flags).returncode == 0
    assert results.read_bytes() == content
    assert table.stat().st_mtime_ns == written

    whole = here(*flags[:-1])
    assert whole.returncode == 2
    assert "vectors.num_chunks=2" in whole.stderr
    np.savez(path, first=VECTORS[0] + 1, second=VECTORS[1], sentence=LABELS)
    other = here(*flags)
    assert other.returncode == 2
    assert "was measured on other clouds: sha256" in other.stderr


def test_what_cannot_be_measured_is_one_line(tmp_path):
    path = f"--config.vectors.path={tmp_path / 'a.npz'}"
    for words, *flags in (
        ("pass --config.vectors.path=FILE",),
        ("does not exist", path),
        ("vectors of a file are not trained", path, "--stages=train"),
        ("measure.families is 'attention'", path, "--config.measure.families=attention"),
    ):
        refuse(tmp_path / "run", words, CONFIG, *flags)
