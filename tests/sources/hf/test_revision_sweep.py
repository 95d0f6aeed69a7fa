"""The program as its users start it, on three checkpoints of a tiny training in local folders."""

import functools
import json
import re
import shutil
import subprocess
import sys

import numpy as np
import safetensors.torch

from anisoscope.config.measure_config import NULLS
from anisoscope.results import joined_files
from anisoscope.sources.hf import revision
from anisoscope.utils import checksums
from anisoscope.utils.files import temporary_path
from tests.program import ROOT, environment, here, refuse
from tests.sources.hf.tiny_models import flags, measure

NAMES = ("step0", "step20", "step60")


def test_all_that_it_writes_has_a_checksum(training, swept):
    workdir, _ = swept
    process = measure(training, workdir, *NAMES, stages="verify")
    assert (process.returncode, len(process.stdout.splitlines())) == (0, 1), process.stdout
    written = {x.relative_to(workdir).as_posix() for x in workdir.rglob("*") if x.is_file()}
    left = {
        x for x in written - {*checksums.read_checksums(workdir)} if not x.startswith("figures/")
    }
    assert left == {".lock", "report.html", checksums.CHECKSUMS}
    title = f"<h1>{training.parent.name}/{training.name}</h1>"  # not the folder of the tables
    assert title in (workdir / "report.html").read_text()


def test_revisions_are_steps_of_one_run(swept):
    workdir, process = swept
    results = joined_files.read_table(workdir / "results.nc")
    assert results.step.values.tolist() == [0, 20, 60]
    # no family here has the null model of cosines and drift
    assert results["null"].values.tolist() == [null for null in NULLS if null != "flipped"]
    mean = results.sel(positions="all", statistic="mean")
    excess = mean.anisotropy_excess.sel(null="untrained")
    assert (excess.sel(step=0) == 0).all()
    assert (excess.sel(step=60).isel(layer=-1) != 0).all()
    np.testing.assert_allclose(mean.cka_last.sel(step=60), 1, atol=1e-5)
    assert mean.cka_previous.sel(step=0).isnull().all()
    assert (mean.cka_last.sel(step=0).isel(layer=-1) < 0.95).all()
    assert results.previous_step.values.tolist() == [-1, 0, 20]
    found = json.loads(results.attrs["revisions"])
    assert found["60"]["bits_per_byte"] < found["60"]["bits_bound"] < found["0"]["bits_per_byte"]
    assert len({found[step]["weights_sha256"] for step in ("0", "20", "60")}) == 3
    noise = json.loads(results.attrs["noise_floor"])
    assert set(noise) >= {"anisotropy", "attention_entropy", "cka_layers"}
    assert 0 < noise["anisotropy"] < 1e-4
    assert results.anisotropy.attrs["noise_floor"] == noise["anisotropy"]
    said = (workdir / "figures" / "anisotropy_profile.txt").read_text()
    most = float(re.search(r"no value by more than (\S+)", said)[1])  # one digit, rounded up
    assert noise["anisotropy"] <= most < 2 * noise["anisotropy"] + 1e-12
    assert not [path for path in (workdir / "measurements").iterdir() if path.is_dir()]
    assert "bits per byte: " in process.stdout
    names = {path.stem for path in (workdir / "figures").glob("*.png")}
    assert names >= {"anisotropy_profile", "change_over_training"}
    assert "training_curve" not in names


def test_stopped_and_resumed_is_as_never_stopped(swept, training, tmp_path, monkeypatch):
    whole, _ = swept
    workdir, table, done = tmp_path / "run", revision.measure_revision, []

    def stopping(*given):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(1)
        return table(*given)

    monkeypatch.setattr("anisoscope.sources.hf.revision.measure_revision", stopping)
    assert measure(training, workdir, *NAMES).returncode == 130
    assert sorted(path.stem for path in (workdir / "measurements").glob("*.nc")) == ["0", "60"]
    monkeypatch.undo()
    left = temporary_path(workdir / "measurements" / "residuals")  # as a kill leaves it
    left.mkdir()
    (left / "60_0.npy").write_text("begun")
    again = measure(training, workdir, *NAMES)
    assert not left.exists()
    assert "3 checkpoints measured (1 now)" in again.stdout, again.stderr
    for step in (0, 20, 60):
        first, second = (
            joined_files.read_table(folder / "measurements" / f"{step}.nc")
            for folder in (whole, workdir)
        )
        assert {**first.attrs, "run": ""} == {**second.attrs, "run": ""}
        assert first.equals(second)


