"""The file checksums.sha256, a line for each file of a folder, readable by `sha256sum -c`.

It is rewritten when a stage ends. Before a stage, the lines of files that the stage may rewrite
are checked and dropped. After a kill at any time, every line is therefore correct.
"""

import contextlib
import errno
import hashlib
import os
import pathlib
import re
from collections.abc import Iterator

from anisoscope.utils import files
from anisoscope.utils.errors import RunError

NAME = "checksums.sha256"
LINE = re.compile(r"([0-9a-f]{64})  (?!/)([^\\\r]+)")
CHECKPOINTS = "checkpoints"
FIGURES = "drawn.txt"  # marks a folder of figures
# Endings of recorded files outside CHECKPOINTS; other files are the user's.
KINDS = (".nc", ".csv", ".json", ".jsonl")
LOGGED = ("train.jsonl", "test.json")  # files that only training writes
FINISHED = "test.json"
DELETE = "delete it, and the same command makes it again"
UNKNOWN = f"is not recorded in {NAME}"


def read_checksums(folder: pathlib.Path) -> dict[str, str]:
    """Read {path relative to the folder: sha256}; empty if there is no record.

    Raises:
        RunError: The record is damaged.
    """
    path, lines = folder / NAME, {}
    if not path.exists():
        return lines
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        match = LINE.fullmatch(line)
        if match is None or ".." in match[2].split("/"):
            raise RunError(f"{path} is damaged in line {number}; {DELETE}")
        lines[match[2]] = match[1]
    return lines


def listed(folder: pathlib.Path) -> Iterator[str]:
    """List the files that a record covers, without nested runs and folders of figures."""
    for parent, folders, names in os.walk(folder, followlinks=True):
        here = pathlib.Path(parent)
        if here != folder and {".lock", NAME, FIGURES} & {*names}:
            folders.clear()
            continue
        folders[:] = [
            name
            for name in folders
            if not _is_passing(name, here == folder)
            and (name == CHECKPOINTS or not (here / name).is_symlink())
        ]
        all_files = CHECKPOINTS in here.relative_to(folder).parts
        for name in names:
            recorded = all_files or name.endswith(KINDS)
            recorded &= not {*"\\\r\n"} & {*name}  # sha256sum would escape them
            if recorded and not _is_passing(name, False):
                yield (here / name).relative_to(folder).as_posix()


def _is_passing(name: str, top: bool) -> bool:
    """Return whether a file or folder is temporary, or redrawn at any time."""
    if files.is_temporary(name) or name.endswith(".orbax-checkpoint-tmp"):
        return True
    return name == files.CLAIMS or (top and name == "figures")


def digest(path: pathlib.Path) -> str:
    """Compute the sha256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def problem(path: pathlib.Path, expected: str) -> str:
    """Describe what is wrong with a file; empty if nothing is."""
    try:
        return "" if digest(path) == expected else "has changed since it was written"
    except (FileNotFoundError, NotADirectoryError):
        return "is missing"
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise  # having too many open files says nothing about this one
        return f"cannot be read ({error.strerror})"


def restored_unit(name: str) -> str:
    """Return the smallest unit that is restored at once: a whole checkpoint, or the file."""
    parts = name.split("/")
    return "/".join(parts[: parts.index(CHECKPOINTS) + 2]) if CHECKPOINTS in parts[:-2] else name


def advice(name: str, why: str) -> str:
    """Say how to restore a file that is damaged, missing or not recorded."""
    if why == UNKNOWN:
        return "the same command records it; move it elsewhere if it is not part of the run"
    parts, delete = restored_unit(name).split("/"), "" if why == "is missing" else "delete it: "
    if name == "config.json":
        return "restore it from a copy, or name another --workdir: no command makes it again"
    if name == "train.jsonl":
        return "restore it from a copy, or delete it: training continues without this log"
    if parts[0] == CHECKPOINTS:
        return f"{delete}an unfinished run resumes from the checkpoint before"
    own = "" if why == "is missing" else "; move it elsewhere if it is a file of your own"
    return f"{delete}the same command makes it again{own}"


def changed(folder: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Find the files outside checkpoints that have changed since they were written."""
    for name, expected in read_checksums(folder).items():
        if restored_unit(name) == name:
            what = problem(folder / name, expected)
            if what and what != "is missing":
                yield name, what


def refuse_changed(folder: pathlib.Path) -> None:
    """Raise RunError if a file outside checkpoints has changed since it was written."""
    for name, what in changed(folder):
        raise RunError(f"{folder / name} {what}; {advice(name, what)} (--stages=verify lists all)")


def begin(folder: pathlib.Path) -> None:
    """Drop the lines of files that a stage may rewrite; raise RunError if a file has changed."""
    refuse_changed(folder)
    lines, settled = read_checksums(folder), {"config.json"}
    if (folder / FINISHED).exists():
        settled |= {*LOGGED}
    names = [name for name in lines if name in settled or restored_unit(name) != name]
    kept = {name: lines[name] for name in names if (folder / name).exists()}
    _save(folder, kept, lines)


def write_checksums(folder: pathlib.Path) -> None:
    """Record every new file, and drop the lines of deleted files."""
    lines = read_checksums(folder)
    now = {name: lines.get(name) or digest(folder / name) for name in listed(folder)}
    _save(folder, now, lines)


def forget(path: pathlib.Path) -> None:
    """Drop the lines of a file or folder before it is deleted or rewritten."""
    for folder in path.parents:
        if (folder / NAME).exists():
            prefix, lines = f"{path.relative_to(folder).as_posix()}/", read_checksums(folder)
            left = {name: line for name, line in lines.items() if not f"{name}/".startswith(prefix)}
            _save(folder, left, lines)
            return


def _save(folder: pathlib.Path, lines: dict[str, str], before: dict[str, str]) -> None:
    if lines != before or not (folder / NAME).exists():
        files.write_file(
            folder / NAME, "".join(f"{lines[name]}  {name}\n" for name in sorted(lines))
        )


@contextlib.contextmanager
def recorded_writing(folder: pathlib.Path) -> Iterator[None]:
    """Update checksums.sha256 of a locked folder around the writing of its files, also after errors."""
    begin(folder)
    with recorded_after(folder):
        yield


@contextlib.contextmanager
def recorded_after(folder: pathlib.Path) -> Iterator[None]:
    """Record the files of a folder after their writing, also after errors."""
    try:
        yield
    except Exception:  # a stop or a user error: the written files are complete
        with contextlib.suppress(OSError, RunError):
            write_checksums(folder)
        raise
    write_checksums(folder)
