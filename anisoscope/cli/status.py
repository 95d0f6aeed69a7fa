"""What of an experiment is done and what is missing: read from the names in its folder and its
small files alone.
"""

import contextlib
import pathlib
import shlex
import time
from collections.abc import Iterator, Sequence
from typing import Any

from anisoscope.config import variants
from anisoscope.config.experiment_config import Config
from anisoscope.config.run_config import checkpoint_steps
from anisoscope.training import finished, log, trouble
from anisoscope.training.step_limits import MOST_CHECKPOINTS, MOST_STEPS
from anisoscope.utils import checksums
from anisoscope.utils.errors import RunError, UserError, did_you_mean
from anisoscope.utils.files import read_json
from anisoscope.utils.settings import at_least, flat, from_dict, replace, to_dict, within


def format_status(root: pathlib.Path) -> Iterator[str]:
    """Lines; UserError where there is no run. Nothing is written, so that a run may go on
    meanwhile.
    """
    inner = sorted(path.parent.name for path in root.glob("*/config.json"))
    if not (root / "config.json").is_file():
        words = (
            did_you_mean(root.name, (path.name for path in root.parent.glob("*/")))
            if not root.exists()
            else ""
        )
        words = f"; it holds the runs {', '.join(inner)}: name one of them" if inner else words
        raise UserError(f"--status={root}: there is no run (no config.json){words}")
    values = read_json(root / "config.json", "name another folder with --status=")
    # pretrained models, of which those are told that are begun: more may be added
    several = "listed" in values
    runs = (dict.fromkeys(inner) or {"": None}) if several else expected(values)
    yield f"{root}: {f'{len(runs)} runs' if len(runs) > 1 else 'a run'}, last written {ago(root)}"
    missing = []
    for name, config in runs.items():
        for words, lacks in of_run(root / name, config):
            yield f"{name}: {words}" if name else words
            missing += [f"{name}: {lacks}" if name else lacks] if lacks else []
    missing += of_several(root, values) if len(runs) > 1 and not several and not missing else []
    # those of an experiment's run are drawn with the others
    if not (root.parent / "config.json").is_file():
        drawn = len(list((root / "figures").glob("*.png")))
        yield f"figures: {drawn} in {root / 'figures'}" if drawn else "figures: none yet"
        missing += [] if drawn else ["figures"]
    for name in {"": None} | runs:
        yield from (
            f"damaged: {root / name / what} {why}" for what, why in checksums.changed(root / name)
        )
    yield f"missing: {'; '.join(missing) if missing else 'nothing'}"
    if missing and (command := last_command(root, runs)):
        yield f"the same command resumes: python {command}"


