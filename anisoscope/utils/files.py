"""Files that appear whole or not at all, and are written where they stand: no link is followed.

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
TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")
LARGEST_JSON = 2**26  # bytes: beyond them a file is no settings of ours
# Orbax clears up after itself, and drawing holds no lock.
FOREIGN = {"checkpoints", "figures"}
_locks: dict[pathlib.Path, tuple[int, int]] = {}  # of this process, and which file each of them is


@contextlib.contextmanager
def replacing(path: pathlib.Path, synced: bool = True) -> Iterator[BinaryIO]:
    """Open a new file that replaces `path` when all is written, and if `synced` is on the disk."""
    check_held(path)
    temporary = temporary_path(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK
    try:
        with os.fdopen(os.open(temporary, flags, 0o666), "wb") as file:
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
        with contextlib.suppress(OSError):  # of systems that can sync the file's name too
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def write(path: pathlib.Path, content: bytes | str, synced: bool = True) -> None:
    """Write a file, all or nothing."""
    with replacing(path, synced) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def remove(path: pathlib.Path) -> None:
    """Remove a file if it exists."""
    check_held(path)
    path.unlink(missing_ok=True)


def write_json(path: pathlib.Path, values: Any) -> None:
    """Write values as JSON."""
    write(path, json.dumps(values, indent=2) + "\n")


def check_regular(path: pathlib.Path) -> int:
    """Return the size of a file; ValueError where it is a pipe or a device, which may not end."""
    state = path.stat()
    if not stat.S_ISREG(state.st_mode):
        raise ValueError("it is no regular file")
    return state.st_size


def read_small(path: pathlib.Path, most: int) -> bytes:
    """Read a regular file; ValueError where it holds more than `most` bytes."""
    if check_regular(path) > most:
        raise ValueError(f"it holds more than {most:,} bytes")
    return path.read_bytes()


def from_json(text: bytes | str) -> Any:
    """Parse JSON; ValueError where it is none, or nested too deep."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def read_json(path: pathlib.Path, advice: str) -> dict[str, Any]:
    """Read the object in a JSON file; UserError, which ends with the advice, where there is none."""
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
        why = "is a link, and what it leads to would be written to"
        raise UserError(f"{path} {why}; move it elsewhere")


def open_in_place(path: pathlib.Path, flags: int) -> int:
    """Open a descriptor of a file that is changed where it stands; make the file if needed."""
    refuse_link(path)
    return os.open(path, flags | os.O_CREAT | NO_LINK, 0o666)


@contextlib.contextmanager
def locked(path: pathlib.Path, wait: bool = False) -> Iterator[None]:
    """Hold a lock for this process alone; BlockingIOError where another has it, or `wait` for it."""
    import fcntl  # of systems that have it

    file = open_in_place(path, os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        status = os.fstat(file)
        _locks[path.absolute()] = status.st_dev, status.st_ino
        yield
    finally:
        _locks.pop(path.absolute(), None)
        os.close(file)


def check_held(path: pathlib.Path) -> None:
    """Raise RunError where a folder that this process has locked was moved or unlocked."""
    path = path.absolute()
    for lock, identity in _locks.items():
        if path.is_relative_to(lock.parent):
            try:
                status = lock.lstat()
                same = (status.st_dev, status.st_ino) == identity
            except OSError:
                same = False
            if not same:
                what = f"{lock.parent} was moved, or its {lock.name} deleted, while it was written"
                raise RunError(f"{what}; the same command goes on where it lies now")


def temporary_path(path: pathlib.Path) -> pathlib.Path:
    """Name a file or folder while it is being written: a sibling that nobody can foresee."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def is_temporary(name: str) -> bool:
    """Whether a name is one of `temporary_path`."""
    return TEMPORARY.fullmatch(name) is not None


def remove_temporary(folder: pathlib.Path) -> None:
    """Remove what a kill left half written in a locked folder, but not where others may work."""
    for parent, folders, names in os.walk(folder):
        for name in filter(is_temporary, (*names, *folders)):
            path = pathlib.Path(parent, name)
            with contextlib.suppress(OSError):  # it can stay
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        folders[:] = [
            name
            for name in folders
            if name not in FOREIGN
            and not is_temporary(name)
            and not pathlib.Path(parent, name, ".lock").exists()
        ]
