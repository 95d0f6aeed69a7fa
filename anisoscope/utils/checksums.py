"""The file checksums.sha256 of a folder, which `sha256sum -c checksums.sha256` reads too.

A stage takes it away before it writes into the folder, and writes it when it ends. What the stage
has not written keeps its line, also where its content has changed since.
"""

import contextlib
import hashlib
import os
import pathlib
from collections.abc import Iterator

from anisoscope.utils import files
from anisoscope.utils.errors import RunError

CHECKSUMS = "checksums.sha256"
CHECKED_SUFFIXES = (
    "",
    ".nc",
    ".csv",
    ".json",
    ".jsonl",
    ".ocdbt",
)  # figures and pages are drawn anew


def digest(path: pathlib.Path) -> str:
    """Compute the sha256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_checksums(folder: pathlib.Path) -> dict[str, str]:
    """Read {path relative to the folder: sha256}; empty if there is no record."""
    path = folder / CHECKSUMS
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    return {name: expected for expected, _, name in (line.partition("  ") for line in lines)}


def list_states(folder: pathlib.Path) -> dict[str, tuple[int, ...]]:
    """List the files to record, also behind links; runs in folders of their own are left out."""
    states = {}
    for parent, inner, names in os.walk(folder, followlinks=True):
        if parent != str(folder) and ".lock" in names:
            inner[:], names = [], []
        for path in (pathlib.Path(parent, name) for name in names):
            if path.suffix in CHECKED_SUFFIXES and path.name[0] != "." and path.is_file():
                stat = path.stat()
                state = stat.st_ino, stat.st_size, stat.st_mtime_ns
                states[path.relative_to(folder).as_posix()] = state
    return states


@contextlib.contextmanager
def recorded(folder: pathlib.Path) -> Iterator[None]:
    """Write the checksums of a locked folder when its stage has ended, also by an error."""
    before, states = read_checksums(folder), list_states(folder)
    (folder / CHECKSUMS).unlink(missing_ok=True)
    try:
        yield
    finally:
        text = ""
        for name, state in sorted(list_states(folder).items()):
            same = name in before and states.get(name) == state
            text += f"{before[name] if same else digest(folder / name)}  {name}\n"
        files.write_file(folder / CHECKSUMS, text)


def verify_files(folders: dict[str, pathlib.Path]) -> None:
    """Print a line for each folder or damaged file; raise RunError if anything is damaged."""
    damages = []
    for label, folder in folders.items():
        known, before = read_checksums(folder), len(damages)
        if not (folder / CHECKSUMS).exists():
            what = folder / CHECKSUMS if folder.is_dir() else folder
            damages.append(f"{what} is missing; the same command, run to its end, writes it")
        for name, expected in known.items():
            try:
                if digest(folder / name) != expected:
                    damages.append(f"{folder / name} has changed since it was written")
            except OSError as error:
                damages.append(f"{folder / name} cannot be read ({error.strerror})")
        found = damages[before:] or [f"{len(known):,} files, all unchanged"]
        print(*(f"{label}: {line}" for line in found), sep="\n")
    if damages:
        raise RunError(f"{len(damages)} of the files above are damaged or missing")
