"""A folder that knows what it holds: nothing damaged is taken for sound, and nothing that a kill left for damage."""

import json
import os

import pytest

from anisoscope.utils import files, keeping, manifest


def wrong(folder):
    found = manifest.read(folder)
    words = {path: manifest.wrong(folder / path, states, not found.ended) for path, states in found.states.items()}
    return {path: what for path, what in words.items() if what}


@pytest.fixture
def folder(tmp_path):
    with keeping.keeping(tmp_path):
        for name in ("a.csv", "b.csv"):
            files.write(tmp_path / name, f"of {name}")
        files.write(tmp_path / "train.jsonl", "".join(f'{{"step": {step}}}\n' for step in range(200)))
    assert wrong(tmp_path) == {}
    return tmp_path


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.write_text("of b.csv"), "has changed since it was written"),
        (lambda path: path.write_text("of a"), "holds 4 bytes, not 8"),
        (lambda path: path.unlink(), "is missing"),
        (lambda path: (path.unlink(), path.mkdir()), "is a folder"),
        (lambda path: (path.unlink(), path.symlink_to("b.csv")), "is a link"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "is a pipe"),
    ],
)
def test_what_has_changed_is_named(folder, damage, words):
    damage(folder / "a.csv")
    assert wrong(folder) == {"a.csv": words}


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (lambda lines: [*lines[:70], lines[70].replace(b"70", b"71"), *lines[71:]], "has changed in lines 65 to 80"),
        (lambda lines: [*lines[:3], *lines[2:]], "has changed in lines 1 to 16, and 12 more blocks"),
        (lambda lines: lines[:128], "is cut after line 128"),
        (lambda lines: [*lines, b"more\n"], "has 5 bytes more than were written"),
    ],
)
def test_of_a_log_the_lines_are_named(folder, how, words):
    path = folder / "train.jsonl"
    path.write_bytes(b"".join(how(path.read_bytes().splitlines(keepends=True))))
    assert wrong(folder) == {"train.jsonl": words}


def test_a_log_grows_while_a_session_lasts_and_only_its_new_lines_are_read(folder):
    path = folder / "train.jsonl"
    with keeping.keeping(folder):
        with open(path, "ab") as file:
            file.write(b'{"step": 200}\n')
        keeping.note(path)
        with open(path, "ab") as file:
            file.write(b'{"step": 201}\n{"st')
        assert wrong(folder) == {}  # those of a session that is not over
        last = json.loads((folder / manifest.NAME).read_bytes().splitlines()[-1].partition(b"\t")[0])
        assert (last["from"], len(last["blocks"])) == (12, 1)
        path.write_bytes(path.read_bytes().replace(b'{"step": 7}', b'{"step": 8}'))
        assert wrong(folder) == {"train.jsonl": "has changed in lines 1 to 16"}


@pytest.mark.parametrize("moment", ["before the file takes its place", "after it"])
def test_a_kill_between_a_file_and_its_line_is_no_damage(folder, monkeypatch, moment):
    class Killed(BaseException):
        pass

    def replace(source, target, whole=os.replace):
        if target.name == "a.csv":
            if moment == "after it":
                whole(source, target)
            raise Killed
        whole(source, target)

    keeper = keeping._Keeper(folder)
    monkeypatch.setitem(keeping._keepers, folder, keeper)
    monkeypatch.setattr(files, "watchers", [keeping._written])
    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(Killed):
        files.write(folder / "a.csv", "new")
    monkeypatch.undo()
    assert wrong(folder) == {}
    with keeping.keeping(folder):  # the next session settles it
        files.write(folder / "c.csv", "c")
    assert wrong(folder) == {}
    (folder / "a.csv").write_text("new" if moment.startswith("before") else "of a.csv")
    assert [*wrong(folder)] == ["a.csv"]


@pytest.mark.parametrize(
    ("how", "lines"),
    [
        (lambda lines: [*lines[:2], lines[2].replace(b"b.csv", b"c.csv"), *lines[3:]], [3]),
        (lambda lines: [*lines[:2], *lines[3:]], [3]),
        (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], [2, 3, 4]),
        (lambda lines: [*lines[:2], *lines[1:]], [3]),
        (lambda lines: [*lines, b"more"], [6]),
        (lambda lines: [b"[" * 200_000 + b"\n", *lines[1:]], [1, 2]),
    ],
)
def test_the_manifest_guards_itself(folder, how, lines):
    path = folder / manifest.NAME
    path.write_bytes(b"".join(how(path.read_bytes().splitlines(keepends=True))))
    assert manifest.read(folder).damaged == lines
    with keeping.keeping(folder):
        files.write(folder / "c.csv", "c")
    assert manifest.read(folder).damaged == []
    assert len(list(folder.glob("damaged-*/manifest.jsonl"))) == 1


def test_a_line_that_a_kill_cut_short_is_no_damage(folder):
    path = folder / manifest.NAME
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]) + lines[3][:20])
    found = manifest.read(folder)
    assert (found.damaged, found.ended, [*found.states]) == ([], False, ["a.csv", "b.csv"])


def test_what_is_removed_or_passing_is_not_missed(folder):
    with keeping.keeping(folder):
        files.remove(folder / "a.csv")
        (folder / "checkpoints" / "7").mkdir(parents=True)
        (folder / "checkpoints" / "7" / "leaf").write_text("7")
        keeping.note(folder / "checkpoints" / "7", passing=True)
    (folder / "checkpoints" / "7" / "leaf").unlink()
    assert wrong(folder) == {}


def test_nothing_is_written_where_nothing_is_new(folder):
    before = (folder / manifest.NAME).stat().st_mtime_ns
    with keeping.keeping(folder):
        files.write(folder / "a.csv", "of a.csv")
    assert (folder / manifest.NAME).stat().st_mtime_ns == before
