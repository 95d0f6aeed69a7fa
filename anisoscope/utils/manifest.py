"""What a folder holds, file by file: manifest.jsonl, a line for each, with its size and digest.

A line is JSON, a tab and the first digits of a sha256: of those of the line before, and the JSON. So a line that is
changed, lost or moved shows. It is on the disk before its file is. A kill between the two leaves the file as it was,
and so the line before the last one of a path holds too, until the next session has looked; of a new file, that it was
not there. What has no line (a checkpoint that a kill came after, a run of an earlier version) is not known yet, and no
damage.
"""

import hashlib
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from anisoscope.utils import files
from anisoscope.utils.errors import EXHAUSTED

NAME = "manifest.jsonl"
DIGITS = 16
LINES = 16  # of a log, in a block with a digest of its own
LARGEST = 2**28  # bytes of a manifest
ASIDE = "damaged"  # how folders begin of what was set aside; they do not count, nor does what is written
CHECKPOINTS = "checkpoints"
BESIDE = "../report.html"  # the one file that may lie outside: the page of figures
MOST_SESSIONS = 2**20


class Entry(NamedTuple):
    """What a file was when it was written."""

    path: str  # below the folder
    bytes: int | None  # None: it was removed
    sha256: str
    blocks: tuple[tuple[int, str], ...] = ()  # of a log: where every LINES lines end, and their digest
    passing: bool = False  # a checkpoint that later ones replace: it may be gone
    session: int = 0
    about: str = ""  # of all of a checkpoint, on the line of one of its files: what its leaves digest to


class Manifest:
    """As it was read: of every path the last two entries, the sessions, and what of it is damaged."""

    def __init__(self) -> None:
        self.states: dict[str, list[Entry]] = {}
        self.sessions: list[dict[str, Any]] = []  # program and text, and the settings
        self.ended = True  # whether the last session was not killed
        self.damaged: list[int] = []  # lines
        self.guard = ""  # of the last line

    def add(self, entry: Entry) -> None:
        self.states[entry.path] = [*self.states.get(entry.path, []), entry][-2:]

    @property
    def settings(self) -> dict[str, Any] | None:
        return next((one["settings"] for one in reversed(self.sessions) if one.get("settings")), None)

    def lines(self) -> Iterator[dict[str, Any]]:
        """All that is known, shortest: a session, then what it wrote; and an end."""
        last = [states[-1] for states in self.states.values() if states[-1].bytes is not None]
        for number, session in enumerate(self.sessions):
            own = [entry for entry in last if entry.session == number]
            if own or number == len(self.sessions) - 1:
                yield {"session": number, **session}
            yield from map(of_entry, own)
        yield {"end": len(last)}


def of_entry(entry: Entry, first: int = 0) -> dict[str, Any]:
    """Without what is empty; of a log the blocks from this one on."""
    values = {name: value for name, value in entry._asdict().items() if value or name == "bytes"}
    if entry.blocks:
        values |= {"from": first, "blocks": entry.blocks[first:]}
    if (step := step_of(entry.path)) is not None:
        values["step"] = step
    return values


def step_of(path: str) -> int | None:
    """The checkpoint that a file belongs to, by its place."""
    parts = pathlib.PurePath(path).parts
    if CHECKPOINTS in parts[:-1]:
        word = parts[parts.index(CHECKPOINTS) + 1]
    else:
        word = pathlib.PurePath(path).stem if path.endswith(".nc") else ""
    return int(word) if word.isdecimal() else None


def unit(path: str) -> str:
    """What is whole or not at all: all of a checkpoint, or the file."""
    parts = pathlib.PurePath(path).parts
    at = parts.index(CHECKPOINTS) if CHECKPOINTS in parts[:-1] else None
    return path if at is None else "/".join(parts[: at + 2])


def read(folder: pathlib.Path) -> Manifest:
    """Lines that are damaged are left out, and told by number. One cut short by a kill is no damage."""
    manifest = Manifest()
    try:
        if (folder / NAME).is_symlink():
            raise ValueError("it is a link")
        content = files.read_small(folder / NAME, LARGEST)
    except FileNotFoundError:
        return manifest
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in EXHAUSTED:
            raise
        manifest.damaged, manifest.ended = [0], False
        return manifest
    *lines, rest = content.split(b"\n")
    manifest.ended, newest = False, None
    for number, line in enumerate(lines, 1):
        text, _, digits = line.rpartition(b"\t")
        good = digits.decode(errors="replace") == guard(manifest.guard, text)
        manifest.guard = digits.decode(errors="replace")
        try:
            if not good:
                raise ValueError("it has changed")
            newest = _take(manifest, files.from_json(text))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            manifest.damaged.append(number)
    if manifest.ended and rest:  # a kill leaves a line cut short where there is no end yet
        manifest.damaged.append(len(lines) + 1)
    states = manifest.states.get(newest or "", ())
    if not manifest.ended and len(states) == 1:  # a kill may have come before the file
        manifest.states[newest] = [Entry(newest, None, ""), *states]
    return manifest


def _take(manifest: Manifest, values: dict[str, Any]) -> str | None:
    """The path that a line is of."""
    manifest.ended = "end" in values
    if "session" in values and "path" not in values:
        number = values.pop("session")
        known = _whole(number) and number < MOST_SESSIONS and isinstance(values.get("settings", {}), dict)
        if not known or not all(isinstance(values.get(name) or "", str) for name in ("program", "text")):
            raise ValueError("it is no session")
        manifest.sessions += [{}] * (number + 1 - len(manifest.sessions))
        manifest.sessions[number] = values
    elif "path" in values:
        first, before = values.pop("from", 0), manifest.states.get(values["path"], [Entry("", 0, "")])[-1]
        values.pop("step", None)
        blocks = (*before.blocks[:first], *map(tuple, values.pop("blocks", ())))
        manifest.add(entry := _sound(Entry(**{"sha256": ""} | values, blocks=blocks)))
        return entry.path
    return None


