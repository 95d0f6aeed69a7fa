"""A file of vectors as a source: every format is measured as its array is, and what is refused is
one line.
"""

import numpy as np
import pytest
import tensorstore
import xarray as xr
from safetensors.numpy import save_file

from anisoscope import measure
from anisoscope.results import joined_files
from tests.program import here, refuse

GENERATOR = np.random.default_rng(0)
VECTORS = GENERATOR.normal(size=(2, 96, 6)).astype(np.float32) * np.arange(1, 7, dtype=np.float32)
LABELS = np.repeat(np.arange(12), 8)
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
        tensorstore.open(spec, create=True, dtype=array.dtype, shape=array.shape).result()[...] = (
            array
        )


def netcdf(path, engine):
    dims = ("layer", "point", "width")
    xr.Dataset({"groups": ("point", LABELS), "vectors": (dims, VECTORS)}).to_netcdf(
        path, engine=engine
    )


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
    done = here(*QUICK, f"--config.vectors.path={tmp_path / name}", f"--workdir={tmp_path / 'run'}")
    assert done.returncode == 0, done.stderr
    found = joined_files.read_table(tmp_path / "run" / "results.nc").isel(step=0, positions=0)
    expected = measure(VECTORS, None if name == "a.npy" else LABELS, families="similarity", folds=4)
    for quantity in ("mean_cosine", "drift"):
        np.testing.assert_array_equal(found[quantity], expected[quantity])
    assert found.attrs["resampled_points"] == 96


def test_what_is_measured_stays_and_layers_have_names(tmp_path):
    np.savez(tmp_path / "a.npz", first=VECTORS[0], second=VECTORS[1], sentence=LABELS)
    flags = [*QUICK, f"--config.vectors.path={tmp_path / 'a.npz'}", f"--workdir={tmp_path / 'run'}"]
    flags += [
        "--config.vectors.layers=second,first",
        "--config.vectors.clusters=sentence",
        "--config.vectors.pieces=2",
    ]
    assert here(*flags).returncode == 0
    table = tmp_path / "run" / "measurements" / "0.nc"
    before = table.stat().st_mtime_ns
    results = joined_files.read_table(tmp_path / "run" / "results.nc")
    assert list(results.layer_name.values) == ["second", "first"]
    expected = measure(VECTORS[::-1], LABELS, families="similarity", folds=4, pieces=2)
    np.testing.assert_array_equal(results.drift.isel(step=0, positions=0), expected.drift)
    assert here(*flags).returncode == 0
    assert table.stat().st_mtime_ns == before
    whole = here(*flags[:-1])
    assert whole.returncode == 2
    assert "vectors.pieces=2" in whole.stderr
    np.savez(tmp_path / "a.npz", first=VECTORS[0] + 1, second=VECTORS[1], sentence=LABELS)
    other = here(*flags)
    assert other.returncode == 2
    assert "was measured on other clouds: sha256" in other.stderr


def test_a_folder_without_training_is_verified(tmp_path):
    np.savez(tmp_path / "a.npz", vectors=VECTORS)
    flags = [CONFIG, f"--config.vectors.path={tmp_path / 'a.npz'}", f"--workdir={tmp_path / 'run'}"]
    refuse(tmp_path / "run", "holds no run (no config.json)", *flags[:2], "--stages=verify")
    assert here(*QUICK, *flags[1:]).returncode == 0
    whole = here(*flags, "--stages=verify")
    assert (whole.returncode, whole.stderr) == (0, "")
    assert ": whole: " in whole.stdout
    before = (tmp_path / "run" / "results.nc").read_bytes()
    (tmp_path / "run" / "results.nc").write_bytes(b"other")
    damaged = here(*flags, "--stages=verify")
    assert (damaged.returncode, damaged.stderr.count("\n")) == (1, 1)
    assert (
        f"{tmp_path / 'run' / 'results.nc'} has changed since it was written; delete it"
        in damaged.stdout
    )
    (tmp_path / "run" / "results.nc").unlink()
    assert here(*QUICK, *flags[1:]).returncode == 0
    assert (tmp_path / "run" / "results.nc").read_bytes() == before
    assert here(*flags, "--stages=verify").returncode == 0


def test_what_cannot_be_measured_is_one_line(tmp_path):
    path, workdir = tmp_path / "a.npz", tmp_path / "run"
    given = f"--config.vectors.path={path}"
    refuse(workdir, "pass --config.vectors.path=FILE", CONFIG)
    refuse(workdir, "does not exist", CONFIG, given)
    path.write_bytes(b"no archive")
    refuse(workdir, "cannot be read", CONFIG, given)
    np.savez(path, a=np.array([{}], dtype=object))
    refuse(workdir, "pickled arrays never are", CONFIG, given)
    np.savez(path, a=VECTORS[0], b=VECTORS[1])
    refuse(workdir, "holds a (96, 6), b (96, 6); name those to measure", CONFIG, given)
    np.savez(path, vectors=VECTORS)
    refuse(workdir, "vectors of a file are not trained", CONFIG, given, "--stages=train")
    refuse(
        workdir,
        "measure.families is 'attention'",
        CONFIG,
        given,
        "--config.measure.families=attention",
    )
