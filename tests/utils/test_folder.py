import dataclasses
import json
import os
import resource

import pytest

from anisoscope.results import joined_files
from anisoscope.utils import files, folder
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace
from tests import tiny


def test_a_folder_belongs_to_one_config(tmp_path):
    run = tmp_path / "run"
    folder.claim_folder(run, tiny.config(), new=True)
    folder.claim_folder(run, tiny.config(), new=True)
    before = (run / "config.json").read_text()
    with pytest.raises(UserError, match=r"train\.steps=6 there, 7 now.*another --workdir"):
        folder.claim_folder(run, tiny.config(steps=7), new=True)
    elsewhere = {"mesh.fsdp": 2, "data.path": "/elsewhere", "measure.points": 99}  # may change
    folder.claim_folder(run, replace(tiny.config(), elsewhere), new=False)
    assert (run / "config.json").read_text() == before
    assert json.loads(before)["train"]["steps"] == 6


@pytest.mark.parametrize(
    ("place", "new", "words"),
    [
        (".", True, "is not empty and holds no run"),
        ("thesis.tex/run", True, "cannot be written"),
        ("typo", False, "--stages=train first"),
    ],
)
def test_what_cannot_become_a_run_is_refused_and_stays(tmp_path, place, new, words):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(UserError, match=words):
        folder.claim_folder(tmp_path / place, tiny.config(), new=new)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("thesis.tex", "x")]


def test_the_corpus_may_not_change_under_a_run(tmp_path):
    folder.record_environment(tmp_path, tiny.corpus().record())
    folder.record_environment(tmp_path, tiny.corpus().record())
    record = json.loads((tmp_path / "environment.json").read_text())
    assert record["corpus"]["characters"] == {"train": 200, "valid": 100, "test": 100}
    assert len(record["sessions"]) == 1
    later = [*record["sessions"], {"command": ["later"]}]
    (tmp_path / "environment.json").write_text(json.dumps(record | {"sessions": later}))
    folder.record_environment(tmp_path, tiny.corpus().record())
    again = json.loads((tmp_path / "environment.json").read_text())["sessions"]
    # the last is the command that goes on
    assert again == [{"command": ["later"]}, *record["sessions"]]
    assert record["sessions"][0]["versions"]["jax"]
    other = dataclasses.replace(tiny.corpus(), sha256="another")
    with pytest.raises(UserError, match="trained on another corpus"):
        folder.record_environment(tmp_path, other.record())


def test_processes_that_measure_steps_share_a_folder_and_no_other_works_in_it(tmp_path):
    left = files.temporary_path(tmp_path / "1.nc")
    left.touch()  # as another process writes it now
    with folder.locked_folder(tmp_path, shared=True), folder.locked_folder(tmp_path, shared=True):
        with pytest.raises(UserError, match="another process works in"):
            folder.locked_folder(tmp_path).__enter__()
        assert left.exists()
    with (
        folder.locked_folder(tmp_path),
        pytest.raises(UserError, match="another process works in"),
    ):
        folder.locked_folder(tmp_path, shared=True).__enter__()


def test_what_a_kill_left_is_removed_under_the_lock_but_not_where_others_may_work(tmp_path):
    ours = tmp_path / "run"
    inner = [ours, ours / "hook_points" / "values"]
    others = [ours / name for name in ("other", "figures", "checkpoints")]
    for path in (*inner, *others):
        path.mkdir(parents=True, exist_ok=True)
    (others[0] / ".lock").touch()
    left, foreign = (
        [files.temporary_path(path / "8.nc") for path in paths] for paths in (inner, others)
    )
    mine = [ours / "notes.tmp", ours / ".results.nc.tmp"]
    for path in (*left, *foreign, *mine):
        path.touch()
    (folder_left := files.temporary_path(ours / "256")).mkdir()
    (folder_left / "model.safetensors").touch()
    (link := files.temporary_path(ours / "9.nc")).symlink_to(tmp_path)
    with folder.locked_folder(ours):
        assert not any(path.exists() for path in (*left, folder_left))
        assert not link.is_symlink()
        assert all(path.exists() for path in (*foreign, *mine, tmp_path))


def test_a_full_disk_and_an_interruption_leave_what_stood_there(tmp_path):
    path = tmp_path / "notes"
    files.write_file(path, "as it was")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="too large") as error:
            files.write_file(path, b"x" * 5000)
        assert error.value.filename == str(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with pytest.raises(KeyboardInterrupt), files.replacing(path):
        raise KeyboardInterrupt
    assert path.read_text() == "as it was"
    assert list(tmp_path.iterdir()) == [path]


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "results.nc")
    with pytest.raises(UserError, match=r"results.nc cannot be read .*a pipe.*; restore it"):
        files.read_json(tmp_path / "results.nc", "restore it")
    with pytest.raises(OSError, match="a pipe, a device or a folder"):
        joined_files.read_table(tmp_path / "results.nc")
