"""Damages to a run's folder, at random: what kinds there are, and what comes of one."""

import os
import pathlib
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from typing import NamedTuple

from anisoscope.utils import manifest

KINDS: dict[str, Callable[[random.Random, pathlib.Path, pathlib.Path], None]] = {
    "flip": lambda draw, path, other: change(path, lambda text: flipped(draw, text)),
    "truncate": lambda draw, path, other: change(path, lambda text: text[: draw.randrange(len(text))]),
    "zero": lambda draw, path, other: change(path, lambda text: bytes(len(text))),
    "append": lambda draw, path, other: change(path, lambda text: text + draw.randbytes(1 + draw.randrange(99))),
    "delete": lambda draw, path, other: path.unlink(),
    "swap": lambda draw, path, other: swap(path, other),
    "double a line": lambda draw, path, other: change(path, lambda text: with_lines(draw, text, doubled)),
    "swap two lines": lambda draw, path, other: change(path, lambda text: with_lines(draw, text, exchanged)),
    "folder": lambda draw, path, other: (path.unlink(), path.mkdir()),
    "link": lambda draw, path, other: link(path, other),
    "rights": lambda draw, path, other: path.chmod(0),
    "deep": lambda draw, path, other: path.write_bytes(b"[" * 200_000),
}
OF_LINES = ("double a line", "swap two lines")
GROUPS = {  # places, of which each is damaged as often as the others
    "checkpoint": "checkpoints/*/**/*",
    "table": "**/measurements/*.nc",
    "joined": "*.nc",
    "csv": "*.csv",
    "log": "train.jsonl",
    "score": "test.json",
    "environment": "environment.json",
    "settings": "config.json",
    "manifest": "manifest.jsonl",
    "figure": "figures/*.p*",
    "page": "report.html",
    "events": "events.*",
}
TRACE = re.compile(r"Traceback|Error\b.*\n.*File ", re.MULTILINE)


class Damage(NamedTuple):
    group: str
    kind: str
    path: pathlib.Path
    other: pathlib.Path  # that it is swapped with, or linked to


def change(path: pathlib.Path, how: Callable[[bytes], bytes]) -> None:
    path.write_bytes(how(path.read_bytes()))


def flipped(draw: random.Random, text: bytes) -> bytes:
    at, bit = draw.randrange(len(text)), draw.randrange(8)
    return text[:at] + bytes([text[at] ^ 1 << bit]) + text[at + 1 :]


def with_lines(draw: random.Random, text: bytes, how: Callable[[random.Random, list[bytes]], None]) -> bytes:
    lines = text.splitlines(keepends=True)
    how(draw, lines)
    return b"".join(lines)


def doubled(draw: random.Random, lines: list[bytes]) -> None:
    at = draw.randrange(len(lines))
    lines.insert(at, lines[at])


def exchanged(draw: random.Random, lines: list[bytes]) -> None:
    a, b = draw.sample(range(len(lines)), 2)
    lines[a], lines[b] = lines[b], lines[a]


def swap(path: pathlib.Path, other: pathlib.Path) -> None:
    a, b = path.read_bytes(), other.read_bytes()
    path.write_bytes(b)
    other.write_bytes(a)


def link(path: pathlib.Path, other: pathlib.Path) -> None:
    kept = path.with_name(f"{path.name}.elsewhere")
    path.rename(kept)
    path.symlink_to(kept.name if other == path else os.path.relpath(other, path.parent))


def draw_damage(draw: random.Random, run: pathlib.Path) -> Damage:
    """Of a run's folder, with the same chance for every kind of file."""
    while True:
        group = draw.choice([*GROUPS])
        there = sorted(path for path in run.glob(GROUPS[group]) if path.is_file() and path.stat().st_size > 1)
        kind = draw.choice([*KINDS])
        if not there or (kind in OF_LINES and group not in ("log", "manifest")):
            continue
        if kind == "deep" and group not in ("score", "environment", "settings"):
            continue
        if kind == "rights" and os.geteuid() == 0:  # root may read it all the same
            continue
        path = draw.choice(there)
        alike = sorted(one for one in run.glob(draw.choice([GROUPS[group], "**/*"])) if one.is_file())
        others = [one for one in alike if one != path and one.name != ".lock"]
        other = draw.choice(others or [path])
        if kind == "swap" and (other == path or other.read_bytes() == path.read_bytes()):
            continue
        return Damage(group, kind, path, other)


def wound(draw: random.Random, damage: Damage) -> None:
    before = damage.path.read_bytes()
    KINDS[damage.kind](draw, damage.path, damage.other)
    if damage.path.is_file() and not damage.path.is_symlink() and damage.path.read_bytes() == before:
        change(damage.path, lambda text: flipped(draw, text))  # as two equal lines


