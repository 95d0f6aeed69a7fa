"""The stage `matched`: replay runs to equal gain over unigram, measure and contrast them."""

import pathlib

from anisoscope.analysis import loss_matched, on_disk, run_summaries
from anisoscope.config.experiment_config import Config
from anisoscope.config.run_config import checkpoint_steps
from anisoscope.data.corpus import Corpus
from anisoscope.results import join, joined_files
from anisoscope.sources import run_source, sweep
from anisoscope.training import log, optimizer, replay
from anisoscope.utils import processes
from anisoscope.utils.errors import UserError
from anisoscope.utils.folder import missing_file
from anisoscope.utils.processes import Stop


def contrast(
    experiment: Config,
    configs: dict[str, Config],
    texts: dict[str, Corpus],
    root: pathlib.Path,
    stop: Stop,
) -> None:
    """Contrast finished runs at equal loss; finished work is skipped.

    `configs` and `texts` are those of the runs, by name.
    """
    folders = {name: root / name for name in configs}
    for folder in folders.values():
        for name, stage in ((log.SCORE, "train"), ("results.nc", "measure")):
            if not (folder / name).exists():
                raise missing_file(folder, name, stage)
    tables = {run: joined_files.read_table(path / "results.nc") for run, path in folders.items()}
    joined = run_summaries.join(tables, {name: {} for name in tables})
    lines = {name: log.read_log(folder) for name, folder in folders.items()}
    best = best_gains(configs, lines)
    if not (planned := loss_matched.plan(joined, best)):
        raise UserError(
            "--stages=matched: no two conditions differ in a single setting; omit this stage"
        )
    print(f"loss-matched: {len(planned)} contrasts")
    cut = {}  # each run's table up to its crossing of a level, by run and level
    for name, config in configs.items():
        brackets = {
            matched.level: loss_matched.bracket(lines[name], matched.level)
            for matched in planned
            if name in matched.runs
        }
        crossings = measured(config, texts[name], folders[name], brackets, name, stop)
        for level, end in crossings.items() if processes.is_first() else ():
            table = join.up_to(folders[name], replay.LOSS_MATCHED, end.step, config.measure)
            cut[name, level] = table.assign_attrs({loss_matched.GAIN: end.gain_over_unigram})
    if processes.is_first():
        paths = on_disk.write_loss_matched(planned, cut, folders, root, joined, experiment.primary)
        print(*paths, sep="\n")
        on_disk.write(folders, root, experiment.primary)  # reads the loss-matched contrasts


def best_gains(
    configs: dict[str, Config], lines: dict[str, loss_matched.Lines]
) -> dict[str, float | None]:
    """Return each run's largest gain over unigram in the constant part of its schedule.

    For runs without such a part, which a printed line names, all steps after the warm-up count.
    """
    parts = {name: optimizer.constant_part(config.train) for name, config in configs.items()}
    if without := [name for name, part in parts.items() if part is None]:
        names = f"{', '.join(without[:3])}{' …' * (len(without) > 3)}"
        words = "context gains are compared over all steps after the warm-up, at learning rates that differ"
        print(f"train.schedule has no constant part ({names}): {words}")
    best = {}
    for name, config in configs.items():
        after_warmup = optimizer.warmup_steps(config.train), config.train.steps
        best[name] = loss_matched.best_gain(lines[name], *(parts[name] or after_warmup))
    return best


def measured(
    config: Config,
    text: Corpus,
    run: pathlib.Path,
    brackets: dict[float, replay.Bracket],
    name: str,
    stop: Stop,
) -> dict[float, replay.Crossing]:
    """Find where the run has each gain over unigram, and measure every such step without a table."""
    reached = replay.crossings(config, text, run, brackets, name, stop)
    on_schedule = checkpoint_steps(config)
    steps = sorted({crossing.step for crossing in reached.values()}.difference(on_schedule))
    if steps:
        extra = run_source.open_extra_checkpoints(
            config, text, run, replay.LOSS_MATCHED, steps, name
        )
        sweep.measure_missing(extra, stop)
    stop.check(f"{name}: stopped when it was measured for loss-matched contrasts")
    return reached
