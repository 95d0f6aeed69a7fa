"""What the stages of an experiment do to its runs, in order, up to the tables; drawing.py draws them together."""

import contextlib
import json
import os
import pathlib
import sys
from collections.abc import Callable

import jax

from anisoscope.analysis import on_disk, primary
from anisoscope.cli import ahead, cost, equal, memory
from anisoscope.config import variants
from anisoscope.config.data import CACHE
from anisoscope.config.experiment import Config
from anisoscope.config.pretrained import PretrainedConfig
from anisoscope.config.run import seeds
from anisoscope.data import corpus
from anisoscope.measurement.sources import points, sites, sweep
from anisoscope.measurement.sources.hub.folders import export
from anisoscope.measurement.sources.probe import POSITION_SETS
from anisoscope.models.transformer import compute_type
from anisoscope.tangents import sweep as tangents
from anisoscope.training import loop, program
from anisoscope.utils import compiled, folder, processes
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace
from anisoscope.utils.stop import Stop


def join_cluster() -> None:
    """Become one of several processes; only the first one speaks and writes."""
    try:
        jax.distributed.initialize()
    except (RuntimeError, ValueError, LookupError) as error:
        reason = str(error).splitlines()[0]
        if not isinstance(error, RuntimeError):  # in Python's words
            reason = f"its environment variables, as SLURM_JOB_ID, are damaged or incomplete: {reason}"
        raise UserError(f"--distributed finds no cluster ({reason}); leave it out on a single machine") from error
    if not processes.is_first():
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (stays open until the process ends)


def units(experiment: Config) -> int:
    """What measuring a checkpoint can be shared out into."""
    return experiment.measure.batches * len(POSITION_SETS)


def keep_compiled(cache: str = CACHE) -> None:
    """What is compiled is read at the next start; where that cannot be, a line says so."""
    if (why := compiled.keep(cache)) and processes.is_first():
        print(why)


def foretell(experiment: Config, configs: dict[str, Config], root: pathlib.Path, wanted: list[str]) -> None:
    """What would be done, and what it takes. A text is read for it where that needs no network."""
    data, wanted = experiment.data, with_tangents(configs, wanted)
    check_folders(experiment, configs, root, "train" in wanted, folder.check)
    text, found = cost.Text(), None
    if data.path or data.source == "pydoc":
        found = corpus.load(data, experiment.model.context)
        text = cost.size_of(found)
        print(f"corpus: {found.name}, from {found.origin}")
    print(f"folder: {root}{' (exists: what is done there is not done again)' if root.exists() else ''}")
    for line in cost.told(configs, text, wanted, units(experiment)):
        print(line)
    for group in variants.groups(experiment).values():
        memory.check(group, text.vocabulary, wanted)
    for config in configs.values():
        if found is not None and "train" in wanted and text_key(config) == text_key(experiment):
            program.check(config, found)


def work(experiment: Config, configs: dict[str, Config], root: pathlib.Path, title: str, wanted: list[str]) -> None:
    """Train and measure. What can be refused is refused before the first folder is made."""
    wanted = with_tangents(configs, wanted)
    primary.check(experiment.primary, list(configs))
    if "equal" in wanted:
        equal.check(configs)
    texts = {}
    for config in configs.values():
        if text_key(config) not in texts:
            text = texts[text_key(config)] = corpus.load(config.data, config.model.context)
            binary = " (0 is among them: no text has it)" if 0 in text.vocabulary else ""
            print(f"corpus: {text.name}, {len(text.vocabulary)} distinct bytes{binary}, from {text.origin}")
    for group in variants.groups(experiment).values():
        memory.check(group, texts[text_key(group)].vocab_size, wanted)
    for name, config in configs.items():
        if "train" in wanted:
            program.check(config, texts[text_key(config)])
        if "measure" in wanted:
            for tables in ("measurements", *sites.folders(config), *[points.FOLDER] * config.measure.points_table):
                sweep.check(root / name / tables, config, texts[text_key(config)])
        if "tangents" in wanted:
            tangents.check(config, texts[text_key(config)], root / name)
        if "export" in wanted:
            export.check(config)
    if not root.exists():
        costs = {name: cost.of_run(config, cost.size_of(texts[text_key(config)])) for name, config in configs.items()}
        print(f"{title}: {cost.plan(configs, costs, wanted)}: {cost.summary(costs, wanted, units(experiment))}")

    with contextlib.ExitStack() as locks, Stop() as stop:

        def claim() -> None:
            check_folders(experiment, configs, root, "train" in wanted, folder.claim)
            for path in {root, *(root / name for name in configs)}:
                locks.enter_context(folder.locked(path))
            check_folders(
                experiment, configs, root, False, folder.check
            )  # another start may have claimed them in between
            for name, config in configs.items():
                folder.record_environment(root / name, texts[text_key(config)].record())

        processes.on_first(claim)
        if "train" in wanted:
            first, config = next(iter(configs.items()))
            beside = ahead.compiling(config, texts[text_key(config)], root / first, stop)
            with beside if "measure" in wanted else contextlib.nullcontext():
                train(experiment, configs, texts, root, title, stop)
        if "measure" in wanted:
            for name, config in configs.items():
                sweep.sweep(config, texts[text_key(config)], root / name, name or title, stop)
                if config.measure.sites:
                    sites.measure(config, texts[text_key(config)], root / name, name or title, stop)
                if config.measure.points_table:
                    points.measure(config, texts[text_key(config)], root / name, name or title, stop)
                if processes.is_first():
                    on_disk.write_run(name or title, root / name)
                stop.check(f"{name or title}: stopped when measure was done")
            if len(configs) > 1 and processes.is_first():
                for path in on_disk.write({name: root / name for name in configs}, root, experiment.primary):
                    print(path)
        if "tangents" in wanted:
            fit_tangents(configs, texts, root, title, stop)
        if "equal" in wanted:
            of_each = {name: texts[text_key(config)] for name, config in configs.items()}
            equal.contrast(experiment, configs, of_each, root, stop)
        if "export" in wanted and processes.is_first():
            for name, config in configs.items():
                export.run(config, root / name, name or title)


