"""Commands that are killed at a random moment, and what comes of it."""

import contextlib
import glob
import pathlib
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from typing import NamedTuple

from tests import torture

HANG = 1200  # seconds; of a busy machine a start alone takes minutes
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
Process = subprocess.Popen  # or forked.Forked, which is like it; what it says goes to a file
DAMAGED = ("checkpoint", "table", "score", "csv")  # before a repair is killed


class Phase(NamedTuple):
    """What is killed in its middle, and the command that goes on after it."""

    origin: str  # the stage of a run that it goes on from
    flags: tuple[str, ...]
    goal: str = "full"  # the stage that the command comes to
    again: tuple[str, ...] = ()


PHASES = {
    "training": Phase("", ("--stages=train",), "measured", ("--stages=train,measure",)),
    "saving": Phase("", ("--stages=train",), "measured", ("--stages=train,measure",)),
    "measuring": Phase("trained", ("--stages=measure",), "measured", ("--stages=train,measure",)),
    "drawing": Phase("measured", ("--stages=figures",)),
    "verifying": Phase("full", ("--stages=verify",)),
    "repairing": Phase("full", ("--stages=verify", "--repair")),
}
MEASURE = ("--stages=measure",)
UNTRAINED = {"measuring": Phase("", MEASURE, "measured", MEASURE), **{name: PHASES[name] for name in [*PHASES][3:]}}


def begin(root: pathlib.Path, work: pathlib.Path, draw: random.Random, name: str, phase: Phase) -> None:
    """The folder as it is before this phase."""
    shutil.rmtree(work, ignore_errors=True)
    work.parent.mkdir(parents=True, exist_ok=True)
    if phase.origin:
        shutil.copytree(root / phase.origin / "run", work)
    if name == "repairing":
        for group in DAMAGED:
            if torture.places(work, group):
                torture.wound(draw, torture.draw_damage(draw, work, [group]))


def begun(work: pathlib.Path) -> list[str]:
    """Checkpoints that are there, or are being written."""
    return [*glob.glob(f"{work}/checkpoints/*"), *glob.glob(f"{work}/*/checkpoints/*")]


def wait_to_kill(process: Process, work: pathlib.Path, draw: random.Random, name: str, seconds: float) -> float:
    """Until a random moment of a phase that takes so long; of saving, one after a checkpoint is begun. What it was."""
    began = time.perf_counter()
    if name == "saving":
        wanted = draw.randint(1, 5)
        while process.poll() is None and len(begun(work)) < wanted:
            time.sleep(0.002)
        seconds = draw.uniform(0.0, 0.1)
    else:
        seconds = draw.uniform(0.05, 1.0) * seconds
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=seconds)
    return time.perf_counter() - began


def killed(
    start: Callable[..., tuple[Process, pathlib.Path]],
    command: Callable[..., object],
    root: pathlib.Path,
    work: pathlib.Path,
    draw: random.Random,
    name: str,
    phase: Phase,
    seconds: float,
) -> dict:
    """Nothing is called damaged after a kill, and the same command ends with the same numbers."""
    begin(root, work, draw, name, phase)
    process, said = start(f"--workdir={work}", *phase.flags)
    after, signum = wait_to_kill(process, work, draw, name, seconds), draw.choice(SIGNALS)
    found = {"phase": name, "seconds": round(after, 2), "by": signum.name if process.poll() is None else ""}
    if found["by"]:
        process.send_signal(signum)
        try:
            process.wait(timeout=HANG)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=HANG)
            found["signal"] = "hang"
    found["ended"], text = process.returncode, said.read_text(errors="replace")
    ended = subprocess.CompletedProcess((), process.returncode, text, "")
    found.setdefault("signal", torture.said(ended, 0, 130, -signum))
    if name == "repairing":
        steps = {"repair": (f"--workdir={work}", "--stages=verify", "--repair")}
    else:
        steps = {"verify": (f"--workdir={work}", "--stages=verify")} if (work / "config.json").exists() else {}
    steps |= {"again": (f"--workdir={work}", *phase.again), "last": (f"--workdir={work}", "--stages=verify")}
    for step, flags in steps.items():
        process = command(*flags)
        found[step], text = torture.said(process, 0), text + torture.words(process)
    found["equal"] = torture.differ(torture.digests(work), torture.digests(root / phase.goal / "run"))
    if not torture.good(found):
        found["words"] = text[-2000:]
    return found | {"outcome": in_a_word(found)}


def in_a_word(found: dict) -> str:
    bad = {found.get(step, torture.FINE) for step in torture.STEPS} - {torture.FINE}
    for word in ("hang", "traceback"):
        if word in bad:
            return word
    if bad:
        return "taken for damage" if found.get("verify", torture.FINE) != torture.FINE else "did not go on"
    if found["equal"] != "equal":
        return "other numbers"
    return "went on" if found["by"] else "ended before"
