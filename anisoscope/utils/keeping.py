"""Who writes a manifest (utils/manifest.py): the one process that holds a folder, whenever it writes a file there."""

import contextlib
import errno
import itertools
import json
import os
import pathlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

from anisoscope.utils import files, manifest
from anisoscope.utils.errors import UserError


class _Keeper:
    """The manifest of a folder that this process alone writes to."""

    def __init__(self, folder: pathlib.Path):
        self.folder, self.manifest, self.begun = folder, manifest.read(folder), False
        self.about = dict(self.manifest.sessions[-1]) if self.manifest.sessions else {}
        self.session = 0

    def last(self, name: str) -> manifest.Entry | None:
        return self.manifest.states.get(name, [None])[-1]

    def write(self, *entries: manifest.Entry) -> None:
        """Those that say something new, on the disk at once."""
        lines = b""
        for entry in entries:
            last = self.last(entry.path)
            known = (last or manifest.Entry(entry.path, None, ""))._replace(session=0)
            if entry._replace(session=0) == known:
                continue
            self.begin()
            entry = entry._replace(session=self.session)
            both = zip(last.blocks if last else (), entry.blocks, strict=False)
            same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], both))
            lines += self.line(manifest.of_entry(entry, same))
            self.manifest.add(entry)
        if lines:
            try:
                self.append(lines)
            except OSError:
                self.begun = False  # a line may be cut short, and no other may come behind it
                raise

    def append(self, lines: bytes) -> None:
        with os.fdopen(files.open_in_place(self.folder / manifest.NAME, os.O_WRONLY | os.O_APPEND), "ab", 0) as file:
            if file.write(lines) != len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.folder / manifest.NAME))
            os.fsync(file.fileno())

    def line(self, values: dict[str, Any]) -> bytes:
        text = json.dumps(values).encode()
        self.manifest.guard = manifest.guard(self.manifest.guard, text)
        return text + b"\t" + self.manifest.guard.encode() + b"\n"

    def begin(self) -> None:
        """Say who writes from here on, in a manifest without what is not needed any more; a damaged one is kept."""
        if self.begun:
            return
        self.begun = True
        if self.manifest.damaged:
            set_aside(self.folder, [manifest.NAME])
        for name, states in self.manifest.states.items():
            both = (states[:1], states[-1:]) if len(states) > 1 else ()
            if [bool(manifest.wrong(self.folder / name, one, True)) for one in both] == [False, True]:
                self.manifest.states[name] = states[:1]
            self._take_in_what_has_grown(name)
        if not self.manifest.sessions or self.manifest.sessions[-1] != self.about:
            self.manifest.sessions.append(self.about)
        self.session = len(self.manifest.sessions) - 1
        self.compact(ended=False)

    def _take_in_what_has_grown(self, name: str) -> None:
        """Lines of a log that a kill came after, before they were written down here."""
        path, last = self.folder / name, self.manifest.states[name][-1]
        if self.manifest.ended or not last.blocks or not manifest.wrong(path, [last], False):
            return
        if not manifest.wrong(path, [last], True):
            self.manifest.states[name] = [manifest.entry_of(path, name, last)._replace(session=last.session)]

    def compact(self, ended: bool = True) -> None:
        self.manifest.guard, lines = "", []
        for values in self.manifest.lines():
            if ended or "end" not in values:
                lines.append(self.line(values))
        self.manifest.damaged, self.manifest.ended = [], ended
        last = {name: states[-1:] for name, states in self.manifest.states.items()}
        self.manifest.states = {name: states for name, states in last.items() if states[0].bytes is not None}
        files.write(self.folder / manifest.NAME, b"".join(lines))


_keepers: dict[pathlib.Path, _Keeper] = {}


