"""Damages and kills, many of them, and what comes of each: `make torture`.

Of small runs of each kind every damage is done to a copy, which is then verified, looked at, repaired and verified
again; a kill ends a command at a random moment, and the same command goes on. A line of runs/torture/found.jsonl is an
outcome; what stands there is not done again. The tables at the end count them. After a change of the code, begin in
another --folder: its runs are those that the code of then has made.
"""

import argparse
import collections
import importlib.util
import json
import os
import pathlib
import random
import sys
import time
import traceback
import types
from collections.abc import Callable, Sequence
from typing import NamedTuple

os.environ |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=1"}

from anisoscope.utils import files
from tests import kills, torture
from tests.forked import Command, Hang, limited
from tests.program import DECODER, MATCHED_PAIR, here

SEEDS = ("--config.train.num_seeds=2", "--config.train.num_data_seeds=1")
LIGHT = ("--config.train.steps=12", "--config.measure.families=similarity", "--config.measure.nulls=gaussian")
SMALL = (
    "--config.window=16",
    "--config.measure.points=64",
    "--config.measure.folds=2",
    "--config.measure.batches=1",
    "--config.measure.families=similarity",
)


class Kind(NamedTuple):
    """A kind of run: the command's flags, what of it is killed, and what they need."""

    flags: Sequence[str]
    phases: dict[str, kills.Phase] = kills.PHASES
    needs: str = ""
    make: Callable[[pathlib.Path], None] = lambda folder: None


def make_models(folder: pathlib.Path) -> None:
    """Two checkpoints of a training of seconds, in folders as a hub has them."""
    from tests.measurement.sources.hub import tiny

    folder.mkdir(parents=True)
    tiny.train(folder, (0, 60))


def kinds(root: pathlib.Path) -> dict[str, Kind]:
    models = (f"--config=experiments/pretrained.py:{root / 'models'}", "--config.pretrained.revisions=step0,step60")
    pretrained = (*models, f"--config.data.path={root / 'models' / 'text.txt'}", *SMALL)
    return {
        "run": Kind((*DECODER, *LIGHT)),
        "pair": Kind((*MATCHED_PAIR, *LIGHT)),
        "seeds": Kind((*DECODER, *LIGHT, *SEEDS)),
        "pretrained": Kind(pretrained, kills.UNTRAINED, "torch", make_models),
    }


def command(flags: Sequence[str]) -> Callable[..., object]:
    """In this process; what it does not foresee is a traceback."""

    def run(*more: str, plain: bool = False) -> object:
        try:
            with limited(kills.HANG):
                ended = here(*([] if plain else flags), *more)
            if ended.returncode == 130 or "the same command resumes there" in ended.stdout:
                sys.exit("stopped; the same command goes on")  # a signal to this process
            return ended
        except Hang:
            return types.SimpleNamespace(returncode="hang", stdout="", stderr="")
        except Exception:
            return types.SimpleNamespace(returncode=1, stdout="", stderr=f"Traceback {traceback.format_exc()[-1500:]}")

    return run


def prepare(root: pathlib.Path, kind: Kind, run: Callable[..., object]) -> None:
    """The run after each of its stages, once."""
    if not (root / "stages" / "full" / "run" / "report.html").exists():
        names = [name for name in torture.STAGES if name != "trained" or "training" in kind.phases]
        torture.make(run, root / "stages", names)