def test_explicit_revisions_are_joined_by_the_same_command_without_them(swept, training, tmp_path):
    whole, _ = swept
    workdir = tmp_path / "run"
    for part in ("0::2", "1::2"):
        place = f"--workdir={workdir}", "--stages=measure", f"--steps={part}"
        process = here(*flags(training, *NAMES), *place)
        assert process.returncode == 0, process.stderr
    process = measure(training, workdir, *NAMES)
    assert "3 checkpoints measured (0 now)" in process.stdout, process.stderr
    first, second = (joined_files.read_table(x / "results.nc") for x in (whole, workdir))
    assert first.equals(second)
    assert measure(training, workdir, *NAMES, stages="verify").returncode == 0


def test_a_model_alone_is_not_its_own_null_model(training, tmp_path):
    name = training / "step60"
    process = measure(training, tmp_path / "run", name=name, families="comparison")
    assert process.returncode == 0, process.stderr
    results = joined_files.read_table(tmp_path / "run" / "results.nc")
    assert results.step.values.tolist() == [1]
    assert "untrained" not in results["null"].values
    assert results.cka_last.isnull().all()


def test_a_model_that_has_changed_is_measured_again(training, tmp_path):
    copied, workdir = shutil.copytree(training, tmp_path / "training"), tmp_path / "run"
    fewer = functools.partial(measure, families="comparison")
    assert fewer(copied, workdir, "step20", "step60").returncode == 0
    path = copied / "step20" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rms_norm_eps": 0.5}))
    process = fewer(copied, workdir, "step20", "step60")
    why = "measured again, since its weights or its config.json have changed: step 20"
    assert why in process.stdout
    assert "its reference revisions have changed: step 60" in process.stdout
    assert "2 checkpoints measured (2 now)" in process.stdout
    path = copied / "step20" / "model.safetensors"
    weights = safetensors.torch.load_file(path)
    weights["model.norm.weight"] *= 0.25
    safetensors.torch.save_file(weights, path, {"format": "pt"})
    (workdir / "measurements" / "20.nc").unlink()  # and with it what it was made from
    process = fewer(copied, workdir, "step20", "step60")
    assert "its reference revisions have changed: step 60" in process.stdout
    process = fewer(copied, workdir, *NAMES)
    assert "its reference revisions have changed: step 20" in process.stdout
    assert "3 checkpoints measured (2 now)" in process.stdout
    results = joined_files.read_table(workdir / "results.nc")
    assert results.previous_step.values.tolist() == [-1, 0, 20]


def test_the_same_weights_under_two_names_and_pickled_ones_are_refused(training, tmp_path):
    copied = shutil.copytree(training, tmp_path / "training")
    shutil.copytree(copied / "step20", copied / "step40")
    process = measure(copied, tmp_path / "run", "step20", "step40", "step60", families="comparison")
    assert process.returncode == 2
    assert "steps 20 and 40 hold the same weights" in process.stderr
    path = copied / "step40" / "model.safetensors"
    path.rename(path.with_name("pytorch_model.bin"))
    given = flags(training, name=copied / "step40")
    refuse(tmp_path / "other", "pickled weights are never read", *given)
    given = flags(training, name=copied / "step20")
    words = "measure.hook_points is for models trained here"
    refuse(tmp_path / "other", words, *given, "--config.measure.hook_points=values")


LOAD = """
from tests.sources.hf.tiny_models import load
print(*(load("made/tiny", name).attributes["revision"] for name in ("step20", "step60")))
"""


def test_a_model_of_a_hub_is_read_by_name_and_revision(training, tmp_path):
    """From the cache of a download, without a network."""
    cache, names = tmp_path / "home" / "hub" / "models--made--tiny", ("step20", "step60")
    (cache / "refs").mkdir(parents=True)
    for commit, name in zip(("a" * 40, "b" * 40), names, strict=True):
        shutil.copytree(training / name, cache / "snapshots" / commit)
        (cache / "refs" / name).write_text(commit)
    variables = environment() | {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    process = [sys.executable, "-c", LOAD]
    output = subprocess.check_output(process, cwd=ROOT, env=variables, text=True)
    assert output.split() == ["a" * 40, "b" * 40]
