"""A folder that knows what it holds: nothing damaged is taken for sound, and nothing that a kill left for damage."""

import errno
import json
import os
import sys

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


def test_what_is_removed_or_passing_is_not_missed_and_what_is_not_new_not_written(folder):
    before = (folder / manifest.NAME).stat().st_mtime_ns
    with keeping.keeping(folder):
        files.write(folder / "a.csv", "of a.csv")
    assert (folder / manifest.NAME).stat().st_mtime_ns == before
    with keeping.keeping(folder):
        files.remove(folder / "a.csv")
        (folder / "checkpoints" / "7").mkdir(parents=True)
        (folder / "checkpoints" / "7" / "leaf").write_text("7")
        keeping.note(folder / "checkpoints" / "7", passing=True)
    (folder / "checkpoints" / "7" / "leaf").unlink()
    assert wrong(folder) == {}


def signed(*values):
    """Lines as who knows how they are guarded can write them."""
    before, lines = "", b""
    for one in values:
        text = json.dumps(one).encode()
        before = manifest.guard(before, text)
        lines += text + b"\t" + before.encode() + b"\n"
    return lines


@pytest.mark.parametrize(
    "line",
    [
        *({"path": path, "bytes": 1} for path in ("../other", "/etc/passwd", "a/../../b", "", "a//b", "a\0", None, 3)),
        *({"path": "a.csv", "bytes": size} for size in (-1, "8", 1.5, {})),
        *({"path": "a.csv", "bytes": 8, "blocks": one} for one in ([[9, "a"], [3, "b"]], [["9", "a"]], [[9, 3]], [3])),
        *({"path": "a.csv", "bytes": 8, name: 3} for name in ("sha256", "unknown")),
        *({"session": number} for number in (-1, 10**12, "a", None)),
        {"session": 0, "settings": "a"},
        {"session": 0, "text": ["a"]},
    ],
)
def test_a_line_of_nothing_in_the_folder_is_damaged_and_no_more(tmp_path, line):
    """A folder may come from anywhere: a repair moves what its manifest names."""
    (tmp_path / manifest.NAME).write_bytes(signed(line, {"path": "b.csv", "bytes": 1}))
    found = manifest.read(tmp_path)
    assert (found.damaged, [*found.states]) == ([1], ["b.csv"])


def test_the_page_beside_figures_is_known(tmp_path):
    (tmp_path / "figures").mkdir()
    with keeping.alone(tmp_path / "figures", tmp_path / "report.html"):
        files.write(tmp_path / "report.html", "page")
    found = manifest.read(tmp_path / "figures")
    assert (found.damaged, [*found.states]) == ([], [manifest.BESIDE])


def test_a_line_that_a_full_disk_cut_short_is_written_anew(folder, monkeypatch):
    def short(keeper, lines, whole=keeping._Keeper.append):
        whole(keeper, lines[:20])
        raise OSError(28, "No space left on device")

    with keeping.keeping(folder):
        files.write(folder / "c.csv", "c")
        with monkeypatch.context() as patch:
            patch.setattr(keeping._Keeper, "append", short)
            with pytest.raises(OSError, match="No space"):
                files.write(folder / "a.csv", "new")
        files.write(folder / "d.csv", "d")
        assert manifest.read(folder).damaged == []
        assert wrong(folder) == {}
    assert (manifest.read(folder).damaged, wrong(folder)) == ([], {})


def test_too_many_open_files_are_no_damage(folder, monkeypatch):
    def fails(*_):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(manifest, "entry_of", fails)
    with pytest.raises(OSError, match="Too many open files"):
        wrong(folder)
    monkeypatch.setattr(files, "read_small", fails)
    with pytest.raises(OSError, match="Too many open files"):
        manifest.read(folder)


def test_figures_are_drawn_where_a_system_has_no_locks(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with keeping.alone(tmp_path):
        files.write(tmp_path / "a.csv", "a")
    assert (tmp_path / "a.csv").read_text() == "a"


@pytest.mark.parametrize("name", ["a.csv", "new.csv"])
def test_an_interruption_between_a_line_and_its_file_is_no_damage(folder, monkeypatch, name):
    """The line is on the disk first; then the file is as it was, or gone."""

    def interrupted(*_):
        raise KeyboardInterrupt

    def draw_again():
        with keeping.keeping(folder), monkeypatch.context() as patch:
            keeping.begin(folder)
            files.remove(folder / name)
            patch.setattr(os, "replace", interrupted)
            patch.setattr(os, "rename", interrupted)
            files.write(folder / name, "anew")

    with pytest.raises(KeyboardInterrupt):
        draw_again()
    assert not (folder / name).exists()
    assert wrong(folder) == {}
    with keeping.keeping(folder):
        files.write(folder / "c.csv", "of c.csv")
    assert wrong(folder) == {}


def test_lines_that_a_kill_came_after_are_taken_in_by_the_next_session(folder):
    lines = (folder / manifest.NAME).read_bytes().splitlines(keepends=True)
    (folder / manifest.NAME).write_bytes(b"".join(line for line in lines if b'"end"' not in line))
    with open(folder / "train.jsonl", "a") as log:
        log.write('{"step": 200}\n')
    assert wrong(folder) == {}
    with keeping.keeping(folder):
        keeping.begin(folder)
    assert manifest.read(folder).ended
    assert wrong(folder) == {}
    with open(folder / "train.jsonl", "a") as log:
        log.write('{"step": 201}\n')
    assert [*wrong(folder)] == ["train.jsonl"]
