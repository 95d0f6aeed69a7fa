"""The stages of an experiment that trains, an entry each: what is refused before the first folder
is made, and work.
"""

import contextlib
import pathlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax

from anisoscope.analysis import loss_matched_runs as matched
from anisoscope.analysis import on_disk
from anisoscope.analysis.claims import verdicts
from anisoscope.config import variants
from anisoscope.config.data_config import CACHE
from anisoscope.config.experiment_config import Config
from anisoscope.config.run_config import seeds
from anisoscope.data.corpus import Corpus
from anisoscope.sources import run_source, sweep
from anisoscope.sources.hf.folders import export_folder
from anisoscope.subspaces import run_tangents as tangents
from anisoscope.training import finished, loop, replay, train_program
from anisoscope.utils import compiled, processes
from anisoscope.utils.errors import UNSTOPPABLE, UserError
from anisoscope.utils.settings import replace
from anisoscope.utils.stop import Stop


class Run(NamedTuple):
    name: str  # its variant and seeds; the experiment's title where it has one run
    config: Config
    text: Corpus
    folder: pathlib.Path


class Work(NamedTuple):
    experiment: Config
    # by the name of the folder inside the experiment's, '' where it has one run
    runs: dict[str, Run]
    root: pathlib.Path
    title: str
    wanted: list[str]  # names of stages
    stop: Stop
    replayed: Sequence[int] = ()  # steps that the stage of this name makes a checkpoint of


class Stage(NamedTuple):
    name: str
    check: Callable[[Work], None]  # UserError, one line, where it cannot be done
    run: Callable[[Work], None]


def of_each(check: Callable[[Run], Any]) -> Callable[[Work], None]:
    """The check of every run."""

    def checked(work: Work) -> None:
        for run in work.runs.values():
            check(run)

    return checked


def train(work: Work) -> None:
    """Variant by variant; runs that differ in seeds alone together. What measures is compiled
    meanwhile.
    """
    first = next(iter(work.runs.values()))
    beside = compiling(first.config, first.text, first.folder, work.stop)
    with beside if "measure" in work.wanted else contextlib.nullcontext():
        for variant, group in variants.groups(work.experiment).items():
            train_together(work, variant, group)


@contextlib.contextmanager
def compiling(config: Config, corpus: Corpus, run: pathlib.Path, stop: Stop) -> Iterator[None]:
    """The program that measures is compiled while one process trains on a CPU, all of whose cores
    but one are idle.

    At its end the compiler is waited for, unless a stop is asked for.
    """
    if finished.is_finished(run) or jax.process_count() > 1 or jax.default_backend() != "cpu":
        yield
        return

    def work() -> None:
        with contextlib.suppress(Exception):  # it is raised again where the program is used
            run_source.precompile(config, corpus)

    thread = threading.Thread(target=work, name=UNSTOPPABLE, daemon=True)
    thread.start()
    yield  # where this raises, the process ends without the compiler: process.py
    if thread.is_alive():
        print("waiting for the program that measures: it is being compiled")
    while thread.is_alive() and not stop.asked:
        thread.join(0.1)


def train_together(work: Work, variant: str, group: Config) -> None:
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


def measure_runs(work: Work) -> None:
    """Every checkpoint of every run; then what is read from the tables of all of them."""
    for run in work.runs.values():
        tables = run.folder / "measurements"
        if steps := [
            step for step in run.config.measure.steps if not (tables / f"{step}.nc").exists()
        ]:
            replay.make_checkpoints(run.config, run.text, run.folder, steps, run.name, work.stop)
        with run_source.opened(run.config, run.text, run.folder, run.name, work.stop) as source:
            sweep.sweep(source, work.stop)
        if processes.is_first():
            on_disk.write_run(run.name, run.folder)
        work.stop.check(f"{run.name}: stopped when measure was done")
    if len(work.runs) > 1 and processes.is_first():
        folders = {name: run.folder for name, run in work.runs.items()}
        for path in on_disk.write(folders, work.root, work.experiment.primary):
            print(path)


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
        print(
            on_disk.write_tangents({name: run.folder for name, run in work.runs.items()}, work.root)
        )


def contrast(work: Work) -> None:
    configs = {name: run.config for name, run in work.runs.items()}
    texts = {name: run.text for name, run in work.runs.items()}
    matched.contrast(work.experiment, configs, texts, work.root, work.stop)


def check_verdicts(work: Work) -> None:
    if len(work.runs) == 1:
        raise UserError(
            "--stages=verdicts judges over seeds, and this experiment has one run; leave it out"
        )
    if "measure" not in work.wanted and not (work.root / "runs.csv").exists():
        raise UserError(
            f"--stages=verdicts: {work.root / 'runs.csv'} does not exist; run --stages=measure first"
        )


def write_verdicts(work: Work) -> None:
    """What this experiment says of the papers' claims, from its tables alone."""
    if processes.is_first():
        for path in verdicts.write(work.root):
            print(path)


def export_folders(work: Work) -> None:
    if processes.is_first():
        for run in work.runs.values():
            export_folder.run(run.config, run.folder, run.name)


def check_replay(work: Work) -> None:
    for run in work.runs.values():
        train_program.check_program(run.config, run.text)
        if late := [step for step in work.replayed if step > run.config.train.steps]:
            raise UserError(f"--step={late[0]}: {run.name} ends at step {run.config.train.steps}")


def replay_steps(work: Work) -> None:
    """In replayed/; those that are there stay."""
    for run in work.runs.values():
        replay.make_checkpoints(
            run.config, run.text, run.folder, work.replayed, run.name, work.stop
        )


STAGES = (
    Stage("train", of_each(lambda run: train_program.check_program(run.config, run.text)), train),
    Stage("replay", check_replay, replay_steps),
    Stage(
        "measure",
        of_each(lambda run: run_source.check_run(run.config, run.text, run.folder)),
        measure_runs,
    ),
    Stage(
        "tangents",
        of_each(lambda run: tangents.check_windows_and_tables(run.config, run.text, run.folder)),
        fit_tangents,
    ),
    Stage(
        "matched", lambda work: matched.check([run.config for run in work.runs.values()]), contrast
    ),
    Stage("verdicts", check_verdicts, write_verdicts),
    Stage("export", of_each(lambda run: export_folder.check_export(run.config)), export_folders),
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
