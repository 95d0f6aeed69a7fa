"""An experiment that trains, from its settings to its figures."""

import contextlib
import os
import pathlib
import sys
from collections.abc import Callable, Sequence

import jax

from anisoscope.analysis import primary
from anisoscope.cli import archive, drawing
from anisoscope.cli.flags import Request
from anisoscope.cli.stages import STAGES, Run, Work, keep_compiled, with_tangents
from anisoscope.config import variants
from anisoscope.config.experiment_config import Config
from anisoscope.data import corpus
from anisoscope.models.transformer import compute_type
from anisoscope.sources.evaluation_windows import POSITION_SETS
from anisoscope.training import trial
from anisoscope.utils import checksums, folder, mesh, processes
from anisoscope.utils.errors import UserError
from anisoscope.utils.files import read_json
from anisoscope.utils.settings import replace
from anisoscope.utils.stop import Stop


def run(experiment: Config, request: Request) -> None:
    """All stages that are asked for, in order. What is done already is not done again."""
    given, root, stages = request.given, request.root, request.given.stages
    experiment, configs = prepared(experiment, request)
    keep_compiled(experiment.data.cache)
    if "verify" in stages:
        folders = {request.title: root} | {name: root / name for name in configs if name}
        check_folders(experiment, configs, root, False, folder.check_there)
        archive.verify(request.title, folders, {request.title: experiment} | configs)
        return
    to = drawing.folder_of(given.figures, root)
    shown = drawing.named(configs, root, request.title, given.compare)
    if set(stages) >= {"train", "figures"} and "measure" not in stages:
        drawing.check_measured(configs, root)
    if {*stages} - {"figures"}:
        work(experiment, configs, root, request.title, stages, [*map(int, given.step)])
    if "figures" in stages:
        check_folders(experiment, configs, root, False, folder.check_claim)
        drawing.draw_figures(shown, to, root, given.over)


def dry_run(experiment: Config, request: Request) -> None:
    """Print the folder, and of each variant what training takes; a text is read if that needs no
    network.
    """
    experiment, configs = prepared(experiment, request)
    root, stages = request.root, with_tangents(configs.values(), request.given.stages)
    check_folders(experiment, configs, root, "train" in stages, folder.check_claim)
    print(
        f"folder: {root}{' (exists: what is done there is not done again)' if root.exists() else ''}"
    )
    print(f"stages: {', '.join(stages)}")
    if "train" not in stages:
        return
    for name, group in variants.groups(experiment).items():
        local = group.data.path or group.data.source == "pydoc"
        text = corpus.load(group.data, group.model.context) if local else trial.blank_corpus()
        for line in trial.describe_run(group, text):
            print(f"{name or request.title}: {line}")


def prepared(experiment: Config, request: Request) -> tuple[Config, dict[str, Config]]:
    """The experiment and its runs, with the devices that they take and the type that
    model.dtype=auto means.
    """
    if request.given.distributed:
        join_cluster()
    else:
        mesh.take_cores_for_devices(units(experiment))
    runs = variants.expand(experiment, request.overridden)
    configs = {name: resolved(config, request.root / name) for name, config in runs.items()}
    return resolved(experiment, request.root), configs


def work(
    experiment: Config,
    configs: dict[str, Config],
    root: pathlib.Path,
    title: str,
    wanted: list[str],
    replayed: Sequence[int] = (),
) -> None:
    """All stages but figures. What can be refused is refused before the first folder is made."""
    wanted = with_tangents(configs.values(), wanted)
    primary.check_primary(experiment.primary, list(configs))
    texts = read_texts(configs)
    runs = {
        name: Run(name or title, config, texts[text_key(config)], root / name)
        for name, config in configs.items()
    }
    with contextlib.ExitStack() as locks, Stop() as stop:
        asked = Work(experiment, runs, root, title, wanted, stop, replayed)
        stages = [stage for stage in STAGES if stage.name in wanted]
        for stage in stages:
            stage.check(asked)
        processes.on_first(lambda: claim(asked, configs, locks))
        for number, stage in enumerate(stages):
            if number and processes.is_first():
                for path in {root, *(run.folder for run in runs.values())}:
                    checksums.write(path)
                    checksums.begin(path)
            stage.run(asked)


def read_texts(configs: dict[str, Config]) -> dict[str, corpus.Corpus]:
    """By `text_key`, each once."""
    texts = {}
    for config in configs.values():
        if text_key(config) not in texts:
            text = texts[text_key(config)] = corpus.load(config.data, config.model.context)
            binary = " (0 is among them: no text has it)" if 0 in text.vocabulary else ""
            print(
                f"corpus: {text.name}, {len(text.vocabulary)} distinct bytes{binary}, from {text.origin}"
            )
    return texts


def claim(asked: Work, configs: dict[str, Config], locks: contextlib.ExitStack) -> None:
    """Make the folders the experiment's own, and hold them until the locks are let go."""
    check_folders(asked.experiment, configs, asked.root, "train" in asked.wanted, folder.claim)
    for path in {asked.root, *(run.folder for run in asked.runs.values())}:
        locks.enter_context(folder.locked(path))
    # Another start may have been quicker.
    check_folders(asked.experiment, configs, asked.root, False, folder.check_claim)
    for run in asked.runs.values():
        folder.record_environment(run.folder, run.text.record())


def check_folders(
    experiment: Config,
    configs: dict[str, Config],
    root: pathlib.Path,
    new: bool,
    check: Callable[..., None],
) -> None:
    """The experiment's folder and those of its runs must hold them and nothing else; they may be
    `new`.
    """
    for path, config in {
        root: experiment,
        **{root / name: config for name, config in configs.items()},
    }.items():
        check(path, config, new)


def join_cluster() -> None:
    """Become one of several processes; only the first one speaks and writes."""
    try:
        jax.distributed.initialize()
    except (RuntimeError, ValueError, LookupError) as error:
        reason = str(error).splitlines()[0]
        if not isinstance(error, RuntimeError):  # in Python's words
            reason = (
                f"its environment variables, as SLURM_JOB_ID, are damaged or incomplete: {reason}"
            )
        raise UserError(
            f"--distributed finds no cluster ({reason}); leave it out on a single machine"
        ) from error
    if not processes.is_first():
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (stays open until the process ends)


def units(experiment: Config) -> int:
    """What measuring a checkpoint can be shared out into."""
    return experiment.measure.batches * len(POSITION_SETS)


def resolved(config: Config, root: pathlib.Path) -> Config:
    """With what model.dtype=auto means: what the run began with, or what this machine is best
    at.
    """
    if config.model.dtype != "auto":
        return config
    try:
        dtype = read_json(root / "config.json", "")["model"]["dtype"]
    except (
        UserError,
        KeyError,
        TypeError,
    ):  # no run there, or not a readable one: `claim` speaks of it
        dtype = compute_type("auto")
    return replace(config, {"model.dtype": dtype})


def text_key(config: Config) -> str:
    """Runs with equal keys read the same text, loaded once."""
    return str((config.data, config.model.context))
