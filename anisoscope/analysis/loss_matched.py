"""The stage `matched`: compare two conditions at equal gain over unigram, not at equal steps.

The level of a contrast is the best gain over unigram (bits below the best answer without context,
on the validation windows) that all its runs reach in the constant part of their schedule, before
the final decay. If a schedule has no constant part, all steps after the warm-up count. A run is
read at the step at which it first reaches the level. A run that never gains anything has no value.
Gain over unigram is itself an outcome of the varied setting, so a loss-matched difference is not
caused by that setting alone. The sign of a contrast may differ at another level.
"""

import pathlib
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from anisoscope.analysis import on_disk, primary, run_summaries
from anisoscope.analysis.contrasts import COLUMNS, STEPS, Change, contrast_conditions, pairs
from anisoscope.analysis.on_disk import LOSS_MATCHED_COLUMNS
from anisoscope.analysis.shapes import shapes
from anisoscope.config.experiment_config import Config
from anisoscope.config.run_config import checkpoint_steps
from anisoscope.data.corpus import Corpus
from anisoscope.results import join, joined_files
from anisoscope.sources import run_source, sweep
from anisoscope.training import log, optimizer, replay
from anisoscope.training.objective import next_positions
from anisoscope.utils import processes
from anisoscope.utils.errors import UserError
from anisoscope.utils.folder import missing_file
from anisoscope.utils.processes import Stop

GAIN = "gain_over_unigram_there"  # bits at the first step that reaches, or exceeds, the level
Lines = list[dict[str, Any]]  # lines of a training log


class Matched(NamedTuple):
    about: dict[str, str]  # the columns that name a contrast, without quantity and positions
    level: float  # bits
    runs: list[str]
    without: dict[str, str]  # runs without a value, and why


def plan(runs: xr.Dataset, best: dict[str, float | None]) -> list[Matched]:
    """Set the level of every contrast, except those of the text.

    An experiment of two conditions has a single contrast, whatever differs between them. `best` is
    the largest gain over unigram of each run, in bits.
    """
    planned = []
    for pair in pairs(runs, several=np.unique(runs["condition"]).size == 2):
        if run_summaries.CORPUS in pair.changed:
            continue
        # runs of `before` first: joined again, the conditions are contrasted in this order
        condition, without = runs["condition"].values, {}
        names = [str(run) for x in pair.labels for run in runs.run.values[condition == x]]
        for name in names:
            if best[name] is None:
                without[name] = "its log has no gain over unigram"
            elif not best[name] > 0:
                without[name] = "it never gains anything"
        left = [name for name in names if name not in without]
        level = min((best[name] for name in left), default=np.nan)
        planned.append(Matched(pair.about, level, left, without))
    return planned


def bracket(lines: Lines, level: float) -> replay.Bracket:
    """Return the first validation that reaches the level, and the validation before it."""
    gains = logged_gains(lines)
    place = next(place for place, (_, gain) in enumerate(gains) if gain >= level)
    return replay.Bracket(gains[max(place - 1, 0)][0], gains[place][0])


def logged_gains(lines: Lines) -> list[tuple[int, float]]:
    valid = (line for line in lines if line["kind"] == "valid" and "gain_over_unigram" in line)
    return sorted({line["step"]: line["gain_over_unigram"] for line in valid}.items())


