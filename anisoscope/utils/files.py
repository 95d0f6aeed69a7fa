"""Write files completely or not at all."""

import contextlib
import errno
import json
import os
import pathlib
import re
import secrets
import shutil
from collections.abc import Iterator
from typing import Any, BinaryIO

from anisoscope.utils.errors import UserError

TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")
# Orbax removes its own temporary files, and drawing holds no lock.
FOREIGN = {"checkpoints", "figures"}


def user_path(path: str | os.PathLike[str]) -> pathlib.Path:
    """Read a path as a shell does: ~ is the user's home."""
    return pathlib.Path(os.path.expanduser(path))


@contextlib.contextmanager
def replacing(path: pathlib.Path) -> Iterator[BinaryIO]:
    """Open a new file that replaces `path` when it is complete and on the disk."""
    temporary = temporary_path(path)
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not every system can sync the folder
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_file(path: pathlib.Path, content: bytes | str) -> None:
    """Write a file completely or not at all."""
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_json(path: pathlib.Path, values: Any) -> None:
    """Write values as JSON."""
    write_file(path, json.dumps(values, indent=2) + "\n")


def read_bytes(path: pathlib.Path) -> bytes:
    """Read a file; raise OSError for a pipe or a device, which may have no end."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "a pipe, a device or a folder, not a file", str(path))
    return path.read_bytes()


def read_json(path: pathlib.Path, advice: str) -> dict[str, Any]:
    """Read the object in a JSON file; raise UserError ending in `advice` if that fails."""
    try:
        content = json.loads(read_bytes(path))
        if not isinstance(content, dict):
            raise ValueError(f"it holds a {type(content).__name__}, not an object")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UserError(f"{path} cannot be read ({why}); {advice}") from error
    return content


@contextlib.contextmanager
def locked_file(path: pathlib.Path, wait: bool = False, shared: bool = False) -> Iterator[None]:
    """Hold a lock, alone or `shared`; raise BlockingIOError if it is taken, unless `wait`."""
    import fcntl  # not on every system

    with open(path, "a") as file:
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        fcntl.flock(file, kind | (0 if wait else fcntl.LOCK_NB))
        yield


def temporary_path(path: pathlib.Path) -> pathlib.Path:
    """Make an unpredictable sibling name for a file or folder that is being written."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def is_temporary(name: str) -> bool:
    """Return whether a name was made by `temporary_path`."""
    return TEMPORARY.fullmatch(name) is not None


def remove_temporary(folder: pathlib.Path) -> None:
    """Remove temporary files in a locked folder, except where others may be working."""
    for parent, folders, names in os.walk(folder):
        for name in filter(is_temporary, (*names, *folders)):
            path = pathlib.Path(parent, name)
            with contextlib.suppress(OSError):  # it may stay
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        passed = {
            name for name in folders if pathlib.Path(parent, name, ".lock").exists()
        } | FOREIGN
        folders[:] = [name for name in folders if not (name in passed or is_temporary(name))]