def expected(values: dict[str, Any]) -> dict[str, Config | None]:
    """The runs that these settings ask for; of what is no training run, one without a config."""
    known = flat(to_dict(Config()))
    given = {name: value for name, value in flat(values).items() if name in known}
    if "train.steps" not in given:
        return {"": None}
    config = replace(Config(), given)
    at_least("checkpoint.every", config.checkpoint.every, 1)
    within("train.steps", config.train.steps, 0, MOST_STEPS)
    if (count := config.train.steps // config.checkpoint.every) > MOST_CHECKPOINTS:
        raise UserError(
            f"config.json asks for {count:,} checkpoints; {MOST_CHECKPOINTS:,} at most are ours"
        )
    return variants.expand(
        from_dict(to_dict(config) | {"variants": values.get("variants", {})}, Config)
    )


def of_run(folder: pathlib.Path, config: Config | None) -> Iterator[tuple[str, str]]:
    """(what there is, what is missing) of training and of measuring."""
    tables = steps_in(folder / "measurements", "*.nc")
    joined = (folder / "results.nc").exists()
    if (folder / "similarity.nc").exists():
        yield "two runs compared in similarity.nc", ""
        return
    if config is None:
        count = len(list((folder / "measurements").glob("*.nc")))
        yield f"{count} tables measured", "" if joined else "results.nc (--stages=measure)"
        return
    kept = checkpoint_steps(config)
    saved = steps_in(folder / "checkpoints", "*")
    done = finished.is_finished(folder)
    newest = config.train.steps if done else max(saved, default=None)
    words = (
        "not trained yet"
        if newest is None
        else f"trained to step {newest:,} of {config.train.steps:,}"
    )
    words += f", {len(saved.intersection(kept))} of {len(kept)} checkpoints there"
    left = config.train.steps - (newest or 0)
    steps = f"{left:,} step{'s' * (left > 1)} of training and the " if left else ""
    lacks = "" if done else f"{steps}score of the test split"
    if done:
        words += f", {finished.read_score(folder)['bits_per_character']:.4f} bits per character on the test split"
    yield words, lacks
    with contextlib.suppress(RunError, OSError):  # a damaged log is told below
        if troubles := trouble.words(log.read_log(folder)):
            yield troubles, ""
    absent = [step for step in kept if step not in tables]
    lacks = "" if joined else "results.nc"
    lacks = f"tables of step{'s' * (len(absent) > 1)} {some(absent)}" if absent else lacks
    yield f"{len(tables.intersection(kept))} of {len(kept)} checkpoints measured", lacks
    if config.tangents.enabled or (folder / "tangents").exists():  # switched on later, say
        there = steps_in(folder / "tangents", "*.nc").intersection(kept)
        done = (folder / "tangents.nc").exists() and len(there) == len(kept)
        lacks = "" if done else "tangents of some checkpoints"
        yield f"tangents of {len(there)} of {len(kept)} checkpoints", lacks
    inner = folder / "hook_points"
    named = sorted({*config.measure.hook_points, *(path.name for path in inner.glob("*"))})
    places = {hook_point: inner / hook_point / "measurements" for hook_point in named}
    for what, place in places.items():
        there = steps_in(place, "*.nc").intersection(kept)
        lacks = "" if len(there) == len(kept) else f"{what} of some checkpoints"
        yield f"{what} of {len(there)} of {len(kept)} checkpoints", lacks


def of_several(root: pathlib.Path, values: dict[str, Any]) -> list[str]:
    """What is missing of the tables that join or contrast an experiment's runs, when these are
    done.
    """
    loss_matched = any(one.get("at") == "matched" for one in values.get("primary", {}).values())
    wanted = {"runs.csv": "measure"} | (
        {"contrasts_loss_matched.csv": "matched"} if loss_matched else {}
    )
    return [
        f"{name} (--stages={stage})" for name, stage in wanted.items() if not (root / name).exists()
    ]


def steps_in(folder: pathlib.Path, pattern: str) -> set[int]:
    """Those that files or folders are named after; what is being written has another name."""
    return {
        int(path.stem)
        for path in folder.glob(pattern)
        if path.stem.isdecimal() and path.suffix in ("", ".nc")
    }


def ago(root: pathlib.Path) -> str:
    """How long nothing was written for, as far as the folders tell."""
    times = [0.0]
    for path in (path for pattern in ("*", "*/*", "*/*/*") for path in root.glob(pattern)):
        with contextlib.suppress(OSError):  # renamed meanwhile, or a link that leads nowhere
            times.append(path.stat().st_mtime)
    seconds = max(0.0, time.time() - max(times))
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} seconds ago"


def last_command(root: pathlib.Path, runs: dict[str, Any]) -> str:
    """That of the last session, without the stages that it was kept to."""
    for name in runs:
        try:
            words = read_json(root / name / "environment.json", "")["sessions"][-1]["command"]
            return shlex.join(without_stages(words))
        except (UserError, KeyError, IndexError, TypeError, AttributeError):
            continue
    return ""


def without_stages(words: list[str]) -> Iterator[str]:
    left = iter(words)
    for word in left:
        if word in ("--stages", "-stages"):
            next(left, None)
        elif not word.startswith(("--stages=", "-stages=")):
            yield word


def some(names: Sequence[str | int]) -> str:
    return ", ".join(map(str, names[:6])) + (
        f" and {len(names) - 6:,} more" if len(names) > 6 else ""
    )
