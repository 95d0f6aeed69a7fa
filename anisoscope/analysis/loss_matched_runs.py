"""The stage `matched`: runs replayed up to the context gain of each of their contrasts, measured
there, contrasted.
"""

import pathlib
from typing import Any

import xarray as xr

from anisoscope.analysis import loss_matched, on_disk, primary, run_summaries
from anisoscope.config.experiment_config import Config
from anisoscope.config.run_config import checkpoint_steps
from anisoscope.data.corpus import Corpus
from anisoscope.results import join, joined_files
from anisoscope.sources import run_source, sweep
from anisoscope.training import finished, log, optimizer, replay
from anisoscope.utils import processes
from anisoscope.utils.errors import UserError
from anisoscope.utils.folder import not_there
from anisoscope.utils.settings import flat, to_dict
from anisoscope.utils.stop import Stop


def contrast(
    experiment: Config,
    configs: dict[str, Config],
    texts: dict[str, Corpus],
    root: pathlib.Path,
    stop: Stop,
) -> None:
    """Loss-matched contrasts of finished runs: first what the experiment calls primary, then all of
    its contrasts.

    At last those that are primary, or all where none is, at several levels.

    `texts` holds the text of each run. What is done already is not done again.
    """
    for name in configs:
        for what, stage in ((finished.NAME, "train"), ("results.nc", "measure")):
            if not (root / name / what).exists():
                raise not_there(root / name, what, stage)
    tables = {name: joined_files.read_table(root / name / "results.nc") for name in configs}
    joined = run_summaries.join(tables, {name: {} for name in tables})
    lines = {
        name: log.read_log(root / name) if (root / name / "train.jsonl").exists() else []
        for name in configs
    }
    best = best_gains(configs, lines)
    if not (planned := loss_matched.plan(joined, best)):
        raise UserError(
            "--stages=matched: no two settings of this experiment differ in one thing; leave it out"
        )
    named = primary.loss_matched(experiment.primary)
    first = [one for one in planned if frozenset(one.labels) in named]
    folders = {name: root / name for name in configs}

    def cut_at(part: list[loss_matched.Matched]) -> dict[tuple[str, float], xr.Dataset]:
        """The table of each run up to where it has the level of each of these contrasts."""
        cut = {}
        for name, config in configs.items():
            brackets = {
                one.level: loss_matched.bracket(lines[name], one.level)
                for one in part
                if name in one.runs
            }
            there = measured(config, texts[name], root / name, brackets, name, stop)
            if processes.is_first():
                for level, end in there.items():
                    whole = join.up_to(root / name, replay.LOSS_MATCHED, end.step, config.measure)
                    cut[name, level] = whole.assign_attrs({loss_matched.GAIN: end.context_gain})
        return cut

    for part in (first, planned) if 0 < len(first) < len(planned) else (planned,):
        print(
            f"loss-matched: {len(part)} contrasts{' that are primary, first' if part is first else ''}"
        )
        cut = cut_at(part)
        if processes.is_first():
            for path in on_disk.write_loss_matched(
                part, cut, folders, root, joined, experiment.primary
            ):
                print(path)
            on_disk.write(folders, root, experiment.primary)  # some is read there
    asked = {one.labels for one in first or planned}
    levels = [
        one
        for share in loss_matched.SHARES
        for one in loss_matched.plan(joined, best, share)
        if one.labels in asked and one.runs
    ]
    print(f"loss-matched at {len(loss_matched.SHARES)} shares of the gain: {len(levels)} contrasts")
    cut = cut_at(levels)
    if processes.is_first() and levels:
        print(on_disk.write_by_level(levels, cut, root))


def check(configs: list[Config]) -> None:
    """Raise UserError, before any work is done, where there is one run, or runs that differ in
    their seeds alone.
    """
    if len(configs) == 1:
        raise UserError(
            "--stages=matched contrasts runs, and this experiment has one; leave it out"
        )
    settings = [flat(to_dict(config)) for config in configs]
    for values in settings:
        for name in [name for name in values if name.startswith("train.") and "seed" in name]:
            del values[name]
    if all(values == settings[0] for values in settings):
        raise UserError(
            "--stages=matched contrasts settings, and these runs differ in their seeds alone; leave it out"
        )


def best_gains(
    configs: dict[str, Config], lines: dict[str, list[dict[str, Any]]]
) -> dict[str, float | None]:
    """The largest context gain of each run, in the constant part of its schedule; a line names runs
    that have none.
    """
    parts = {name: optimizer.constant_part(config.train) for name, config in configs.items()}
    if loose := [name for name, part in parts.items() if part is None]:
        words = "context gains are compared over all steps after the warm-up, at learning rates that differ"
        print(
            f"train.schedule has no constant part ({', '.join(loose[:3])}{' …' * (len(loose) > 3)}): {words}"
        )
    return {
        name: loss_matched.best_gain(
            lines[name], *(part or (optimizer.warmup_steps(config.train), config.train.steps))
        )
        for (name, config), part in zip(configs.items(), parts.values(), strict=True)
    }


def measured(
    config: Config,
    text: Corpus,
    run: pathlib.Path,
    brackets: dict[float, replay.Bracket],
    name: str,
    stop: Stop,
) -> dict[float, replay.Crossing]:
    """Where the run has each context gain; every such step has a table, the run's own or one beside
    it.
    """
    reached = replay.crossings(config, text, run, brackets, name, stop)
    on_schedule = checkpoint_steps(config)
    steps = sorted({crossing.step for crossing in reached.values()}.difference(on_schedule))
    if steps:
        with run_source.opened_beside(
            config, text, run, replay.LOSS_MATCHED, steps, name, stop
        ) as source:
            sweep.measure_missing(source, stop)
    stop.check(f"{name}: stopped when it was measured for loss-matched contrasts")
    return reached
