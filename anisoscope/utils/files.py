"""Files that appear whole or not at all, and are written where they stand: no link is followed to
another place.

A folder may come from anywhere, and hold links that somebody has laid.
"""

import contextlib
import json
import os
import pathlib
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from typing import Any, BinaryIO

from anisoscope.utils.errors import RunError, UserError

NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
BEGUN = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")  # as `begun` calls what is being written
LARGEST_JSON = 2**26  # bytes: beyond them a file is no settings of ours
# locks of this process, and which file each of them is
_held: dict[pathlib.Path, tuple[int, int]] = {}
OF_OTHERS = {"checkpoints", "figures"}  # Orbax clears up after itself, and drawing holds no lock


@contextlib.contextmanager
def replacing(path: pathlib.Path, synced: bool = True) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path` when all is written, and is on the disk before
    where it is `synced`.
    """
    check_held(path)
    temporary = begun(path)
    try:
        with os.fdopen(
            os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK, 0o666), "wb"
        ) as file:
            yield file
            file.flush()
            if synced:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    if synced:
        _sync(path.parent)


def write(path: pathlib.Path, content: bytes | str, synced: bool = True) -> None:
    """Write the file, all or nothing."""
    with replacing(path, synced) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def remove(path: pathlib.Path) -> None:
    """Remove a file where it is there."""
    check_held(path)
    path.unlink(missing_ok=True)


def write_json(path: pathlib.Path, values: Any) -> None:
    write(path, json.dumps(values, indent=2) + "\n")


def check_regular(path: pathlib.Path) -> int:
    """The size of a file; ValueError where it is a pipe or a device, which may give bytes for ever,
    or never one.
    """
    state = path.stat()
    if not stat.S_ISREG(state.st_mode):
        raise ValueError("it is no regular file")
    return state.st_size


def read_small(path: pathlib.Path, most: int) -> bytes:
    """All of a regular file; ValueError where it holds more."""
    size = check_regular(path) or most  # files of /proc say none
    with open(path, "rb") as file:
        content = file.read(min(size, most) + 1)
    if len(content) > most:
        raise ValueError(f"it holds more than {most:,} bytes")
    return content


def from_json(text: bytes | str) -> Any:
    """ValueError where it is no JSON, or too deeply nested to be read."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def read_json(path: pathlib.Path, advice: str) -> dict[str, Any]:
    """The object in a JSON file; UserError, which ends with the advice, where there is none to be
    read.
    """
    try:
        content = from_json(read_small(path, LARGEST_JSON))
        if not isinstance(content, dict):
            raise ValueError(f"it holds a {type(content).__name__}, not an object")
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}); {advice}") from error
    return content


def refuse_link(path: pathlib.Path) -> None:
    """Raise UserError where a file that is changed in its place is a link to another."""
    if path.is_symlink():
        raise UserError(
            f"{path} is a link, and what it leads to would be written to; move it elsewhere"
        )


def open_in_place(path: pathlib.Path, flags: int) -> int:
    """A descriptor of a file that is changed where it stands, made where there is none, and never
    emptied.
    """
    refuse_link(path)
    return os.open(path, flags | os.O_CREAT | NO_LINK, 0o666)


@contextlib.contextmanager
def locked(path: pathlib.Path, wait: bool = False) -> Iterator[None]:
    """Hold this lock for this process alone; BlockingIOError where another one does, unless its end
    is waited for.
    """
    import fcntl  # of systems that have it

    file = open_in_place(path, os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        _held[path.absolute()] = _identity(os.fstat(file))
        yield
    finally:
        _held.pop(path.absolute(), None)
        os.close(file)


def check_held(path: pathlib.Path) -> None:
    """Raise RunError where a folder that this process has locked is another one by now: it was
    moved, or unlocked.
    """
    path = path.absolute()
    for lock, identity in _held.items():
        if path.is_relative_to(lock.parent):
            try:
                same = _identity(lock.lstat()) == identity
            except OSError:
                same = False
            if not same:
                raise RunError(
                    f"{lock.parent} was moved, or its {lock.name} deleted, while it was written; the same command goes "
                    "on where it lies now"
                )


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def begun(path: pathlib.Path) -> pathlib.Path:
    """What this is called while it is being written: beside its place, and by a name that nobody
    can foresee.
    """
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def is_begun(name: str) -> bool:
    return BEGUN.fullmatch(name) is not None


def remove_begun(folder: pathlib.Path) -> None:
    """Remove what a killed process has left half written in a locked folder, but not where others
    may be working.
    """
    for parent, folders, names in os.walk(folder):
        for name in filter(is_begun, (*names, *folders)):
            path = pathlib.Path(parent, name)
            with contextlib.suppress(OSError):  # it can stay
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        apart = {
            name
            for name in folders
            if is_begun(name) or pathlib.Path(parent, name, ".lock").exists()
        }
        folders[:] = {*folders} - apart - OF_OTHERS


def _sync(folder: pathlib.Path) -> None:
    """That a file has another name is on the disk too, where a system can be asked for it."""
    with contextlib.suppress(OSError):
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
