"""checksums.sha256: a line for each file of a folder, as `sha256sum -c checksums.sha256` reads it.

It is written anew when a stage ends. Before a stage, the lines of what the stage may write again
are checked and dropped. So whenever a kill comes, a file has a line that holds, or none.
"""

import contextlib
import hashlib
import os
import pathlib
import re
from collections.abc import Iterator

from anisoscope.utils import files
from anisoscope.utils.errors import EXHAUSTED, RunError

NAME = "checksums.sha256"
LARGEST = 2**28  # bytes
LINE = re.compile(r"([0-9a-f]{64})  (?!/)([^\\\r]+)")
CHECKPOINTS = "checkpoints"
# Files outside CHECKPOINTS and export that are recorded; others are the user's.
KINDS = (".nc", ".csv", ".json", ".jsonl")
LOGGED = ("train.jsonl", "test.json", "events")  # how names begin that training alone writes
FINISHED = "test.json"
DELETE = "delete it, and the same command makes it again"
UNKNOWN = f"is not recorded in {NAME}"


def read(folder: pathlib.Path) -> dict[str, str]:
    """Read {path below the folder: sha256}; empty without a record, RunError where it is damaged."""
    path, lines = folder / NAME, {}
    try:
        text = files.read_small(path, LARGEST).decode()
    except FileNotFoundError:
        return lines
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in EXHAUSTED:
            raise
        raise RunError(f"{path} cannot be read ({error}); {DELETE}") from error
    for number, line in enumerate(text.splitlines(), 1):
        match = LINE.fullmatch(line)
        if match is None or ".." in match[2].split("/"):
            raise RunError(f"{path} is damaged in line {number}; {DELETE}")
        lines[match[2]] = match[1]
    return lines


def listed(folder: pathlib.Path) -> Iterator[str]:
    """List the files that a record holds, without those of a run inside or of linked folders."""
    for parent, folders, names in os.walk(folder):
        here = pathlib.Path(parent)
        if here != folder and {".lock", NAME} & {*names}:  # another run
            folders.clear()
            continue
        folders[:] = [name for name in folders if not _is_passing(name, here == folder)]
        whole = {CHECKPOINTS, "export"} & {*here.relative_to(folder).parts}
        for name in names:
            recorded = whole or name.endswith(KINDS) or name.startswith("events.")
            if recorded and not _is_passing(name, False) and not re.search(r"[\\\r\n]", name):
                yield (here / name).relative_to(folder).as_posix()


def _is_passing(name: str, top: bool) -> bool:
    """Whether a file or folder is being written, was moved aside, or is drawn again."""
    if files.is_temporary(name) or name.endswith(".orbax-checkpoint-tmp") or name == "residuals":
        return True
    return top and (name == "figures" or name.startswith("damaged"))


def digest(path: pathlib.Path) -> str:
    """Compute the sha256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def problem(path: pathlib.Path, expected: str) -> str:
    """Say what is wrong with a file; empty where nothing is."""
    if path.is_symlink():
        return "is a link"
    try:
        files.check_regular(path)
        return "" if digest(path) == expected else "has changed since it was written"
    except (FileNotFoundError, NotADirectoryError):
        return "is missing"
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in EXHAUSTED:
            raise
        return f"cannot be read ({getattr(error, 'strerror', None) or error})"


def unit(name: str) -> str:
    """Find what is whole or not at all: all of a checkpoint, or the file."""
    parts = name.split("/")
    return "/".join(parts[: parts.index(CHECKPOINTS) + 2]) if CHECKPOINTS in parts[:-2] else name


def advice(name: str, why: str) -> str:
    """Say how a file comes back that is damaged, missing or not recorded."""
    if why == UNKNOWN:
        return "the same command records it; move away what somebody else put there"
    parts, delete = unit(name).split("/"), "" if why == "is missing" else "delete it: "
    if name == "config.json":
        return "put it back as it was, or name another --workdir: nothing makes it again"
    if parts[0].startswith(("events", "train")):
        return "put it back, or delete it: training goes on without what it said"
    if parts[0] == CHECKPOINTS:
        replay = f"--stages=replay --step={parts[-1]} makes it again"
        return f"{delete}training goes on from the one before, and {replay}"
    return f"{delete}the same command makes it again"


def changed(folder: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Find the files outside of checkpoints that are not as they were written."""
    for name, expected in read(folder).items():
        if unit(name) == name:
            what = problem(folder / name, expected)
            if what and what != "is missing":
                yield name, what


def refuse_changed(folder: pathlib.Path) -> None:
    """Raise RunError where a file outside of checkpoints has changed since it was written."""
    for name, what in changed(folder):
        raise RunError(f"{folder / name} {what}; {advice(name, what)} (--stages=verify names all)")


def begin(folder: pathlib.Path) -> None:
    """Drop the lines of what a stage may write again; RunError where something has changed."""
    refuse_changed(folder)
    lines, trained = read(folder), (folder / FINISHED).exists()

    def is_settled(name: str) -> bool:
        """Whether no stage writes it again while it exists."""
        kept = name == "config.json" or name.startswith(f"{CHECKPOINTS}/")
        return (folder / name).exists() and (kept or (trained and name.startswith(LOGGED)))

    _save(folder, {name: line for name, line in lines.items() if is_settled(name)}, lines)


def write(folder: pathlib.Path) -> None:
    """Record every file that has no line, and drop the lines of those that are gone."""
    lines = read(folder)
    now = {name: lines.get(name) or digest(folder / name) for name in listed(folder)}
    _save(folder, now, lines)


def forget(path: pathlib.Path) -> None:
    """Drop the lines of a file or folder before it goes or is written anew."""
    for folder in path.parents:
        if (folder / NAME).exists():
            prefix, lines = f"{path.relative_to(folder).as_posix()}/", read(folder)
            left = {name: line for name, line in lines.items() if not f"{name}/".startswith(prefix)}
            _save(folder, left, lines)
            return


def _save(folder: pathlib.Path, lines: dict[str, str], before: dict[str, str]) -> None:
    if lines != before or not (folder / NAME).exists():
        files.write(folder / NAME, "".join(f"{lines[name]}  {name}\n" for name in sorted(lines)))


@contextlib.contextmanager
def kept(folder: pathlib.Path) -> Iterator[None]:
    """Keep the record of a locked folder while its files are written."""
    begin(folder)
    try:
        yield
    except Exception:  # a stop, or what a user can put right: what is written is whole
        with contextlib.suppress(OSError, RunError):
            write(folder)
        raise
    write(folder)
