"""A file of vectors as a source: what it may be, what is refused, what its tables say."""

import jax.numpy as jnp
import numpy as np
import pytest
import tensorstore
import xarray as xr
from safetensors.flax import save_file as save_jax
from safetensors.numpy import save_file

from anisoscope import measure
from anisoscope.measurement.sources import given, vector_files
from anisoscope.measurement.tables import files
from tests.program import here, refuse

GENERATOR = np.random.default_rng(0)
VECTORS = GENERATOR.normal(size=(2, 96, 6)).astype(np.float32) * np.arange(1, 7, dtype=np.float32)
LABELS = np.repeat(np.arange(12), 8)
CONFIG = "--config=experiments/vectors.py"
QUICK = (CONFIG, "--stages=measure", "--config.measure.families=('similarity',)", "--config.measure.folds=4")


def npy(path):
    np.save(path, VECTORS)


def npz(path):
    np.savez(path, groups=LABELS, vectors=VECTORS)


def safetensors(path):
    save_file({"groups": LABELS, "vectors": VECTORS}, path)


def zarr(driver):
    def write(path):
        for name, array in (("groups", LABELS), ("vectors", VECTORS)):
            store = {"driver": "file", "path": str(path / name)}
            spec = {"driver": driver, "kvstore": store}
            tensorstore.open(spec, create=True, dtype=array.dtype, shape=array.shape).result()[...] = array

    return write


def netcdf(engine):
    def write(path):
        dims = ("layer", "point", "width")
        xr.Dataset({"groups": ("point", LABELS), "vectors": (dims, VECTORS)}).to_netcdf(path, engine=engine)

    return write


@pytest.mark.parametrize(
    ("name", "write", "labelled"),
    [
        ("a.npy", npy, False),
        ("a.npz", npz, True),
        ("a.safetensors", safetensors, True),
        ("two.zarr", zarr("zarr"), True),
        ("three.zarr", zarr("zarr3"), True),
        ("three.nc", netcdf("scipy"), True),
        ("four.nc", netcdf("h5netcdf"), True),
    ],
)
def test_every_format_gives_what_the_array_gives(name, write, labelled, tmp_path):
    write(tmp_path / name)
    done = here(*QUICK, f"--config.vectors.path={tmp_path / name}", f"--workdir={tmp_path / 'run'}")
    assert done.returncode == 0, done.stderr
    found = files.read(tmp_path / "run" / "results.nc").isel(step=0, positions=0)
    expected = measure(VECTORS, LABELS if labelled else None, families="similarity", folds=4)
    for quantity in ("mean_cosine", "drift"):
        np.testing.assert_array_equal(found[quantity], expected[quantity])
    assert found.attrs["resampled_points"] == 96


def test_what_is_measured_stays_and_layers_have_names(tmp_path):
    np.savez(tmp_path / "a.npz", first=VECTORS[0], second=VECTORS[1], sentence=LABELS)
    flags = [*QUICK, f"--config.vectors.path={tmp_path / 'a.npz'}", f"--workdir={tmp_path / 'run'}"]
    flags += ["--config.vectors.layers=second,first", "--config.vectors.clusters=sentence", "--config.vectors.pieces=2"]
    assert here(*flags).returncode == 0
    table = tmp_path / "run" / "measurements" / "0.nc"
    before = table.stat().st_mtime_ns
    results = files.read(tmp_path / "run" / "results.nc")
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


def test_what_cannot_be_measured_is_one_line(tmp_path):
    path, workdir = tmp_path / "a.npz", tmp_path / "run"
    given = f"--config.vectors.path={path}"
    refuse(workdir, "pass --config.vectors.path=FILE", CONFIG)
    refuse(workdir, "does not exist", CONFIG, given)
    refuse(workdir, "is none of .npy, .npz", CONFIG, "--config.vectors.path=a.pkl")
    path.write_bytes(b"no archive")
    refuse(workdir, "cannot be read", CONFIG, given)
    np.savez(path, a=np.array([{}], dtype=object))
    refuse(workdir, "pickled arrays never are", CONFIG, given)
    np.savez(path, a=VECTORS[0], b=VECTORS[1])
    refuse(workdir, "holds a (96, 6), b (96, 6); name those to measure", CONFIG, given)
    refuse(workdir, "has no array 'c'; it holds a (96, 6)", CONFIG, given, "--config.vectors.layers=a,c")
    np.savez(path, vectors=VECTORS, groups=LABELS[1:])
    refuse(workdir, "clusters have shape (95,)", CONFIG, given)
    np.savez(path, vectors=VECTORS[0, 0])
    refuse(workdir, "vectors have shape (6,)", CONFIG, given)
    np.savez(path, vectors=VECTORS)
    refuse(workdir, "vectors of a file are not trained", CONFIG, given, "--stages=train")
    refuse(workdir, "measure.families is 'attention'", CONFIG, given, "--config.measure.families=attention")
    refuse(workdir, "measure.nulls names gaussian twice", CONFIG, given, "--config.measure.nulls=gaussian,gaussian")
    refuse(workdir, "measure.nulls is 'untrained'", CONFIG, given, "--config.measure.nulls=untrained")


def test_labels_keep_all_their_bits(tmp_path):
    label_P, place_P = LABELS << 32, (np.arange(96) % 8) + 2**32
    save_file({"groups": label_P, "positions": place_P, "vectors": VECTORS}, tmp_path / "a.safetensors")
    found = vector_files.load(tmp_path / "a.safetensors", (), "", "")
    np.testing.assert_array_equal(found.cluster_P, label_P)
    np.testing.assert_array_equal(found.position_P, place_P)


def test_bfloat16_is_read(tmp_path):
    vectors = jnp.asarray(VECTORS, jnp.bfloat16)
    save_jax({"vectors": vectors}, tmp_path / "a.safetensors")
    found = vector_files.load(tmp_path / "a.safetensors", (), "", "")
    np.testing.assert_array_equal(given.read(found.vectors, "vectors"), np.asarray(vectors, np.float32))
