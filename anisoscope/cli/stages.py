"""The stages of an experiment that trains, an entry each: what is refused before the first folder is made, and work."""

import contextlib
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from anisoscope.analysis import on_disk
from anisoscope.claims import verdicts
from anisoscope.cli import matched, precompile
from anisoscope.config import variants
from anisoscope.config.data import CACHE
from anisoscope.config.experiment import Config
from anisoscope.config.run import seeds
from anisoscope.data.corpus import Corpus
from anisoscope.measurement import sweep
from anisoscope.measurement.sources import checkpoints
from anisoscope.measurement.sources.hub.folders import export
from anisoscope.tangents import sweep as tangents
from anisoscope.training import loop, program, replay
from anisoscope.utils import compiled, processes
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace
from anisoscope.utils.stop import Stop


class Run(NamedTuple):
    """A run of an experiment."""

    name: str  # its variant and seeds; the experiment's title where it has one run
    config: Config
    text: Corpus
    folder: pathlib.Path


class Work(NamedTuple):
    """What the stages work on."""

    experiment: Config
    runs: dict[str, Run]  # by the name of the folder inside the experiment's, '' where it has one run
    root: pathlib.Path
    title: str
    wanted: list[str]  # names of stages
    stop: Stop
    replayed: Sequence[int] = ()  # steps that the stage of this name makes a checkpoint of


class Stage(NamedTuple):
    name: str
    check: Callable[[Work], None]  # UserError, one line, where it cannot be done
    run: Callable[[Work], None]


def check_train(work: Work) -> None:
    for run in work.runs.values():
        program.check_program(run.config, run.text)


def train(work: Work) -> None:
    """Variant by variant; runs that differ in seeds alone together. What measures is compiled meanwhile."""
    first = next(iter(work.runs.values()))
    beside = precompile.compiling(first.config, first.text, first.folder, work.stop)
    with beside if "measure" in work.wanted else contextlib.nullcontext():
        for variant, group in variants.groups(work.experiment).items():
            train_together(work, variant, group)


def train_together(work: Work, variant: str, group: Config) -> None:
    """The seeds of a variant."""
    names = variants.run_names(variant, variants.of_seeds(group))
    first = work.runs[next(iter(names))]
    group = replace(group, {"model.dtype": first.config.model.dtype})  # what "auto" means
    name = variant or work.title
    if len(names) > 1:
        weights, data = (len(set(kind)) for kind in zip(*seeds(group.train), strict=True))
        name += f": {weights} weight × {data} data seeds"
    folders = {run or work.title: work.root / run for run in names}
    loop.train(group, first.text, folders, name, work.stop)
    work.stop.check(f"{name}: stopped when train was done")


def check_measure(work: Work) -> None:
    for run in work.runs.values():
        checkpoints.check_run(run.config, run.text, run.folder)


def measure_runs(work: Work) -> None:
    """Every checkpoint of every run; then what is read from the tables of all of them."""
    for run in work.runs.values():
        if steps := [one for one in run.config.measure.steps if not measured(run, one)]:
            replay.make(run.config, run.text, run.folder, steps, run.name, work.stop)
        with checkpoints.opened(run.config, run.text, run.folder, run.name, work.stop) as source:
            sweep.sweep(source, work.stop)
        if processes.is_first():
            on_disk.write_run(run.name, run.folder)
        work.stop.check(f"{run.name}: stopped when measure was done")
    if len(work.runs) > 1 and processes.is_first():
        folders = {name: run.folder for name, run in work.runs.items()}
        for path in on_disk.write(folders, work.root, work.experiment.primary):
            print(path)


def measured(run: Run, step: int) -> bool:
    """Whether the residual stream has a table of it."""
    return (run.folder / "measurements" / f"{step}.nc").exists()


def check_tangents(work: Work) -> None:
    for run in work.runs.values():
        tangents.check_windows_and_tables(run.config, run.text, run.folder)


def fit_tangents(work: Work) -> None:
    """The early subspaces of all runs first, as some are controls of others."""
    for run in work.runs.values():
        tangents.fit_early(run.config, run.text, run.folder, run.name, work.stop)
    configs = {name: run.config for name, run in work.runs.items()}
    for name, run in work.runs.items():
        other = tangents.other_seed(name, configs)
        beside = None if other is None else work.root / other
        tangents.sweep(run.config, run.text, run.folder, run.name, work.stop, beside)
        work.stop.check(f"{run.name}: stopped when tangents were done")
    if len(work.runs) > 1 and processes.is_first():
        print(on_disk.write_tangents({name: run.folder for name, run in work.runs.items()}, work.root))


def check_matched(work: Work) -> None:
    configs = {name: run.config for name, run in work.runs.items()}
    matched.check_several(configs)
    matched.check_differ(configs)


def contrast(work: Work) -> None:
    """Loss-matched."""
    configs = {name: run.config for name, run in work.runs.items()}
    texts = {name: run.text for name, run in work.runs.items()}
    matched.contrast(work.experiment, configs, texts, work.root, work.stop)


def check_verdicts(work: Work) -> None:
    if len(work.runs) == 1:
        raise UserError("--stages=verdicts judges over seeds, and this experiment has one run; leave it out")
    if "measure" not in work.wanted and not (work.root / "runs.csv").exists():
        raise UserError(f"--stages=verdicts: {work.root / 'runs.csv'} does not exist; run --stages=measure first")


def write_verdicts(work: Work) -> None:
    """What this experiment says of the papers' claims, from its tables alone."""
    if processes.is_first():
        for path in verdicts.write(work.root):
            print(path)


def check_export(work: Work) -> None:
    for run in work.runs.values():
        export.check_export(run.config)


def export_folders(work: Work) -> None:
    if processes.is_first():
        for run in work.runs.values():
            export.run(run.config, run.folder, run.name)


def check_replay(work: Work) -> None:
    for run in work.runs.values():
        program.check_program(run.config, run.text)
        if late := [step for step in work.replayed if step > run.config.train.steps]:
            raise UserError(f"--step={late[0]}: {run.name} ends at step {run.config.train.steps}")


def replay_steps(work: Work) -> None:
    """A checkpoint of each step, in replayed/; those that are there stay."""
    for run in work.runs.values():
        replay.make(run.config, run.text, run.folder, work.replayed, run.name, work.stop)


STAGES = (
    Stage("train", check_train, train),
    Stage("replay", check_replay, replay_steps),
    Stage("measure", check_measure, measure_runs),
    Stage("tangents", check_tangents, fit_tangents),
    Stage("matched", check_matched, contrast),
    Stage("verdicts", check_verdicts, write_verdicts),
    Stage("export", check_export, export_folders),
)  # in this order; figures are drawn of what they leave on disk (drawing.py)


def with_tangents(configs: Iterable[Any], wanted: list[str]) -> list[str]:
    """The stages wanted, `tangents` only where it is switched on."""
    if "tangents" not in wanted or any(config.tangents.enabled for config in configs):
        return wanted
    return [stage for stage in wanted if stage != "tangents"]


def keep_compiled(cache: str = CACHE) -> None:
    """What is compiled is read at the next start; where that cannot be, a line says so."""
    if (why := compiled.keep(cache)) and processes.is_first():
        print(why)