def with_tangents(configs: dict[str, Config | PretrainedConfig], wanted: list[str]) -> list[str]:
    """The stages wanted, `tangents` only where it is switched on."""
    if "tangents" not in wanted or any(config.tangents.enabled for config in configs.values()):
        return wanted
    return [stage for stage in wanted if stage != "tangents"]


def fit_tangents(
    configs: dict[str, Config], texts: dict[str, corpus.Corpus], root: pathlib.Path, title: str, stop: Stop
) -> None:
    """The early proxies of all runs first, as some are controls of others."""
    for name, config in configs.items():
        tangents.fit_early(config, texts[text_key(config)], root / name, name or title, stop)
    for name, config in configs.items():
        other = tangents.other_seed(name, configs)
        beside = None if other is None else root / other
        tangents.sweep(config, texts[text_key(config)], root / name, name or title, stop, beside)
        stop.check(f"{name or title}: stopped when tangents were done")


def train(
    experiment: Config,
    configs: dict[str, Config],
    texts: dict[str, corpus.Corpus],
    root: pathlib.Path,
    title: str,
    stop: Stop,
) -> None:
    """Variant by variant; runs that differ in seeds alone together."""
    for variant, group in variants.groups(experiment).items():
        runs = variants.run_names(variant, variants.members(group))
        group = replace(group, {"model.dtype": configs[next(iter(runs))].model.dtype})  # what "auto" means
        name = variant or title
        if len(runs) > 1:
            weights, data = (len(set(kind)) for kind in zip(*seeds(group.train), strict=True))
            name += f": {weights} weight × {data} data seeds"
        folders = {run or title: root / run for run in runs}
        loop.train(group, texts[text_key(group)], folders, name, stop)
        stop.check(f"{name}: stopped when train was done")


def check_folders(
    experiment: Config, configs: dict[str, Config], root: pathlib.Path, new: bool, check: Callable[..., None]
) -> None:
    """The experiment's folder and those of its runs must hold them and nothing else; they may be `new`."""
    for path, config in {root: experiment, **{root / name: config for name, config in configs.items()}}.items():
        check(path, config, new)


def resolve_types(experiment: Config, configs: dict[str, Config], root: pathlib.Path) -> tuple[Config, dict]:
    """Both with what model.dtype=auto means: what the runs began with, or what this machine is best at."""
    return resolved(experiment, root), {name: resolved(config, root) for name, config in configs.items()}


def resolved(config: Config, root: pathlib.Path) -> Config:
    if config.model.dtype != "auto":
        return config
    try:
        dtype = json.loads((root / "config.json").read_text())["model"]["dtype"]
    except (OSError, ValueError, KeyError, TypeError):  # no run there, or not a readable one: `claim` speaks of it
        dtype = compute_type("auto")
    return replace(config, {"model.dtype": dtype})


def text_key(config: Config) -> str:
    """Runs with equal keys read the same text, loaded once."""
    return str((config.data, config.model.context))
