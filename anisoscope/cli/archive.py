"""Is a run whole? A quick look at every start and in --status; all of it in the stage `verify`."""

import contextlib
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from anisoscope.config.experiment import Config
from anisoscope.measurement.sources import provenance
from anisoscope.measurement.tables import files as tables
from anisoscope.measurement.tables import measurements
from anisoscope.measurement.tables.measurements import STREAM, TANGENTS
from anisoscope.training import checkpoint, finished, log
from anisoscope.utils import files, keeping, manifest
from anisoscope.utils.errors import EXHAUSTED, RunError, UserError
from anisoscope.utils.memory import format_bytes

SMALL = 2**16  # bytes: files that the quick look reads
WITHOUT_CHECK = ("train.jsonl", "test.json", "environment.json", "config.json")  # whose content nothing else checks
MOST = 6  # lines at a start
REPAIR = "--stages=verify names all, and with --repair moves it aside and computes it again"


def changed(folder: pathlib.Path) -> dict[str, str]:
    """What sizes, small files and logs tell: {what: what is wrong}. What is merely missing is told by who needs it."""
    known = manifest.read(folder)
    words = {}
    if known.damaged:
        words[manifest.NAME] = damaged_lines(known)
    for path, states in known.states.items():
        deep = (states[-1].bytes or 0) <= SMALL and manifest.unit(path) == path
        if (what := manifest.wrong(folder / path, states, not known.ended, deep)) not in ("", "is missing"):
            words.setdefault(manifest.unit(path), what if manifest.unit(path) == path else f"{path} {what}")
    return words


def damaged_lines(known: manifest.Manifest) -> str:
    if known.damaged == [0]:
        return "is a link, or cannot be read"
    return f"is damaged in line{'s' * (len(known.damaged) > 1)} {some(known.damaged)}"


def refuse_changed(folders: dict[str, pathlib.Path]) -> None:
    """Tell what has changed since it was written; RunError where nothing else would notice before it is used."""
    for name, folder in folders.items():
        words = changed(folder) if folder.is_dir() else {}
        for what in WITHOUT_CHECK:
            if what in words and "is cut after" not in words[what]:
                raise RunError(f"{folder / what} {words[what]}; {REPAIR}")
        for number, (what, why) in enumerate(words.items()):
            if number < MOST:
                print(f"{name}: {folder / what} {why}")
        if words:
            print(f"{name}: {f'and {len(words) - MOST} more; ' if len(words) > MOST else ''}{REPAIR}")


class Report(NamedTuple):
    """Of a folder, by what is whole or not at all: a file, or all of a checkpoint."""

    folder: pathlib.Path
    wrong: dict[str, str]
    adopted: list[str]  # sound, and not in the manifest before
    others: list[str]  # of no kind that is known
    files: int
    bytes: int


def examine(folder: pathlib.Path, config: Config | None) -> Report:
    """Every byte of a folder that is locked, against its manifest; what that does not know, against its own checks."""
    known = keeping.of_folder(folder)
    wrong = wrong_of(folder, known)
    units, sizes = {manifest.unit(path) for path in known.states}, []
    passing = {manifest.unit(path) for path, states in known.states.items() if states[-1].passing}
    adopted, others, new = [], [], {}
    for path in [*manifest.listed(folder), *(one for one in empty(folder) if one not in passing)]:
        with contextlib.suppress(OSError):
            sizes.append((folder / path).lstat().st_size)
        if path not in known.states:
            new.setdefault(manifest.unit(path), []).append(path)
    for one, paths in new.items():
        if one in units and one not in paths:
            wrong.setdefault(one, f"{paths[0].removeprefix(one + '/')} is none of its files")
        elif (folder / one).is_symlink() or one in wrong:
            wrong.setdefault(one, "is a link")
        else:
            try:
                (adopted if adopt(folder, one, config) else others).append(one)
            except (RunError, UserError, OSError, ValueError) as error:
                if isinstance(error, OSError) and error.errno in EXHAUSTED:
                    raise
                wrong[one] = f"is damaged or not its own ({error})"
    return Report(folder, swapped(folder, wrong, known), adopted, others, len(sizes), sum(sizes))


def wrong_of(folder: pathlib.Path, known: manifest.Manifest) -> dict[str, str]:
    """What its manifest tells, every byte read: {what: what is wrong}."""
    wrong = {manifest.NAME: damaged_lines(known)} if known.damaged else {}
    for path, states in known.states.items():
        if what := manifest.wrong(folder / path, states, not known.ended):
            one = manifest.unit(path)
            wrong.setdefault(one, what if one == path else f"{path.removeprefix(one + '/')} {what}")
    return wrong


