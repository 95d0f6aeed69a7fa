"""The record of a folder: what has changed since a stage wrote it is named, also behind a link."""

import hashlib
import shutil
import subprocess

import pytest

from anisoscope.utils import checksums, folder
from anisoscope.utils.errors import RunError
from tests.program import flip

NAMES = ["checkpoints/4/params/leaf", "config.json", "measurements/4.nc", "train.jsonl"]


@pytest.fixture
def run(tmp_path):
    """A run whose tables lie on another disk, notes of its user, and a run inside."""
    folder_of_run, disk = tmp_path / "run", tmp_path / "disk"
    for path in (folder_of_run / "inner", folder_of_run / "checkpoints" / "4" / "params", disk):
        path.mkdir(parents=True)
    (folder_of_run / "measurements").symlink_to(disk)
    with folder.locked_folder(folder_of_run), folder.locked_folder(folder_of_run / "inner"):
        for name in (*NAMES, "inner/config.json", "report.html", "notes.txt"):
            (folder_of_run / name).write_text(f"of {name}")
    return folder_of_run


def found(run, capsys):
    """What verify prints of a folder, where it finds something."""
    with pytest.raises(RunError, match="of the files above are damaged or missing"):
        checksums.verify_files({"run": run})
    return capsys.readouterr().out


def test_every_file_of_a_run_is_recorded_as_sha256sum_reads_it(run, capsys):
    assert [*checksums.read_checksums(run)] == NAMES
    assert [*checksums.read_checksums(run / "inner")] == ["config.json"]
    checksums.verify_files({"run": run, "inner": run / "inner"})
    lines = ["run: 4 files, all unchanged", "inner: 1 files, all unchanged"]
    assert capsys.readouterr().out.splitlines() == lines
    if shutil.which("sha256sum"):
        subprocess.run(["sha256sum", "--quiet", "-c", checksums.CHECKSUMS], cwd=run, check=True)


@pytest.mark.parametrize("name", NAMES)
def test_a_flipped_byte_is_named_also_after_another_stage_that_did_not_write_the_file(
    run, name, capsys
):
    flip(run / name)
    line = f"run: {run / name} has changed since it was written\n"
    assert found(run, capsys) == line
    with folder.locked_folder(run):
        (run / "results.csv").write_text("new")
    assert found(run, capsys) == line
    with folder.locked_folder(run):
        (run / name).write_text("anew")
    checksums.verify_files({"run": run})
    assert checksums.read_checksums(run)[name] == hashlib.sha256(b"anew").hexdigest()


def test_what_is_missing_is_a_line(run, tmp_path, capsys):
    (run / "train.jsonl").unlink()
    assert (
        found(run, capsys)
        == f"run: {run / 'train.jsonl'} cannot be read (No such file or directory)\n"
    )
    assert found(tmp_path / "typo", capsys).startswith(f"run: {tmp_path / 'typo'} is missing; ")
    with folder.locked_folder(run):  # a file that was deleted has no line
        pass
    checksums.verify_files({"run": run})
    (run / checksums.CHECKSUMS).write_text("damaged\n")
    assert "cannot be read" in found(run, capsys)


def stopped_while_writing(run, capsys):
    with folder.locked_folder(run):
        assert found(run, capsys).startswith(
            f"run: {run / checksums.CHECKSUMS} is missing; the same"
        )
        (run / "measurements" / "8.nc").write_text("of 8")
        raise RunError("stopped")


def test_while_a_stage_writes_there_is_no_record_and_an_error_leaves_one(run, capsys):
    with pytest.raises(RunError, match="stopped"):
        stopped_while_writing(run, capsys)
    assert "measurements/8.nc" in checksums.read_checksums(run)
    with folder.locked_folder(run, shared=True):
        pass
    assert not (run / checksums.CHECKSUMS).exists()  # other processes may still measure