def digests(run: pathlib.Path) -> dict[str, str]:
    """Of what a run is there for: numbers, and the leaves of its checkpoints as the manifest has them."""
    found = {
        path.relative_to(run).as_posix(): manifest.entry_of(path, path.name).sha256
        for pattern in ("**/*.nc", "**/*.csv", "test.json")
        for path in run.glob(pattern)
        if manifest.counts(path.relative_to(run).as_posix())
    }
    leaves = {
        manifest.unit(path): states[-1].about for path, states in manifest.read(run).states.items() if states[-1].about
    }
    return found | leaves


def outcome(command: Callable[..., object], original: pathlib.Path, work: pathlib.Path, draw: random.Random) -> dict:
    """Damage a copy, then: verify names it, status and the same command neither break nor lie, repair heals it."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(original, work, symlinks=True)
    damage, truth = draw_damage(draw, work), digests(original)
    wound(draw, damage)
    name = damage.path.relative_to(work).as_posix()
    found = {"group": damage.group, "kind": damage.kind, "path": name}
    if damage.kind in ("swap", "link"):
        found["other"] = damage.other.relative_to(work).as_posix()
    verified = command(f"--workdir={work}", "--stages=verify")
    unknown = "not in manifest.jsonl before" in words(verified)  # where the manifest is gone
    found["verify"] = said(verified, *((1, 2) if damage.group == "settings" else (0, 1) if unknown else (1,)))
    found["line"] = next((line for line in words(verified).splitlines() if str(work) in line), "")[:300]
    found["status"] = said(command(f"--status={work}", plain=True), 0, 1, 2)
    repaired = command(f"--workdir={work}", "--stages=verify", "--repair")
    found["repair"] = said(repaired, 0)
    after = command(f"--workdir={work}", "--stages=verify")
    found["after"] = said(after, 0)
    if found["repair"] != "as it should" or found["after"] != "as it should":
        found["words"] = (words(repaired) + words(after))[-600:]
    now = digests(work)
    found["equal"] = "equal" if now == truth else f"other: {sorted(k for k in truth if now.get(k) != truth[k])[:4]}"
    return found


def words(process: object) -> str:
    return f"{process.stdout}{process.stderr}"


def said(process: object, *codes: int) -> str:
    if TRACE.search(words(process)):
        return "traceback"
    if process.returncode not in codes:
        return "silent" if process.returncode == 0 else f"exit code {process.returncode}"
    return "as it should"


PHASES = {  # what is killed in its middle: from which stage of a run on, and its flags
    "training": ("", ()),
    "measuring": ("trained", ()),
    "drawing": ("measured", ()),
    "verifying": ("full", ("--stages=verify",)),
    "repairing": ("full", ("--stages=verify", "--repair")),
}


STAGES = {  # of a run, by name: which one it goes on from, and with which stage
    "trained": ("", "train"),
    "measured": ("trained", "measure"),
    "full": ("measured", "figures"),
}


def make(command: Callable[..., object], root: pathlib.Path, names: Iterable[str] = tuple(STAGES)) -> None:
    """A run as it is after each of these stages; those before them are there."""
    for name in names:
        before, stage = STAGES[name]
        if before:
            shutil.copytree(root / before, root / name)
        process = command(f"--workdir={root / name}", f"--stages={stage}")
        assert process.returncode == 0, words(process)


def killed(
    start: Callable[..., subprocess.Popen],
    command: Callable[..., object],
    root: pathlib.Path,
    work: pathlib.Path,
    draw: random.Random,
    phase: str,
    seconds: tuple[float, float],
) -> dict:
    """Kill a command at a random moment: nothing is called damaged, and the same command ends with the same numbers."""
    shutil.rmtree(work, ignore_errors=True)
    origin, flags = PHASES[phase]
    if origin:
        shutil.copytree(root / origin, work)
    if phase == "repairing":
        for damaged in ("checkpoints/8/_CHECKPOINT_METADATA", "measurements/2.nc", "test.json"):
            change(work / damaged, lambda text: text[: len(text) // 2])
    after = draw.uniform(*seconds)
    process = start(f"--workdir={work}", *flags)
    try:
        process.wait(timeout=after)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    found = {"phase": phase, "seconds": round(after, 2), "ended": process.returncode}
    if phase != "repairing" and (work / "config.json").exists():
        verified = command(f"--workdir={work}", "--stages=verify")
        found["verify"] = said(verified, 0)
        found["words"] = words(verified)[-300:] if found["verify"] != "as it should" else ""
    if phase == "repairing":
        repaired = command(f"--workdir={work}", "--stages=verify", "--repair")
        found["repair"] = said(repaired, 0)
        found["words"] = words(repaired)[-600:]
    again = command(f"--workdir={work}")
    found["again"] = said(again, 0)
    if found["again"] != "as it should":
        found["words"] = words(again)[-600:]
    found["last"] = said(command(f"--workdir={work}", "--stages=verify"), 0)
    found["equal"] = "equal" if digests(work) == digests(root / "full") else "other"
    return found


def good(found: dict) -> bool:
    """Whether all of an outcome is as it should be."""
    return found["equal"] == "equal" and all(
        found.get(what, "as it should") == "as it should"
        for what in ("verify", "status", "repair", "after", "again", "last")
    )
