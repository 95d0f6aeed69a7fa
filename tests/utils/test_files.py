import ast
import json
import os
import re
import resource

import pytest

from anisoscope.utils import files
from anisoscope.utils.errors import UserError
from tests.program import ROOT


def test_what_stood_there_stays_until_the_new_file_is_whole(tmp_path, monkeypatch):
    path = tmp_path / "notes.json"
    files.write_json(path, {"steps": 1})
    assert json.loads(path.read_text()) == {"steps": 1}
    replace = os.replace

    def look(new, old):
        assert json.loads(path.read_text()) == {"steps": 1}
        replace(new, old)

    monkeypatch.setattr(os, "replace", look)
    files.write_json(path, {"steps": 2})
    assert json.loads(path.read_text()) == {"steps": 2}
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_what_stood_there(tmp_path):
    path = tmp_path / "notes"
    files.write(path, "as it was")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="too large") as error:
            files.write(path, b"x" * 5000)
        assert error.value.filename == str(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_text() == "as it was"
    assert list(tmp_path.iterdir()) == [path]


def test_no_link_is_followed(tmp_path, monkeypatch):
    """Neither from the name that is written, nor from one that somebody could foresee."""
    (elsewhere := tmp_path / "elsewhere").write_text("precious")
    (path := tmp_path / "results.nc").symlink_to(elsewhere)
    for name in ("results.nc.tmp", ".results.nc.tmp"):
        (tmp_path / name).symlink_to(elsewhere)
    files.write(path, "new")
    assert path.read_text() == "new"
    assert not path.is_symlink()
    monkeypatch.setattr(files, "begun", lambda path: tmp_path / "results.nc.tmp")
    with pytest.raises(FileExistsError):
        files.write(path, "newer")
    assert elsewhere.read_text() == "precious"


def test_names_of_what_is_being_written_are_known_and_never_the_same(tmp_path):
    names = {files.begun(tmp_path / "a.nc").name for _ in range(99)}
    assert len(names) == 99
    assert all(map(files.is_begun, names))
    assert not any(map(files.is_begun, ("a.nc", "a.nc.tmp", ".a.nc.tmp", ".a.nc.0123456789abcde.tmp")))


def test_nothing_is_left_of_what_could_not_be_written(tmp_path):
    with pytest.raises(KeyboardInterrupt), files.replacing(tmp_path / "a"):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def writes(call):
    """Whether a call opens a file for writing by its name, or writes it."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    modes = [
        arg.value for arg in (*call.args, *(word.value for word in call.keywords)) if isinstance(arg, ast.Constant)
    ]
    opens = name == "open" and any(
        isinstance(mode, str) and re.fullmatch("[rbt]*[wax+][wax+bt]*", mode) for mode in modes
    )
    return name in ("write_text", "write_bytes") or (opens and "os.devnull" not in map(ast.unparse, call.args))


def test_all_files_are_written_by_one_function():
    found = []
    for path in sorted(ROOT.glob("*/**/*.py")):
        place = path.relative_to(ROOT)
        if place.parts[0] != "tests" and not place.parts[0].startswith("."):
            calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
            found += [f"{place}:{call.lineno}" for call in calls if writes(call)]
    assert found == []
    for words in ("open(path, 'w')", "path.open(mode='ab')", "path.write_bytes(x)", "open(path, 'r+')"):
        assert writes(ast.parse(words).body[0].value)
    assert not writes(ast.parse("open(path, 'rb')").body[0].value)


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff", None])
def test_what_is_no_object_in_json_is_one_line_with_its_advice(tmp_path, content):
    path = tmp_path / "test.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=r"test\.json cannot be read \(.*\); do this") as error:
        files.read_json(path, "do this")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "why"), [(b"[" * 200_000, "nested too deep"), (b" " * 70_000_000 + b"{}", "more than 67,108,864 bytes")]
)
def test_json_of_a_depth_or_length_that_nobody_writes_is_one_line(tmp_path, text, why):
    (tmp_path / "test.json").write_bytes(text)
    with pytest.raises(UserError, match=rf"test\.json cannot be read \(it .*{why}.*\); do this"):
        files.read_json(tmp_path / "test.json", "do this")


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "test.json")
    with pytest.raises(UserError, match="it is no regular file"):
        files.read_json(tmp_path / "test.json", "do this")