def seconds_of(root: pathlib.Path, name: str, phase: kills.Phase, start: Callable) -> float:
    """How long a phase takes that nobody kills, measured once."""
    told = root / "seconds.json"
    seconds = json.loads(told.read_text()) if told.exists() else {}
    if name not in seconds:
        kills.begin(root / "stages", root / "whole" / "run", random.Random(0), name, phase)
        began = time.perf_counter()
        process, said = start(f"--workdir={root / 'whole' / 'run'}", *phase.flags)
        assert process.wait(kills.HANG) == 0, said.read_text()
        files.write_json(told, seconds | {name: time.perf_counter() - began})
    return json.loads(told.read_text())[name]


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--damages", type=int, default=320)
    given.add_argument("--kills", type=int, default=220)
    given.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("runs/torture"))
    asked = given.parse_args()
    root, record = asked.folder.absolute(), asked.folder.absolute() / "found.jsonl"
    root.mkdir(parents=True, exist_ok=True)
    there = {name: kind for name, kind in kinds(root).items() if not kind.needs or importlib.util.find_spec(kind.needs)}
    for name in kinds(root).keys() - there.keys():
        print(
            f"{name}: left out, as {kinds(root)[name].needs} is not installed; make torture has an environment for it"
        )
    found = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    done = {(one["what"], one["number"]) for one in found}
    work = [("kill", number) for number in range(asked.kills)] + [("damage", number) for number in range(asked.damages)]
    random.Random(0).shuffle(work)
    for what, number in work:
        if (what, number) in done:
            continue
        name = [*there][number % len(there)]
        one = {"what": what, "number": number, "run": name} | attempt(root, name, there[name], what, number)
        found.append(one)
        files.write(record, "".join(json.dumps(line) + "\n" for line in found))
        words = f"{one['outcome']} ({one['took']} s)" if torture.good(one) else json.dumps(one)
        print(f"{what} {number}, {name}: {words}", flush=True)
    for what in ("damage", "kill"):
        print("", *table([one for one in found if one["what"] == what], what), sep="\n")


def attempt(root: pathlib.Path, name: str, kind: Kind, what: str, number: int) -> dict:
    """One damage or kill of a kind of run."""
    if not (root / "models").exists():
        kind.make(root / "models")
    place, run, start = root / name, command(kind.flags), Command(kind.flags, root / "said.txt").start
    place.mkdir(exist_ok=True)
    prepare(place, kind, run)
    draw, began = random.Random(f"{what} {number}"), time.perf_counter()
    if what == "damage":
        one = torture.outcome(run, place / "stages" / "full" / "run", place / "damaged" / "run", draw)
    else:
        phase = draw.choice([*kind.phases])
        where, seconds = (place / "stages", place / "killed" / "run"), 0.0
        if phase != "saving":
            seconds = seconds_of(place, phase, kind.phases[phase], start)
        one = kills.killed(start, run, *where, draw, phase, kind.phases[phase], seconds)
        if one["outcome"] == "ended before" and seconds:  # so much less does it take now
            told = json.loads((place / "seconds.json").read_text())
            files.write_json(place / "seconds.json", told | {phase: min(one["seconds"], seconds)})
    return {"took": round(time.perf_counter() - began, 1), **one}


def table(found: list[dict], what: str) -> list[str]:
    """How often each outcome came of each kind of damage, or of a kill in each phase."""
    by, groups = "kind" if what == "damage" else "phase", collections.defaultdict(list)
    for one in found:
        groups[one[by]].append(one["outcome"])
    outcomes = DAMAGES if what == "damage" else KILLS
    runs = collections.Counter(one["run"] for one in found)
    lines = [
        f"{len(found)}: {', '.join(f'{count} of {name}' for name, count in runs.items())}",
        "",
        f"| {what} | times | {' | '.join(outcomes)} |",
        f"| {' | '.join(['---'] * (2 + len(outcomes)))} |",
    ]
    everything = [outcome for one in groups.values() for outcome in one]
    for name, all_of_it in [*sorted(groups.items()), ("all", everything)]:
        counts = [len(all_of_it), *(all_of_it.count(outcome) for outcome in outcomes)]
        lines.append(f"| {name} | {' | '.join(map(str, counts))} |")
    return lines


DAMAGES = ("repaired", "told", "harmless", "not repaired", "silent", "traceback", "hang")
KILLS = ("went on", "ended before", "taken for damage", "did not go on", "other numbers", "traceback", "hang")


if __name__ == "__main__":
    main()
    sys.stdout.flush()