def contrast_at_equal_gain(
    matched: Matched, tables: dict[str, xr.Dataset]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the contrast, as in contrasts.csv, and a row for each run.

    The noise is estimated from these runs alone, since other contrasts have another level. The
    steps to the level are a quantity too. `tables` end at each run's crossing of the level.
    """
    rows = []
    for name in (*matched.runs, *matched.without):
        row = {"level": matched.level, "run": name, "why_not": matched.without.get(name, "")}
        if name in tables:
            values = shapes(tables[name]).sel(positions="all")
            row |= {STEPS: int(tables[name].step[-1]), GAIN: tables[name].attrs.get(GAIN, np.nan)}
            row |= {key: value.item() for key, value in values.items()}
        rows.append(matched.about | row)
    frame = pd.DataFrame(columns=[*COLUMNS, *Change._fields])
    if tables:
        joined = run_summaries.join_runs(tables, {name: {} for name in tables})
        steps = [int(table.step[-1]) for table in tables.values()]
        frame = contrast_conditions(joined.assign({STEPS: ("run", steps)}), several=True)
    if frame.empty:  # a condition has no run left, which the table records
        nothing = dict.fromkeys(Change._fields, np.nan) | {"freedom": 0, "pairs": 0}
        frame = pd.DataFrame([{"quantity": STEPS, "positions": "all"} | nothing])
    without = ", ".join(matched.without)
    frame = frame.assign(**matched.about, level=matched.level, without=without)
    return frame[[*COLUMNS, *Change._fields, *LOSS_MATCHED_COLUMNS]], pd.DataFrame(rows)


def contrast_runs(
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
    for name, config in configs.items():
        source = run_source.open_run_source(config, texts[name], folders[name], name)
        sweep.check_measured(source)
    tables = {run: joined_files.read_table(path / "results.nc") for run, path in folders.items()}
    joined = run_summaries.join_runs(tables, {name: {} for name in tables})
    lines = {name: log.read_log(folder) for name, folder in folders.items()}
    planned = [x for x in plan(joined, best_gains(configs, lines)) if scores_agree(x, configs)]
    if not planned:
        raise UserError(
            "--stages=matched: no two conditions that can be compared differ in a single setting; "
            "omit this stage"
        )
    print(f"loss-matched: {len(planned)} contrasts")
    cut = {}  # each run's table up to its crossing of a level, by run and level
    for name, config in configs.items():
        levels = [matched.level for matched in planned if name in matched.runs]
        brackets = {level: bracket(lines[name], level) for level in levels}
        crossings = measured(config, texts[name], folders[name], brackets, name, stop)
        for level, end in crossings.items() if processes.is_first() else ():
            table = join.up_to(folders[name], replay.LOSS_MATCHED, end.step, config.measure)
            cut[name, level] = table.assign_attrs({GAIN: end.gain_over_unigram})
    if processes.is_first():
        print(
            *write_loss_matched(planned, cut, folders, root, joined, experiment.primary), sep="\n"
        )
        on_disk.write_experiment(
            folders, root, experiment.primary
        )  # reads the loss-matched contrasts


def scores_agree(matched: Matched, configs: dict[str, Config]) -> bool:
    """Return whether validations score the same characters in all runs that predict the next one.

    A prefix leaves out the first characters of a window, which are the hardest.
    """
    own = [configs[name] for name in (*matched.runs, *matched.without)]
    scored = {next_positions(x.model).tobytes() for x in own if x.objective == "next"}
    if len(scored) > 1:
        before, after = matched.about["before"], matched.about["after"]
        print(f"loss-matched: not {before} → {after}, whose validations score other characters")
    return len(scored) < 2


def best_gains(configs: dict[str, Config], lines: dict[str, Lines]) -> dict[str, float | None]:
    """Return each run's largest gain over unigram in the constant part of its schedule.

    For runs without such a part, which a printed line names, all steps after the warm-up count.
    None if no gain is logged there.
    """
    parts = {name: optimizer.constant_part(config.train) for name, config in configs.items()}
    if without := [name for name, part in parts.items() if part is None]:
        names = f"{', '.join(without[:3])}{' …' * (len(without) > 3)}"
        words = "context gains are compared over all steps after the warm-up, at learning rates that differ"
        print(f"train.schedule has no constant part ({names}): {words}")
    best = {}
    for name, config in configs.items():
        whole = optimizer.warmup_steps(config.train), config.train.steps
        first, last = parts[name] or whole
        gains = [gain for step, gain in logged_gains(lines[name]) if first <= step <= last]
        best[name] = max(gains, default=None)
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


def write_loss_matched(
    planned: list[Matched],
    tables: dict[tuple[str, float], xr.Dataset],
    folders: dict[str, pathlib.Path],
    to: pathlib.Path,
    runs: xr.Dataset,
    named: primary.Named,
) -> list[pathlib.Path]:
    """Write contrasts_loss_matched.csv, loss_matched.csv (a row per run), and the tables' digests.

    `tables` holds each run's table up to its crossing of a level, by run and level.
    """
    changes, rows = zip(
        *(
            contrast_at_equal_gain(own, {run: tables[run, own.level] for run in own.runs})
            for own in planned
        ),
        strict=True,
    )
    on_disk.forget_digests(to, on_disk.LOSS_MATCHED)
    paths = [to / on_disk.LOSS_MATCHED, to / "loss_matched.csv"]
    changes = pd.concat(changes, ignore_index=True)
    joined_files.write_csv(primary.with_roles(changes, named, runs, "matched"), paths[0])
    joined_files.write_csv(pd.concat(rows, ignore_index=True), paths[1])
    on_disk.record_digests(to, on_disk.LOSS_MATCHED, folders)
    return paths
