"""The stages of an experiment that trains: a function of a `Work` for each stage."""

import contextlib
import functools
import os
import pathlib
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax

from anisoscope.analysis import on_disk, primary
from anisoscope.cli import flags
from anisoscope.cli.flags import Request
from anisoscope.config import variants
from anisoscope.config.experiment_config import Config
from anisoscope.config.measure_config import check_measure
from anisoscope.config.run_config import seed_pairs
from anisoscope.data import corpus
from anisoscope.models.transformer import compute_type
from anisoscope.sources import run_source, sweep
from anisoscope.subspaces import run_tangents, tangent_gradients, tangent_stage
from anisoscope.training import loop, train_program
from anisoscope.utils import checksums, compiled, folder, processes
from anisoscope.utils.compiled import CACHE
from anisoscope.utils.errors import UserError
from anisoscope.utils.files import read_json
from anisoscope.utils.processes import Stop
from anisoscope.utils.settings import replace


class TrainingRun(NamedTuple):
    name: str  # variant and seeds, or the experiment's title if this is its only run
    config: Config
    text: corpus.Corpus
    folder: pathlib.Path


class Work(NamedTuple):
    experiment: Config
    runs: dict[str, TrainingRun]  # by subfolder; '' if the experiment has a single run
    request: Request
    stages: list[str]
    stop: Stop

    def folders(self) -> dict[str, pathlib.Path]:
        """Return each run's folder by its name."""
        return {name: run.folder for name, run in self.runs.items()}


def check(experiment: Config, request: Request) -> None:
    """Check the settings of every run of an experiment, and of its seeds jointly."""
    runs = variants.expand(experiment, request.overridden)
    for config in (*runs.values(), *variants.groups(experiment, request.overridden).values()):
        check_run(config)
    enabled = any(config.tangents.enabled for config in runs.values())
    flags.check_tangent_stage(request.flags, enabled)


def check_run(config: Config) -> None:
    """Raise UserError if a run cannot be trained, measured or analyzed by the stage tangents."""
    train_program.check_trainable(config)
    check_measure(config.measure)
    sweep.check_hook_points(config.measure)
    tangent_gradients.check_tangents(config, config.tangents)


def run(experiment: Config, request: Request) -> None:
    """Run the requested stages in order; finished work is skipped."""
    from anisoscope.cli import drawing  # late: a dry run draws nothing

    values, root, stages = request.flags, request.root, request.flags.stages
    experiment, configs = prepare_runs(experiment, request)
    keep_compiled(experiment.data.cache)
    to = drawing.figures_folder(values.figures, root)
    folders = drawing.find_runs(configs, root, request.title, values.compare)
    if {*stages} - {"figures"}:
        work(experiment, configs, request)
    if "figures" in stages:
        check_folders(experiment, configs, root, False)
        drawing.draw_figures(folders, to, root, values.over, request.title)


def verify(experiment: Config, request: Request) -> None:
    """Check every file of the experiment against its checksum."""
    runs = variants.expand(experiment, request.overridden)
    checksums.verify_files({request.title: request.root} | {x: request.root / x for x in runs if x})


def dry_run(experiment: Config, request: Request) -> None:
    """Check what a run would check, and print the folder and each variant's training.

    A text that would be downloaded is taken to be zeros.
    """
    experiment, configs = prepare_runs(experiment, request)
    root, stages = request.root, with_tangents(configs.values(), request.flags.stages)
    check_folders(experiment, configs, root, "train" in stages)
    todo = plan_work(experiment, configs, request, Stop(), corpus.load_local)
    check_stages(todo)
    print(f"folder: {root}{' (exists: finished work is skipped)' * root.exists()}")
    print(f"stages: {', '.join(stages)}")
    for name, group in variants.groups(experiment).items() if "train" in stages else ():
        text = todo.runs[next(iter(variants.run_names(name, variants.single_runs(group))))].text
        for line in train_program.describe_run(group, text):
            print(f"{name or request.title}: {line}")


def prepare_runs(experiment: Config, request: Request) -> tuple[Config, dict[str, Config]]:
    """Configure the devices, and resolve model.dtype=auto in the experiment and its runs."""
    if request.flags.distributed:
        join_cluster()
    runs, root = variants.expand(experiment, request.overridden), request.root
    configs = {name: resolve_auto_dtype(config, root / name) for name, config in runs.items()}
    return resolve_auto_dtype(experiment, root), configs


def resolve_auto_dtype(config: Config, root: pathlib.Path) -> Config:
    """Replace model.dtype=auto by the dtype that the run began with, or this machine's default."""
    if config.model.dtype != "auto":
        return config
    try:
        dtype = read_json(root / "config.json", "")["model"]["dtype"]
    except (UserError, KeyError, TypeError):  # no run; an unreadable one is reported later
        dtype = compute_type("auto")
    return replace(config, {"model.dtype": dtype})


def work(experiment: Config, configs: dict[str, Config], request: Request) -> None:
    """Run all stages except figures; all checks come before a folder is made."""
    stop = Stop()
    todo = plan_work(experiment, configs, request, stop, corpus.load_corpus)
    with contextlib.ExitStack() as locks, stop:
        check_stages(todo)
        processes.on_first(lambda: claim_folders(todo, configs, locks))
        for stage in (stage for stage in STAGES if stage in todo.stages):
            STAGES[stage](todo)


def plan_work(
    experiment: Config,
    configs: dict[str, Config],
    request: Request,
    stop: Stop,
    load: Callable[[Any, int], corpus.Corpus],
) -> Work:
    """Plan the work of an experiment on the texts that `load` reads."""
    primary.check_primary(experiment.primary, list(configs))
    texts = read_corpora(configs.values(), load)
    runs = {
        name: TrainingRun(
            name or request.title,
            config,
            texts[config.data, config.model.context],
            request.root / name,
        )
        for name, config in configs.items()
    }
    stages = with_tangents(configs.values(), request.flags.stages)
    return Work(experiment, runs, request, stages, stop)


