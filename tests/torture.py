"""Damages to a run's folder, at random: what kinds there are, and what comes of one. tests/kills.py kills."""

import os
import pathlib
import random
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
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
GROUPS = {  # places below a run or what holds runs, of which each is damaged as often as the others
    "checkpoint": "checkpoints/*/**/*",
    "table": "measurements/*.nc",
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


def folders(root: pathlib.Path) -> Iterator[pathlib.Path]:
    """Of an experiment: its own, and those of its runs."""
    yield root
    yield from sorted(path.parent for path in root.glob("*/config.json") if (path.parent / ".lock").exists())


def places(root: pathlib.Path, group: str) -> list[pathlib.Path]:
    """Files of a group that can be damaged."""
    found = (path for run in folders(root) for path in run.glob(GROUPS[group]))
    return sorted(path for path in found if path.is_file() and path.stat().st_size > 1)


def draw_damage(draw: random.Random, root: pathlib.Path, groups: Iterable[str] = tuple(GROUPS)) -> Damage:
    """Of an experiment's folders, with the same chance for every kind of file."""
    while True:
        group = draw.choice([*groups])
        there, kind = places(root, group), draw.choice([*KINDS])
        if not there or (kind in OF_LINES and group not in ("log", "manifest")):
            continue
        if kind == "deep" and group not in ("score", "environment", "settings"):
            continue
        if kind == "rights" and os.geteuid() == 0:  # root may read it all the same
            continue
        path = draw.choice(there)
        alike = sorted(one for one in draw.choice([there, [*root.glob("**/*")]]) if one.is_file())
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


def digests(root: pathlib.Path) -> dict[str, str]:
    """Of what runs are there for: numbers, the leaves of checkpoints as the manifests have them; and which figures."""
    found = {path.relative_to(root).as_posix(): "there" for path in root.glob("figures/*.png")}
    for folder in folders(root):
        place = folder.relative_to(root)
        for name in manifest.listed(folder):
            if name.endswith((".nc", ".csv", "test.json")):
                found[(place / name).as_posix()] = manifest.entry_of(folder / name, name).sha256
        for name, states in manifest.read(folder).states.items():
            if about := states[-1].about:
                found[(place / manifest.unit(name)).as_posix()] = about
    return found


def differ(now: dict[str, str], truth: dict[str, str]) -> str:
    others = sorted(name for name in {*now, *truth} if now.get(name) != truth.get(name))
    return f"other: {', '.join(others[:4])}" if others else "equal"


def outcome(command: Callable[..., object], original: pathlib.Path, work: pathlib.Path, draw: random.Random) -> dict:
    """Damage a copy, then: verify names it, status and the same command neither break nor lie, repair heals it."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(original, work, symlinks=True)
    damage, truth = draw_damage(draw, work), digests(original)
    wound(draw, damage)
    found = {"group": damage.group, "kind": damage.kind, "path": damage.path.relative_to(work).as_posix()}
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
    found["equal"] = differ(digests(work), truth)
    if not good(found):
        found["words"] = (words(verified) + words(repaired) + words(after))[-900:]
    return found | {"outcome": in_a_word(found, verified.returncode == 0, words(repaired))}


LOST = ("there is no second copy", "is begun anew")


def in_a_word(found: dict, unseen: bool, repaired: str) -> str:
    """Told: named, and no second copy to bring it back from; harmless: nothing to be told, and nothing was lost."""
    bad = {found[name] for name in STEPS if name in found} - {FINE}
    if unseen and found["equal"] != "equal":
        bad.add("silent")
    for word in ("hang", "traceback", "silent"):
        if word in bad:
            return word
    if bad or found["equal"] != "equal":
        return "not repaired"
    return "harmless" if unseen else "told" if any(one in repaired for one in LOST) else "repaired"


STEPS = ("signal", "verify", "status", "repair", "after", "again", "last")  # of what is tried, those that are judged
FINE = "as it should"


def words(process: object) -> str:
    return f"{process.stdout}{process.stderr}"


def said(process: object, *codes: int) -> str:
    if process.returncode == "hang":
        return "hang"
    if TRACE.search(words(process)):
        return "traceback"
    if process.returncode not in codes:
        return "silent" if process.returncode == 0 else f"exit code {process.returncode}"
    return FINE


def good(found: dict) -> bool:
    """Whether all of an outcome is as it should be."""
    return found["equal"] == "equal" and all(found.get(step, FINE) == FINE for step in STEPS)


STAGES = {  # of a run, by name: which one it goes on from, and with which stage
    "trained": ("", "train"),
    "measured": ("trained", "measure"),
    "full": ("measured", "figures"),
}


def make(command: Callable[..., object], root: pathlib.Path, names: Iterable[str] = tuple(STAGES)) -> None:
    """Folders root/<name>/run, as a run is after each of these stages; after those before, where there are any."""
    for name in names:
        before, stage = STAGES[name]
        shutil.rmtree(root / name, ignore_errors=True)  # of a start that was stopped
        if (root / before / "run").exists() and before:
            shutil.copytree(root / before / "run", root / name / "run")
        process = command(f"--workdir={root / name / 'run'}", f"--stages={stage}")
        assert process.returncode == 0, words(process)
