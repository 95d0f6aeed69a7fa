"""Damages and kills, many of them, and what comes of each: `make torture`.

Of a small run of ours each damage is done to a copy, which is then verified, looked at, repaired and verified again; a
kill ends a command at a random moment, and the same command goes on. A line of runs/torture/found.jsonl is an outcome;
what stands there is not done again. The table at the end counts them.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import subprocess
import sys
import time
import traceback
import types

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from anisoscope.utils import files
from tests import torture
from tests.program import ROOT, environment, here
from tests.test_main import DECODER

HANG = 300  # seconds


def command(*flags: str, plain: bool = False) -> object:
    """In this process; what it does not foresee is a traceback."""
    try:
        return here(*([] if plain else DECODER), *flags)
    except Exception:
        return types.SimpleNamespace(returncode=1, stdout="", stderr=f"Traceback {traceback.format_exc()[-1500:]}")


def start(*flags: str) -> subprocess.Popen:
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([sys.executable, "main.py", *DECODER, *flags], cwd=ROOT, env=environment(), **pipes)


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--damages", type=int, default=300)
    given.add_argument("--kills", type=int, default=200)
    given.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("runs/torture"))
    asked = given.parse_args()
    root, record = asked.folder.absolute(), asked.folder.absolute() / "found.jsonl"
    root.mkdir(parents=True, exist_ok=True)
    if not (root / "stages" / "full" / "report.html").exists():
        (root / "stages").mkdir(exist_ok=True)
        torture.make(command, root / "stages")
    found = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    done = {(one["what"], one["number"]) for one in found}
    phases = [*torture.PHASES]
    work = [("damage", number) for number in range(asked.damages)] + [("kill", number) for number in range(asked.kills)]
    for what, number in work:
        if (what, number) in done:
            continue
        draw, began, place = random.Random(f"{what} {number}"), time.perf_counter(), root / f"work-{what}"
        if what == "damage":
            one = torture.outcome(command, root / "stages" / "full", place, draw)
        else:
            phase = phases[number % len(phases)]
            one = torture.killed(start, command, root / "stages", place, draw, phase, (1.0, 8.0))
        took = time.perf_counter() - began
        found.append({"what": what, "number": number, "took": round(took, 1), "good": torture.good(one), **one})
        files.write(record, "".join(json.dumps(line) + "\n" for line in found))
        print(
            json.dumps(found[-1]) if not found[-1]["good"] else f"{what} {number}: as it should ({took:.1f} s)",
            flush=True,
        )
    print("\n".join(table(found)))


def table(found: list[dict]) -> list[str]:
    """By what was damaged or killed, and how: how many, and how many came out as they should."""
    groups = collections.defaultdict(list)
    for one in found:
        name = f"{one['group']}: {one['kind']}" if one["what"] == "damage" else f"killed while {one['phase']}"
        groups[name].append(one)
    lines = [
        "| what | times | as it should | silent | traceback | over 5 minutes |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, all_of_it in [*sorted(groups.items()), ("all", found)]:
        texts = [json.dumps(one) for one in all_of_it]
        counts = [
            len(all_of_it),
            sum(one["good"] for one in all_of_it),
            *(sum(f'"{word}"' in text for text in texts) for word in ("silent", "traceback")),
            sum(one["took"] > HANG for one in all_of_it),
        ]
        lines.append(f"| {name} | {' | '.join(map(str, counts))} |")
    return lines


if __name__ == "__main__":
    main()
