"""What an accelerator does with all of this: one command, one JSON file and one Markdown file.

    make gpu                                   # .venv-gpu with jax[cuda13]; `make gpu JAX=tpu` on a TPU
    make gpu JAX=cpu SIZE=--small              # tries the script itself, where there is none

Tests on the device, with the largest difference of every family from float64; the training step in bfloat16 beside
PyTorch; the search for neighbours and the spectrum beside PyTorch; a checkpoint's panel, clouds one after another and
several at once. Each part is a process of its own. A part that fails is told, and the others go on.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from collections.abc import Callable
from typing import Any, NamedTuple

from anisoscope.utils import files
from benchmarks import metrics, panel, train_step
from benchmarks.peers import peer
from benchmarks.rounds import alternate, processor, ratio

PANEL = tuple(sorted(map(str, pathlib.Path("tests/measurement").glob("test_*.py"))))
ACTIVATIONS = "tests/measurement/sources/test_activations.py"
TESTED = ("tests/metrics", *PANEL, "tests/models", ACTIVATIONS)
TESTED_SMALL = (*PANEL, ACTIVATIONS)
SMALL_STEP = {"layers": 2, "width": 64, "heads": 2, "context": 64, "batch": 4}
SMALL_PANEL = {"layers": 2, "width": 64, "heads": 2, "context": 64, "batches": 1, "points": 512}
PANELS = ("the same with its null models", "whole panel")
SMALL_PANELS = PANELS[:1]
FROM_FLOAT64, FAILED = "from float64: ", "failed"
TASKS = {"TwoNN": "TwoNN", "spectrum": "SVD", "product": "product"}  # ours -> PyTorch's


class Part(NamedTuple):
    about: dict[str, Any]
    rows: dict[str, dict[str, Any]]  # of a table, all with the same columns


def device(options: argparse.Namespace) -> Part:
    import jax

    first = jax.devices()[0]
    about = {
        "backend": jax.default_backend(),
        "device": first.device_kind,
        "devices": jax.device_count(),
        "memory of a device, bytes": (first.memory_stats() or {}).get("bytes_limit"),
        "processor": processor(),
        "python": sys.version.split()[0],
        "jax": jax.__version__,
    }
    return Part(about, {})


def tests(options: argparse.Namespace) -> Part:
    """Of the suite what the device computes, slow tests too; by family the largest difference from float64."""
    import jax

    backend = jax.default_backend()
    given = {
        "ANISOSCOPE_PLATFORM": {"gpu": "cuda,cpu", "cpu": "cpu"}.get(backend, f"{backend},cpu"),
        "JAX_DEFAULT_MATMUL_PRECISION": "highest",  # of the tests' own products
    }
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.xml"
        chosen = [*TESTED_SMALL, "-m", "not slow"] if options.small else TESTED
        command = [sys.executable, "-m", "pytest", *chosen, "--numprocesses=1", f"--junitxml={report}"]
        ended = subprocess.run(command, env=os.environ | given)
        if not report.exists():
            raise RuntimeError(f"pytest ended with exit code {ended.returncode} and no report")
        return read_report(xml.parse(report).getroot())


def read_report(root: xml.Element) -> Part:
    """Of JUnit's file: how many passed, which did not, and the properties that tests record of each family."""
    cases = list(root.iter("testcase"))
    broken = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = [case for case in cases if case.find("skipped") is not None]
    apart: dict[str, float] = {}
    for one in root.iter("property"):
        family = one.get("name").removeprefix(FROM_FLOAT64)
        apart[family] = max(apart.get(family, 0.0), float(one.get("value")))
    about = {
        "passed": len(cases) - len(broken) - len(skipped),
        "skipped": len(skipped),
        "failed": [f"{case.get('classname')}::{case.get('name')}" for case in broken],
    }
    return Part(about, {family: {"largest relative difference from float64": value} for family, value in apart.items()})


def training(options: argparse.Namespace) -> Part:
    """Seconds a step of both sides, in rounds that alternate."""
    shape = SMALL_STEP if options.small else train_step.SHAPES["gpu"]
    found, seconds = train_step.measure(shape, options.rounds, 2 if options.small else 20, options.peer)
    rows = {}
    for side, times in seconds.items():
        step = statistics.median(times)
        rate = train_step.model_flops(shape) / step / 1e12
        peak = train_step.peak(found["JAX"]["device"]) if found[side]["kind"] == "gpu" else None
        rows[side] = {
            "version": found[side]["version"],
            "ran on": found[side]["kind"],
            "s a step": step,
            "characters a second": shape["batch"] * shape["context"] / step,
            "model TFLOP/s": rate,
            "share of the peak": rate / peak if peak else None,
        }
    same = found["JAX"]["kind"] == found["PyTorch"]["kind"]
    speed = ratio(seconds["PyTorch"], seconds["JAX"]) if same else "none: they ran on different devices"
    computed = "float32" if found["JAX"]["kind"] == "cpu" else "bfloat16, parameters in float32"
    return Part(shape | {"computed in": computed, "JAX's speed over PyTorch's": speed}, rows)