def _sound(entry: Entry) -> Entry:
    """ValueError where it is of no file of this folder, as in a manifest that somebody else has made."""
    path = pathlib.PurePosixPath(entry.path)
    inside = entry.path == BESIDE or not (path.is_absolute() or ".." in path.parts)
    if not (inside and path.parts and "\0" not in entry.path and str(path) == entry.path):
        raise ValueError("it is no path below the folder")
    ends = [0, *(end for end, _ in entry.blocks)]
    if not (entry.bytes is None or _whole(entry.bytes)) or not all(map(_whole, ends)) or ends != sorted(ends):
        raise ValueError("it has no size")
    if not all(isinstance(one, str) for one in (entry.sha256, entry.about, *(digest for _, digest in entry.blocks))):
        raise ValueError("it has no digest")
    return entry


def _whole(number: Any) -> bool:
    return type(number) is int and number >= 0


def guard(before: str, text: bytes) -> str:
    return hashlib.sha256(before.encode() + text).hexdigest()[:DIGITS]


def counts(path: str) -> bool:
    """Whether a file is one that the manifest is to hold."""
    parts = pathlib.PurePath(path).parts
    return not (
        parts[0].startswith(ASIDE)
        or parts[0] == "figures"  # which have their own, as the page has with them: drawing holds no lock of the run
        or "residuals" in parts  # of a sweep at work
        or parts[-1] in (NAME, ".lock", "report.html")
        or any(files.is_begun(part) or part.endswith(".orbax-checkpoint-tmp") for part in parts)
    )


def listed(folder: pathlib.Path) -> Iterator[str]:
    """Files that count, below the folder; those of runs inside are their own."""
    for parent, folders, names in os.walk(folder):
        here = pathlib.Path(parent)
        links = [name for name in folders if (here / name).is_symlink()]
        for name in (*names, *links):
            path = (here / name).relative_to(folder).as_posix()
            if counts(path):
                yield path
        runs = [name for name in folders if here == folder and (here / name / ".lock").exists()]
        folders[:] = sorted({*folders} - {*links} - {*runs})


def entry_of(path: pathlib.Path, name: str, before: Entry | None = None) -> Entry:
    """Of the file as it is. Of a log only what comes after the whole blocks that are known."""
    if not name.endswith("train.jsonl"):
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return Entry(name, file.tell(), digest)
    known = before.blocks[:-1] if before else ()
    start = known[-1][0] if known else 0
    with open(path, "rb") as file:
        file.seek(start)
        blocks = tuple(_blocks(file.read(), start))
    return Entry(name, blocks[-1][0] if blocks else 0, "", (*known, *blocks))


def _blocks(content: bytes, file_start: int) -> Iterator[tuple[int, str]]:
    """Whole lines alone."""
    lines = content.split(b"\n")[:-1]
    for first in range(0, len(lines), LINES):
        block = b"".join(line + b"\n" for line in lines[first : first + LINES])
        file_start += len(block)
        yield file_start, hashlib.sha256(block).hexdigest()[:DIGITS]


def wrong(path: pathlib.Path, states: Sequence[Entry], grows: bool, deep: bool = True) -> str:
    """What is wrong with a file that was one of these; nothing: "". One that `grows` may have more lines by now."""
    last = states[-1]
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return "" if any(one.bytes is None or one.passing for one in states) else "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    kind = next((words for is_it, words in KINDS.items() if getattr(path, is_it)()), "")
    if kind:
        return f"is {kind}"
    try:
        if any(_matches(path, status.st_size, one, grows, deep) for one in states if one.bytes is not None):
            return ""
        if last.bytes is None:
            return "is there, though it was removed"
        if last.blocks:
            return lines_changed(path, last)
    except OSError as error:
        if error.errno in EXHAUSTED:
            raise
        return f"cannot be read ({error.strerror})"
    if status.st_size != last.bytes:
        return f"holds {status.st_size:,} bytes, not {last.bytes:,}"
    return "has changed since it was written"


KINDS = {"is_symlink": "a link", "is_dir": "a folder", "is_fifo": "a pipe", "is_socket": "a socket"}


def _matches(path: pathlib.Path, size: int, entry: Entry, grows: bool, deep: bool) -> bool:
    if entry.blocks:
        whole = size == entry.bytes or (grows and size > entry.bytes)
        return whole and next(bad_blocks(path, entry), None) is None
    return size == entry.bytes and (not deep or entry_of(path, entry.path).sha256 == entry.sha256)


def bad_blocks(path: pathlib.Path, entry: Entry) -> Iterator[int]:
    """Numbers of the blocks of a log that are not what they were."""
    start = 0
    with open(path, "rb") as file:
        for number, (end, digest) in enumerate(entry.blocks):
            if hashlib.sha256(file.read(end - start)).hexdigest()[:DIGITS] != digest:
                yield number
            start = end


def lines_changed(path: pathlib.Path, entry: Entry) -> str:
    """Of a log which lines, as near as is known."""
    bad, size = [*bad_blocks(path, entry)], path.stat().st_size
    if not bad:
        return f"has {size - entry.bytes:,} bytes more than were written"
    if size < entry.bytes and size == (entry.blocks[bad[0] - 1][0] if bad[0] else 0):
        return f"is cut after line {bad[0] * LINES:,}"
    more = f", and {len(bad) - 1} more blocks" if len(bad) > 1 else ""
    return f"has changed in lines {bad[0] * LINES + 1:,} to {(bad[0] + 1) * LINES:,}{more}"
