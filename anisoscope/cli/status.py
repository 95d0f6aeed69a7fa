"""The report on an experiment's done and missing parts, read from file names alone."""

import contextlib
import pathlib
import shlex
import time
from collections.abc import Iterator
from typing import Any

from anisoscope.config import variants
from anisoscope.config.experiment_config import Config
from anisoscope.config.run_config import checkpoint_steps
from anisoscope.training import finished, log, trouble
from anisoscope.utils import checksums
from anisoscope.utils.errors import RunError, UserError, did_you_mean
from anisoscope.utils.files import read_json
from anisoscope.utils.progress import format_duration
from anisoscope.utils.settings import from_dict

Report = Iterator[tuple[str, str]]  # lines: what exists, and what is missing or ""


def format_status(root: pathlib.Path) -> Iterator[str]:
    """Format which parts are done and which are missing; nothing is written.

    Raises:
        UserError: The folder holds no run.
    """
    inner = sorted(path.parent.name for path in root.glob("*/config.json"))
    if not (root / "config.json").is_file():
        hint = f"; name one of its runs: {', '.join(inner)}" if inner else ""
        if not root.exists():
            hint = did_you_mean(root.name, (path.name for path in root.parent.glob("*/")))
        raise UserError(f"--status={root}: no run found (no config.json){hint}")
    values = read_json(root / "config.json", "name another folder with --status=")
    listed = "listed" in values  # pretrained models; others may be added later
    runs: dict[str, Config | None] = {"": None}  # None: a run that is not trained
    if listed or "train" in values:
        runs = (
            dict.fromkeys(inner or [""]) if listed else variants.expand(from_dict(values, Config))
        )
    count = f"{len(runs)} runs" if len(runs) > 1 else "a run"
    yield f"{root}: {count}, last written {format_duration(age(root))} ago"
    missing = []
    for name, config in runs.items():
        prefix = f"{name}: " if name else ""
        for line, lacking in report_run(root / name, config):
            yield prefix + line
            missing += [prefix + lacking] if lacking else []
    if len(runs) > 1 and not listed and not missing:
        missing += missing_tables(root, values)
    # a run inside an experiment has its figures in the experiment's folder
    if not (root.parent / "config.json").is_file():
        figures = len(list((root / "figures").glob("*.png")))
        yield f"figures: {figures} in {root / 'figures'}" if figures else "figures: none yet"
        missing += [] if figures else ["figures"]
    for path in dict.fromkeys([root, *(root / name for name in runs)]):
        yield from (f"damaged: {path / what} {why}" for what, why in checksums.changed(path))
    yield f"missing: {'; '.join(missing) or 'nothing'}"
    if missing and (command := last_command(root, runs)):
        yield f"the same command resumes: python {command}"


def report_run(folder: pathlib.Path, config: Config | None) -> Report:
    """Report on a single run."""
    if (folder / "similarity.nc").exists():
        yield "two runs compared in similarity.nc", ""
    elif config is None:
        count = len(list((folder / "measurements").glob("*.nc")))
        done = (folder / "results.nc").exists()
        yield f"{count} tables measured", "" if done else "results.nc (--stages=measure)"
    else:
        yield from report_training(folder, config)
        yield from report_tables(folder, config)


def report_training(folder: pathlib.Path, config: Config) -> Report:
    kept, last = checkpoint_steps(config), config.train.steps
    saved, done = find_steps(folder / "checkpoints", "*"), finished.is_finished(folder)
    newest = last if done else max(saved, default=None)
    line = "not trained yet" if newest is None else f"trained to step {newest:,} of {last:,}"
    line += f", {len(saved.intersection(kept))} of {len(kept)} checkpoints saved"
    lacking = "" if done else "score of the test split"
    if done:
        bits = finished.read_score(folder)["bits_per_character"]
        line += f", {bits:.4f} bits per character on the test split"
    elif left := last - (newest or 0):
        lacking = f"{left:,} step{'s' * (left > 1)} of training and the {lacking}"
    yield line, lacking
    with contextlib.suppress(RunError, OSError):  # a damaged log is reported as damage
        if troubles := trouble.format_troubles(log.read_log(folder)):
            yield troubles, ""


def report_tables(folder: pathlib.Path, config: Config) -> Report:
    kept = checkpoint_steps(config)
    tables = find_steps(folder / "measurements", "*.nc")
    lacking = "" if (folder / "results.nc").exists() else "results.nc"
    if absent := [str(step) for step in kept if step not in tables]:
        more = f" and {len(absent) - 6:,} more" if len(absent) > 6 else ""
        lacking = f"tables of step{'s' * (len(absent) > 1)} {', '.join(absent[:6])}{more}"
    yield f"{len(tables.intersection(kept))} of {len(kept)} checkpoints measured", lacking
    places, inner = {}, folder / "hook_points"
    if config.tangents.enabled or (folder / "tangents").exists():  # switched on later, say
        places["tangents"] = folder / "tangents"
    for name in sorted({*config.measure.hook_points, *(path.name for path in inner.glob("*"))}):
        places[name] = inner / name / "measurements"
    for name, place in places.items():
        count = len(find_steps(place, "*.nc").intersection(kept))
        whole = count == len(kept) and (name != "tangents" or (folder / "tangents.nc").exists())
        lacking = "" if whole else f"{name} of some checkpoints"
        yield f"{name} of {count} of {len(kept)} checkpoints", lacking


def missing_tables(root: pathlib.Path, values: dict[str, Any]) -> list[str]:
    """List the missing tables that join or contrast an experiment's runs."""
    stages = {"runs.csv": "measure"}
    if any(named.get("at") == "matched" for named in values.get("primary", {}).values()):
        stages["contrasts_loss_matched.csv"] = "matched"
    return [
        f"{name} (--stages={stage})" for name, stage in stages.items() if not (root / name).exists()
    ]


def find_steps(folder: pathlib.Path, pattern: str) -> set[int]:
    """Collect the steps in the names of files or folders."""
    paths = (path for path in folder.glob(pattern) if path.suffix in ("", ".nc"))
    return {int(path.stem) for path in paths if path.stem.isdecimal()}


def age(root: pathlib.Path) -> float:
    """Return the seconds since the last write in the folder."""
    times = [0.0]
    for path in root.rglob("*"):
        with contextlib.suppress(OSError):  # renamed meanwhile, or a link that leads nowhere
            times.append(path.stat().st_mtime)
    return max(0.0, time.time() - max(times))


def last_command(root: pathlib.Path, runs: dict[str, Any]) -> str:
    """Return the command of the last session without its --stages."""
    for path in (root / name / "environment.json" for name in runs):
        if path.exists():
            words = read_json(path, "")["sessions"][-1]["command"]
            for at, word in enumerate(words):
                if word in ("--stages", "-stages"):
                    words[at : at + 2] = []
            stages = ("--stages=", "-stages=")
            return shlex.join(word for word in words if not word.startswith(stages))
    return ""
