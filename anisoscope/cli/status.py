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
from anisoscope.training import log
from anisoscope.utils import checksums
from anisoscope.utils.errors import RunError, UserError, did_you_mean
from anisoscope.utils.files import read_json
from anisoscope.utils.progress import format_duration
from anisoscope.utils.settings import from_dict

Parts = dict[str, tuple[int, int]]  # what there is, and what there will be, by its name


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
    runs: dict[str, Config | None] = {"": None}  # None: a run that is not trained
    if "train" in values:
        runs = variants.expand(from_dict(values, Config))
    elif "listed" in values:  # pretrained models; others may be added later
        runs = dict.fromkeys(inner or [""])
    count = f"{len(runs)} runs" if len(runs) > 1 else "a run"
    yield f"{root}: {count}, last written {format_duration(age(root))} ago"
    missing = []
    for name, config in runs.items():
        prefix, folder = f"{name}: " * bool(name), root / name
        parts = count_tables(folder) if config is None else count_parts(folder, config)
        counts = (f"{have:,} of {need:,} {part}" for part, (have, need) in parts.items())
        yield prefix + ", ".join([*counts, *describe_training(folder)])
        missing += [prefix + part for part, (have, need) in parts.items() if have < need]
    whole: Parts = {}
    if len(runs) > 1 and "train" in values:
        whole = {"runs.csv (--stages=measure)": (int((root / "runs.csv").exists()), 1)}
    if any(named.get("at") == "matched" for named in values.get("primary", {}).values()):
        matched = (root / "contrasts_loss_matched.csv").exists()
        whole["contrasts_loss_matched.csv (--stages=matched)"] = int(matched), 1
    # a run inside an experiment has its figures in the experiment's folder
    if not (root.parent / "config.json").is_file():
        whole["figures"] = len(list((root / "figures").glob("*.png"))), 1
        yield f"figures: {whole['figures'][0]}"
    missing += [part for part, (have, need) in whole.items() if have < need]
    for path in dict.fromkeys([root, *(root / name for name in runs)]):
        yield from (f"damaged: {path / what} {why}" for what, why in checksums.changed(path))
    yield f"missing: {'; '.join(missing) or 'nothing'}"
    if missing and (command := last_command(root, runs)):
        yield f"the same command resumes: python {command}"


def count_tables(folder: pathlib.Path) -> Parts:
    """Count what a run without training has."""
    table = any((folder / name).exists() for name in ("results.nc", "similarity.nc"))
    return {"joined tables (--stages=measure)": (int(table), 1)}


def count_parts(folder: pathlib.Path, config: Config) -> Parts:
    """Count the steps, scores and tables of a trained run."""
    steps, last, done = checkpoint_steps(config), config.train.steps, log.is_finished(folder)
    newest = last if done else max(find_steps(folder / "checkpoints", "*"), default=0)
    places = {"checkpoints measured": folder / "measurements"}
    if config.tangents.enabled or (folder / "tangents").exists():  # switched on later, say
        places["tangents"] = folder / "tangents"
    inner = {*config.measure.hook_points, *(p.name for p in folder.glob("hook_points/*"))}
    places |= {name: folder / "hook_points" / name / "measurements" for name in sorted(inner)}
    tables = {
        name: (len(find_steps(place, "*.nc").intersection(steps)), len(steps))
        for name, place in places.items()
    }
    score = {"test scores": (int(done), 1)}
    joined = {"joined tables": (int((folder / "results.nc").exists()), 1)}
    return {"training steps": (newest, last)} | score | tables | joined


def describe_training(folder: pathlib.Path) -> Iterator[str]:
    """Yield the number of saved checkpoints, the score of a finished run, and its troubles."""
    if saved := find_steps(folder / "checkpoints", "*"):
        yield f"{len(saved)} checkpoints saved"
    if log.is_finished(folder):
        bits = log.read_score(folder)["bits_per_character"]
        yield f"{bits:.4f} bits per character on the test split"
    with contextlib.suppress(RunError, OSError):  # a damaged log is reported as damage
        if troubles := log.format_troubles(log.read_log(folder)):
            yield troubles


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
        with contextlib.suppress(UserError, LookupError, TypeError):  # absent, or damaged
            words = read_json(path, "")["sessions"][-1]["command"]
            for at, word in enumerate(words):
                if word in ("--stages", "-stages"):
                    words[at : at + 2] = []
            stages = ("--stages=", "-stages=")
            return shlex.join(word for word in words if not word.startswith(stages))
    return ""
