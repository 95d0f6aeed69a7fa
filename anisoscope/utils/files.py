"""Write files completely or not at all, and never through a link.

A folder may come from anywhere and contain links.
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
LARGEST_JSON = 2**26  # bytes; a larger file is not one of this package's settings
# Orbax removes its own temporary files, and drawing holds no lock.
FOREIGN = {"checkpoints", "figures"}
_locks: dict[pathlib.Path, tuple[int, int]] = {}  # this process's locks, with device and inode


@contextlib.contextmanager
def replacing(path: pathlib.Path, synced: bool = True) -> Iterator[BinaryIO]:
    """Open a new file that replaces `path` when complete; `synced` flushes it to the disk first."""
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
        with contextlib.suppress(OSError):  # not every system can sync the folder
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def write(path: pathlib.Path, content: bytes | str, synced: bool = True) -> None:
    """Write a file completely or not at all."""
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
    """Return the size of a file; raise ValueError for a pipe or device, which may never end."""
    state = path.stat()
    if not stat.S_ISREG(state.st_mode):
        raise ValueError("it is not a regular file")
    return state.st_size


def read_small(path: pathlib.Path, most: int) -> bytes:
    """Read a regular file; raise ValueError if it holds more than `most` bytes."""
    if check_regular(path) > most:
        raise ValueError(f"it holds more than {most:,} bytes")
    return path.read_bytes()


def from_json(text: bytes | str) -> Any:
    """Parse JSON; raise ValueError if it is invalid or nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read_json(path: pathlib.Path, advice: str) -> dict[str, Any]:
    """Read the object in a JSON file; raise UserError ending in `advice` if that fails."""
    try:
        content = from_json(read_small(path, LARGEST_JSON))
        if not isinstance(content, dict):
            raise ValueError(f"it holds a {type(content).__name__}, not an object")
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}); {advice}") from error
    return content


def refuse_link(path: pathlib.Path) -> None:
    """Raise UserError if a file to change in place is a link."""
    if path.is_symlink():
        why = "is a link, so that another file would be changed"
        raise UserError(f"{path} {why}; move it elsewhere")


def open_in_place(path: pathlib.Path, flags: int) -> int:
    """Open a descriptor of a file to change in place; create the file if needed."""
    refuse_link(path)
    return os.open(path, flags | os.O_CREAT | NO_LINK, 0o666)


@contextlib.contextmanager
def locked(path: pathlib.Path, wait: bool = False) -> Iterator[None]:
    """Hold an exclusive lock; raise BlockingIOError if it is taken, unless `wait`."""
    import fcntl  # not on every system

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
    """Raise RunError if a folder that this process locked was moved or unlocked."""
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
                raise RunError(f"{what}; the same command resumes in its new place")


def temporary_path(path: pathlib.Path) -> pathlib.Path:
    """Make an unpredictable sibling name for a file or folder that is being written."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def is_temporary(name: str) -> bool:
    """Whether a name was made by `temporary_path`."""
    return TEMPORARY.fullmatch(name) is not None


def remove_temporary(folder: pathlib.Path) -> None:
    """Remove temporary files in a locked folder, except where others may be working."""
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