def empty(folder: pathlib.Path) -> Iterator[str]:
    """Folders of checkpoints that hold no file."""
    for path in folder.glob("**/checkpoints/*"):
        name = path.relative_to(folder).as_posix()
        if path.name.isdecimal() and manifest.counts(name) and path.is_dir() and not any(path.iterdir()):
            yield name


def swapped(folder: pathlib.Path, wrong: dict[str, str], known: manifest.Manifest) -> dict[str, str]:
    """Where a file has what another one had, say so."""
    by_digest = {states[-1].sha256: path for path, states in known.states.items() if states[-1].sha256}
    reasons = dict(wrong)
    for one in wrong:
        path = folder / one
        with contextlib.suppress(OSError):
            if one in known.states and path.is_file() and not path.is_symlink():
                other = by_digest.get(manifest.entry_of(path, one).sha256)
                reasons[one] = f"holds what was written to {other}" if other else wrong[one]
    return reasons


def adopt(folder: pathlib.Path, name: str, config: Config | None) -> bool:
    """Take in what the manifest lacks, where its own checks find nothing; False where its kind is unknown."""
    path = folder / name
    check = next((check for pattern, check in CHECKS.items() if path.match(pattern)), None)
    if check is None:
        return False
    keeping.note(path, about=check(folder, path, config) or "")
    return True


def of_checkpoint(folder: pathlib.Path, path: pathlib.Path, config: Config | None) -> str:
    with contextlib.closing(checkpoint.Checkpoints(path.parent, kept=[], reading=True)) as store:
        return store.check(int(path.name))


def of_table(folder: pathlib.Path, path: pathlib.Path, config: Config | None) -> None:
    place = path.relative_to(folder).parts[:-1]
    kind = {"measurements": STREAM, "tangents": TANGENTS}.get(place[-1] if place else "")
    if kind is None or not path.stem.isdecimal():
        tables.read_table(path)
        return
    kind = place[1] if place[0] in ("hook_points", "sites") else kind
    measurements.read_step(path, kind, provenance.settings_of(config) if config else None)


def of_score(folder: pathlib.Path, path: pathlib.Path, config: Config | None) -> None:
    score = finished.read_score(folder)
    if config and score.get("step", config.train.steps) != config.train.steps:
        raise RunError(f"it is of step {score['step']}, and the run ends at {config.train.steps}")


def of_json(folder: pathlib.Path, path: pathlib.Path, config: Config | None) -> None:
    files.read_json(path, "")


def of_any(folder: pathlib.Path, path: pathlib.Path, config: Config | None) -> None:
    """Nothing can be checked but that it can be read."""
    with open(path, "rb") as file:
        file.read(1)


CHECKS: dict[str, Callable[[pathlib.Path, pathlib.Path, Config | None], str | None]] = {
    "checkpoints/*": of_checkpoint,
    "*.nc": of_table,
    "test.json": of_score,
    "train.jsonl": lambda folder, path, _: log.check_order(log.read_log(folder), path),
    "*.json": of_json,
    "*.csv": of_any,
    "train.*.jsonl": of_any,
    "events.out.tfevents.*": of_any,
    "export/*": of_any,
}


def verify(name: str, folder: pathlib.Path, config: Config | None) -> Report:
    """A line for each thing that is wrong; one line, with counts, where nothing is."""
    began = time.perf_counter()
    report = examine(folder, config)
    for one, what in report.wrong.items():
        print(f"{name}: {folder / one} {what}")
    if report.adopted:
        print(f"{name}: not in {manifest.NAME} before, sound by its own checks: {some(report.adopted)}")
    if report.others:
        print(f"{name}: no part of the run, left alone: {some(report.others)}")
    if not report.wrong:
        seconds, size = time.perf_counter() - began, format_bytes(report.bytes)
        print(f"{name}: whole: {report.files:,} files, {size}, as they were written ({seconds:.1f} s)")
    return report


def figures(root: pathlib.Path, title: str) -> Report:
    """Figures and page, which have a manifest of their own."""
    folder = root / "figures"
    known = manifest.read(folder)
    wrong = wrong_of(folder, known)
    for one, what in wrong.items():
        print(f"{title}: {os.path.normpath(folder / one)} {what}")
    return Report(folder, wrong, [], [], len(known.states), 0)


def some(names: Sequence[str | int]) -> str:
    return ", ".join(map(str, names[:MOST])) + (f" and {len(names) - MOST:,} more" if len(names) > MOST else "")
