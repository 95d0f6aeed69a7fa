"""The stage `equal`: runs trained again up to the gain of each of their contrasts, measured there, and contrasted."""

import pathlib
from typing import Any

from anisoscope.analysis import equal_gain, on_disk, primary, runs
from anisoscope.cli.drawing import not_there
from anisoscope.config.experiment import Config
from anisoscope.config.run import schedule
from anisoscope.data.corpus import Corpus
from anisoscope.measurement.sources import sweep
from anisoscope.measurement.tables import files
from anisoscope.training import again, finished, log, optimizer
from anisoscope.utils import processes
from anisoscope.utils.errors import UserError
from anisoscope.utils.stop import Stop


def contrast(
    experiment: Config, configs: dict[str, Config], texts: dict[str, Corpus], root: pathlib.Path, stop: Stop
) -> None:
    """Contrast finished runs at equal gain, what is primary first. What is done already is not done again."""
    check(configs)
    for name in configs:
        for what, stage in ((finished.NAME, "train"), ("results.nc", "measure")):
            if not (root / name / what).exists():
                raise not_there(root / name, what, stage)
    tables = {name: files.read(root / name / "results.nc") for name in configs}
    joined = runs.join(tables, {name: {} for name in tables})
    lines = {name: log.read(root / name) if (root / name / "train.jsonl").exists() else [] for name in configs}
    if not (planned := equal_gain.plan(joined, best_gains(configs, lines))):
        raise UserError("--stages=equal: no two settings of this experiment differ in one thing; leave it out")
    named = primary.at_equal_gain(experiment.primary)
    first = [one for one in planned if frozenset(one.labels) in named]
    for part in (first, planned) if 0 < len(first) < len(planned) else (planned,):
        print(f"equal gain: {len(part)} contrasts{' that are primary, first' if part is first else ''}")
        cut = {}
        for name, config in configs.items():
            brackets = {one.level: equal_gain.bracket(lines[name], one.level) for one in part if name in one.runs}
            there = measured(config, texts[name], root / name, brackets, name, stop)
            if processes.is_first():
                for level, end in there.items():
                    whole = sweep.up_to(config, root / name, again.FOLDER, end.step)
                    cut[name, level] = whole.assign_attrs({equal_gain.GAIN: end.gain})
        if processes.is_first():
            folders = {name: root / name for name in configs}
            for path in on_disk.write_equal(part, cut, folders, root, joined, experiment.primary):
                print(path)
            on_disk.write(folders, root, experiment.primary)  # some is read there


def check(configs: dict[str, Config]) -> None:
    """Raise UserError, before any work is done, where there would be nothing to contrast."""
    if len(configs) == 1:
        raise UserError("--stages=equal contrasts runs, and this experiment has one; leave it out")


def best_gains(configs: dict[str, Config], lines: dict[str, list[dict[str, Any]]]) -> dict[str, float | None]:
    """What each run gains at most in the constant part of its schedule, by its log; a line tells of those without."""
    parts = {name: optimizer.constant_part(config.train) for name, config in configs.items()}
    if loose := [name for name, part in parts.items() if part is None]:
        words = "gains are compared over all steps after the warm-up, at learning rates that differ"
        print(f"train.schedule has no constant part ({', '.join(loose[:3])}{' …' * (len(loose) > 3)}): {words}")
    return {
        name: equal_gain.best_gain(lines[name], *(part or (optimizer.warmup_steps(config.train), config.train.steps)))
        for (name, config), part in zip(configs.items(), parts.values(), strict=True)
    }


def measured(
    config: Config, text: Corpus, run: pathlib.Path, brackets: dict[float, again.Bracket], name: str, stop: Stop
) -> dict[float, again.Crossing]:
    """Where the run has each gain; every such step has a table, the run's own or one beside it."""
    found = again.crossings(config, text, run, brackets, name, stop)
    on_schedule = schedule(config.train.steps, config.checkpoint.every)
    steps = sorted({crossing.step for crossing in found.values()}.difference(on_schedule))
    sweep.sweep_beside(config, text, run, again.FOLDER, steps, name, stop)
    stop.check(f"{name}: stopped when it was measured at equal gain")
    return found
