"""The record of a folder: what is damaged is refused, and what a kill left is not."""

import hashlib

import pytest

from anisoscope.utils import checksums, folder
from anisoscope.utils.errors import RunError

NAMES = ["config.json", "environment.json", "train.jsonl", "test.json", "results.nc", "results.csv"]
NAMES += ["checkpoints/4/params/leaf"]


@pytest.fixture
def run(tmp_path):
    """A run that is trained and measured, and notes of its user."""
    with folder.locked_folder(tmp_path):
        for name in NAMES:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(f"of {name}")
    (tmp_path / "notes.txt").write_text("mine")
    return tmp_path


def session(run, work):
    with folder.locked_folder(run):
        work()


def test_checkpoints_keep_their_lines_also_elsewhere_and_figures_have_none(run, tmp_path_factory):
    leaf, replayed = "checkpoints/4/params/leaf", "replayed/checkpoints/5/params/leaf"
    disk = tmp_path_factory.mktemp("disk") / "checkpoints"
    (run / "checkpoints").rename(disk)
    (run / "checkpoints").symlink_to(disk)

    def work():
        (run / replayed).parent.mkdir(parents=True)
        (run / replayed).write_text("of step 5")
        (run / "paper").mkdir()
        for name in ("drawn.txt", "correlations.csv"):
            (run / "paper" / name).touch()

    session(run, work)
    (run / replayed).write_text("otherwise")
    session(run, lambda: None)
    lines = checksums.read_checksums(run)
    assert {*lines} == {*NAMES, replayed}
    assert lines[replayed] == hashlib.sha256(b"of step 5").hexdigest()
    assert lines[leaf] == hashlib.sha256(f"of {leaf}".encode()).hexdigest()


def test_each_file_has_a_line_and_those_of_others_have_none(run):
    (run / "other" / "deep").mkdir(parents=True)
    (run / "other" / "deep" / ".lock").touch()
    (run / "other" / "deep" / "results.nc").touch()
    session(run, lambda: None)
    lines = (run / checksums.NAME).read_text().splitlines()
    assert [line[66:] for line in lines] == sorted(checksums.listed(run))
    assert {line[66:] for line in lines} == {*NAMES}
    assert f"{hashlib.sha256(b'of test.json').hexdigest()}  test.json" in lines


@pytest.mark.parametrize("name", NAMES[:-1])
def test_a_start_refuses_what_has_changed_and_takes_what_is_gone(run, name):
    (run / name).write_text("otherwise")
    with pytest.raises(
        RunError, match=f"{name} has changed since it was written; (delete|restore) it"
    ):
        session(run, lambda: None)
    assert (run / name).read_text() == "otherwise"
    (run / name).unlink()
    session(run, lambda: (run / name).write_text("anew"))
    assert checksums.read_checksums(run)[name] == hashlib.sha256(b"anew").hexdigest()


@pytest.mark.parametrize("trained", [True, False])
def test_whenever_a_kill_comes_what_was_being_written_has_no_line(run, monkeypatch, trained):
    """A finished run's log and score keep theirs, as no stage writes them again."""
    if not trained:
        (run / "test.json").unlink()
    monkeypatch.setattr(checksums, "write_checksums", lambda folder: None)  # killed before
    session(run, lambda: (run / "results.nc").write_text("half of a stage later"))
    kept = {"config.json", "checkpoints/4/params/leaf"} | (
        {"train.jsonl", "test.json"} if trained else set()
    )
    assert checksums.read_checksums(run).keys() == kept
    monkeypatch.undo()
    session(run, lambda: None)
    assert checksums.read_checksums(run).keys() == {*checksums.listed(run)}
    assert not list(checksums.changed(run))


def test_a_checkpoint_that_goes_is_forgotten_before(run):
    checksums.forget(run / "checkpoints" / "4")
    assert "checkpoints/4/params/leaf" not in checksums.read_checksums(run)
    assert "test.json" in checksums.read_checksums(run)


@pytest.mark.parametrize(
    "line", ["0", "f" * 64 + "  ../report.html", "f" * 64 + "  /etc/passwd", "f" * 63 + "  a.nc"]
)
def test_a_line_that_names_nothing_of_the_folder_is_damage(run, line):
    (run / checksums.NAME).write_text(f"{line}\n")
    with pytest.raises(RunError, match=r"checksums\.sha256 is damaged in line 1; delete it"):
        checksums.read_checksums(run)