def read_corpora(
    configs: Iterable[Config], load: Callable[[Any, int], corpus.Corpus]
) -> dict[tuple[Any, int], corpus.Corpus]:
    """Read each text once: {(data settings, context): corpus}."""
    texts = {}
    for data, context in {(config.data, config.model.context): None for config in configs}:
        text = texts[data, context] = load(data, context)
        binary = " (0 among them: is this a binary file?)" if 0 in text.vocabulary else ""
        size = f"{len(text.vocabulary)} distinct bytes{binary}"
        print(f"corpus: {text.name}, {size}, from {text.origin}")
    return texts


def check_stages(todo: Work) -> None:
    """Raise UserError if a requested stage cannot run."""
    stages, runs = todo.stages, todo.runs.values()
    for _, config, text, path in runs:
        if "train" in stages:
            train_program.check_program(config, text)
        if "measure" in stages:
            run_source.check_measurable(config, text, path)
        if "tangents" in stages:
            run_tangents.check_windows_and_tables(config, text, path)


def claim_folders(todo: Work, configs: dict[str, Config], locks: contextlib.ExitStack) -> None:
    """Claim the folders for this experiment, and lock them until `locks` closes."""
    new, shared = "train" in todo.stages, todo.request.flags.steps is not None
    for path, config in check_folders(todo.experiment, configs, todo.request.root, new).items():
        folder.claim_folder(path, config, new)
        locks.enter_context(folder.locked_folder(path, shared))
        folder.check_claim(path, config, False)  # another process may have claimed it first
    for run in () if shared else todo.runs.values():
        folder.record_environment(run.folder, run.text.record())


def check_folders(
    experiment: Config, configs: dict[str, Config], root: pathlib.Path, new: bool
) -> dict[pathlib.Path, Config]:
    """Check the folder of an experiment and of each run against its config; return both."""
    folders = {root: experiment} | {root / name: config for name, config in configs.items()}
    for path, config in folders.items():
        folder.check_claim(path, config, new)
    return folders


def join_cluster() -> None:
    """Join the other processes of a cluster; only the first prints and writes."""
    try:
        jax.distributed.initialize()
    except (RuntimeError, ValueError, LookupError) as error:
        why = str(error).splitlines()[0]
        if not isinstance(error, RuntimeError):  # a Python error about a variable
            why = (
                f"its environment variables, such as SLURM_JOB_ID, are damaged or incomplete: {why}"
            )
        advice = "omit it on a single machine"
        raise UserError(f"--distributed finds no cluster ({why}); {advice}") from error
    if not processes.is_first():
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (stays open until the process ends)


def train_variants(todo: Work) -> None:
    """Train each variant; its runs that differ only in seeds train in one program."""
    for variant, group in variants.groups(todo.experiment).items():
        names = variants.run_names(variant, variants.single_runs(group))
        first = todo.runs[next(iter(names))]
        group = replace(group, {"model.dtype": first.config.model.dtype})  # what "auto" means
        name = variant or todo.request.title
        if len(names) > 1:
            weights, data = (len({*kind}) for kind in zip(*seed_pairs(group.train), strict=True))
            name += f": {weights} weight × {data} data seeds"
        folders = {todo.runs[run].name: todo.runs[run].folder for run in names}
        loop.train(group, first.text, folders, name, todo.stop)
        todo.stop.check(f"{name}: stopped when train was done")


def measure_runs(todo: Work) -> None:
    """Measure every checkpoint of every run, and join the tables of all runs."""
    chosen = flags.parse_steps(todo.request.flags.steps)
    for name, config, text, path in todo.runs.values():
        source = run_source.open_run_source(config, text, path, name)
        if chosen:
            sweep.measure_steps(source, todo.stop, chosen)
        else:
            sweep.sweep(source, todo.stop, functools.partial(on_disk.write_run, name, path))
        todo.stop.check(f"{name}: stopped when measure was done")
    if len(todo.runs) > 1 and not chosen:
        paths = on_disk.write_experiment(todo.folders(), todo.request.root, todo.experiment.primary)
        print(*paths, sep="\n")


def fit_tangents(todo: Work) -> None:
    """Fit the early subspaces of all runs before the sweep, which uses other seeds as controls."""
    for name, config, text, path in todo.runs.values():
        tangent_stage.fit_early(run_tangents.RunStudy(config, text, path, name), todo.stop)
    configs = {name: run.config for name, run in todo.runs.items()}
    for key, (name, config, text, path) in todo.runs.items():
        other = run_tangents.other_seed(key, configs)
        control = None if other is None else todo.runs[other].folder / tangent_stage.EARLY
        sweep.sweep(run_tangents.RunStudy(config, text, path, name, control), todo.stop)
        todo.stop.check(f"{name}: stopped when tangents were done")
    if len(todo.runs) > 1:
        print(on_disk.write_tangents(todo.folders(), todo.request.root))


# In the order in which they run; figures are drawn afterward from the files on disk.
STAGES = {
    "train": train_variants,
    "measure": measure_runs,
    "tangents": fit_tangents,
}


def with_tangents(configs: Iterable[Any], stages: list[str]) -> list[str]:
    """Remove the stage `tangents` if no run has it switched on."""
    enabled = "tangents" in stages and any(config.tangents.enabled for config in configs)
    return [stage for stage in stages if stage != "tangents" or enabled]


def keep_compiled(cache: str = CACHE) -> None:
    """Enable the compilation cache, or print why it is unavailable."""
    if (why := compiled.keep(cache)) and processes.is_first():
        print(why)