@contextlib.contextmanager
def keeping(folder: pathlib.Path) -> Iterator[None]:
    """What is written into this folder, which is locked, is written down."""
    folder = folder.absolute()
    keeper = _keepers[folder] = _Keeper(folder)
    files.watchers.append(_written)
    ended = False
    try:
        yield
        ended = True
    finally:
        files.watchers.remove(_written)
        del _keepers[folder]
        if keeper.begun and ended:  # after an interruption, of a file may hold what was before its last line
            keeper.compact()


@contextlib.contextmanager
def alone(folder: pathlib.Path, beside: pathlib.Path | None = None) -> Iterator[None]:
    """As `keeping`, and one process after another; without a word where the folder cannot be locked.

    A file `beside` the folder may be written too: it is in the manifest by its path from there.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, ImportError):  # a system may have no such locks
            stack.enter_context(files.locked(folder / ".lock", wait=True))
            stack.enter_context(keeping(folder))
            if beside:
                _beside[beside.absolute()] = folder.absolute()
                stack.callback(_beside.pop, beside.absolute())
        yield


_beside: dict[pathlib.Path, pathlib.Path] = {}


def kept(path: pathlib.Path) -> tuple[_Keeper | None, str]:
    """Who keeps it, the nearest, and its name there."""
    path = path.absolute()
    if path in _beside:
        return _keepers[_beside[path]], os.path.relpath(path, _beside[path])
    for parent in path.parents:
        if parent in _keepers:
            return _keepers[parent], path.relative_to(parent).as_posix()
    return None, ""


def of_session(folder: pathlib.Path, program: str, text: str | None) -> None:
    """What writes from here on, and the text that it reads."""
    keeper = _keepers.get(folder.absolute())
    if keeper:
        about = {"program": program, "text": text}
        with contextlib.suppress(UserError):
            about["settings"] = files.read_json(folder / "config.json", "")
        keeper.about = about
        if not keeper.last("config.json"):
            note(folder / "config.json")


def begin(folder: pathlib.Path) -> None:
    """Write the manifest, whether or not anything else is to be written."""
    keeper = _keepers.get(folder.absolute())
    if keeper:
        keeper.begin()


def of_folder(folder: pathlib.Path) -> manifest.Manifest:
    """As it is kept here, or lies there."""
    keeper = _keepers.get(folder.absolute())
    return keeper.manifest if keeper else manifest.read(folder)


def _written(path: pathlib.Path, content: pathlib.Path | None) -> None:
    """Before a file takes its place, or goes."""
    keeper, name = kept(path)
    if keeper and (manifest.counts(name) or path.absolute() in _beside):
        keeper.write(manifest.entry_of(content, name) if content else manifest.Entry(name, None, ""))


def note(path: pathlib.Path, passing: bool = False, about: str = "") -> None:
    """Take in a file, or all of a folder, as it is now; what is gone is forgotten."""
    keeper, name = kept(path)
    if not keeper:
        return
    there = (
        [name] if path.is_file() else [f"{name}/{inner}" for inner in manifest.listed(path)] if path.is_dir() else []
    )
    entries = []
    for one in filter(manifest.counts, there):
        entry = manifest.entry_of(keeper.folder / one, one, keeper.last(one))
        of_all = about if one.endswith("_CHECKPOINT_METADATA") else ""
        entries.append(entry._replace(passing=passing, about=of_all))
    before = (one for one in keeper.manifest.states if one == name or one.startswith(f"{name}/"))
    keeper.write(*entries, *(manifest.Entry(one, None, "") for one in {*before} - {*there}))


def set_aside(folder: pathlib.Path, names: Sequence[str]) -> pathlib.Path:
    """Move files or folders to a new folder damaged-<time> inside; nothing is deleted."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    to = next(one for i in range(1000) if not (one := folder / f"{manifest.ASIDE}-{stamp}{f'-{i}' * bool(i)}").exists())
    for name in names:
        target = to / name.removeprefix("../")
        target.parent.mkdir(parents=True, exist_ok=True)
        if (folder / name).exists() or (folder / name).is_symlink():
            os.rename(folder / name, target)
    return to