def operations(options: argparse.Namespace) -> Part:
    """Milliseconds of single operations of both sides, by shape of the cloud."""
    rows = {}
    for points, width in [(512, 64)] if options.small else metrics.SHAPES["gpu"]:
        theirs = [options.peer, "-m", peer.PEERS["PyTorch"][1], "tasks", str(points), str(width)]
        ours = metrics.jax_command([(points, width)], list(TASKS))
        found, seconds = alternate({"ours": ours, "PyTorch": theirs}, options.rounds)
        same = found["ours"]["kind"] == found["PyTorch"]["kind"]
        for name, other in TASKS.items():
            mine, other_times = seconds["ours"][f"{name} {points} {width}"], seconds["PyTorch"][other]
            rows[f"{name}, {points} × {width}"] = {
                "ms": 1e3 * statistics.median(mine),
                "PyTorch's": other,
                "its ms": 1e3 * statistics.median(other_times),
                "ours / its": ratio(mine, other_times) if same else "none: different devices",
            }
    return Part({"rounds": options.rounds}, rows)


def checkpoint(options: argparse.Namespace) -> Part:
    """Seconds of measuring one: clouds one after another, and on an accelerator as many at once as memory holds."""
    import jax

    shape = SMALL_PANEL if options.small else panel.SHAPES["gpu"]
    at_once = {"one after another": 1}
    if jax.default_backend() != "cpu":
        at_once |= {"several at once": None}
    config, corpus, rows = panel.config_of(shape), train_step.random_corpus(), {}
    for words in SMALL_PANELS if options.small else PANELS:
        families, nulls = panel.PANELS[words]
        for how, clouds in at_once.items():
            measure = dataclasses.replace(config.measure, families=families, nulls=nulls)
            changed = dataclasses.replace(config, measure=measure, mesh=dataclasses.replace(config.mesh, clouds=clouds))
            compilation, seconds = panel.time_panel(changed, corpus, options.rounds)
            rows[f"{words}, {how}"] = {
                "s a checkpoint": seconds,
                "s of compilation": compilation,
                "peak memory so far": panel.peak_memory(),
            }
    return Part(shape, rows)


PARTS: dict[str, Callable[[argparse.Namespace], Part]] = {
    "device": device,
    "tests on the device": tests,
    "training step": training,
    "operations": operations,
    "measuring a checkpoint": checkpoint,
}


def as_markdown(results: dict[str, dict]) -> str:
    lines = [
        "# On an accelerator",
        "",
        f"`python -m benchmarks.accelerator {' '.join(sys.argv[1:])}`".replace(" `", "`"),
    ]
    for name, part in results.items():
        lines += ["", f"## {name[0].upper()}{name[1:]}", ""]
        lines += [f"- {key}: {told(value)}" for key, value in part["about"].items()]
        if part["rows"]:
            columns = list(next(iter(part["rows"].values())))
            lines += ["", f"| | {' | '.join(columns)} |", "| --- " * (len(columns) + 1) + "|"]
        lines += [f"| {key} | {' | '.join(map(told, row.values()))} |" for key, row in part["rows"].items()]
    return "\n".join(lines) + "\n"


def told(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "unknown" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--to", type=pathlib.Path, default=pathlib.Path("runs/accelerator"), help="folder of the files")
    parser.add_argument("--peer", default=sys.executable, help="the Python of an environment with PyTorch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="small sizes, to try the script itself")
    parser.add_argument("--part", choices=PARTS, help="be the process of this part alone")
    parser.add_argument("--answer", type=pathlib.Path, help="of a part: the file for what it finds")
    options = parser.parse_args()
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # several processes share the device's memory
    if options.part:
        files.write_json(options.answer, PARTS[options.part](options)._asdict())
        return
    options.to.mkdir(parents=True, exist_ok=True)
    results, paths = {}, [options.to / f"accelerator.{kind}" for kind in ("json", "md")]
    for number, part in enumerate(PARTS, 1):
        print(f"{number} of {len(PARTS)}: {part}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            answer = pathlib.Path(folder) / "answer.json"
            again = [sys.executable, "-m", "benchmarks.accelerator", *sys.argv[1:]]
            ended = subprocess.run([*again, "--part", part, "--answer", answer])
            failed = {"about": {FAILED: f"exit code {ended.returncode}; see what was printed"}, "rows": {}}
            results[part] = json.loads(answer.read_text()) if answer.exists() else failed
        files.write_json(paths[0], results)
        files.write(paths[1], as_markdown(results))
    print(f"written: {paths[0]} and {paths[1]}")
    sys.exit(any(part["about"].get(FAILED) for part in results.values()))


if __name__ == "__main__":
    main()
