"""The flags beside an experiment's settings: what they are, what they may be, and the words of --help."""

import errno
import os
import pathlib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from absl import flags

from anisoscope.cli import explained as explanation
from anisoscope.cli import flags as settings_flags
from anisoscope.config.experiment import Config
from anisoscope.utils.errors import UserError, did_you_mean
from anisoscope.utils.files import read_small

STAGES = ("train", "measure", "tangents", "figures")  # what is done where none is named
AXES = ("step", "context_gain")
FURTHER = ("matched", "verdicts", "export", "replay", "verify")  # done where it is named
PAGE, ALL = "page", "all"  # what --help shows
OF_RUNS = ("config", "stages", "compare", "over", "distributed", "dry_run")  # which --similarity knows nothing of
LARGEST_FLAGFILE = 2**20  # bytes
PATHS = {"config": ":", "workdir": "", "figures": "", "status": "", "compare": "", "similarity": "@"}  # what ends them


class Request(NamedTuple):
    """What is asked for beside an experiment: flags, settings and the folder."""

    given: flags.FlagValues
    settings: dict[str, str | None]  # that were given, by dotted name
    root: pathlib.Path  # the folder to work in
    title: str


class Flags(flags.FlagValues):
    """absl's own, which reads a --flagfile of whatever kind to its end."""

    def _get_flag_file_lines(self, filename: str, parsed_file_stack: list[str] | None = None) -> Any:
        try:
            content = read_small(pathlib.Path(filename), LARGEST_FLAGFILE) if filename else b""
            if b"\0" in content:
                raise ValueError("it is no text")
            content.decode()
        except (OSError, ValueError) as error:
            advice = "name a text with a flag on each line"
            raise UserError(f"--flagfile={filename} cannot be read ({error}); {advice}") from error
        return super()._get_flag_file_lines(filename, parsed_file_stack)


def defined() -> Flags:
    """Every flag with its default and its line of --help."""
    given = Flags()
    flags.DEFINE_string("config", None, "Experiment file, as experiments/decoder_small.py or …:tiny.", given)
    flags.DEFINE_string("workdir", None, "Folder of the run; runs/<experiment> where not given.", given)
    flags.DEFINE_list(
        "stages",
        list(STAGES),
        f"Which of {', '.join(STAGES)} to do; also matched: loss-matched contrasts; verdicts: on the papers' claims; "
        "export: Hugging Face folders; replay: the checkpoint of any --step; verify: is every file as it was written?",
        given,
    )
    flags.DEFINE_list("step", [], "With --stages=replay: steps to make a checkpoint of, as 300 or 300,301.", given)
    flags.DEFINE_bool("distributed", False, "Join the other processes of the cluster (TPU pod, SLURM, MPI).", given)
    flags.DEFINE_list("compare", [], "Folders of other runs to draw in the same figures.", given)
    flags.DEFINE_string("figures", None, "Folder of the figures; <workdir>/figures where not given.", given)
    flags.DEFINE_string("over", AXES[0], f"What curves over training are drawn over: {' or '.join(AXES)}.", given)
    flags.DEFINE_bool("list", False, "Name the experiments, with the expected cost of each.", given)
    flags.DEFINE_bool("dry_run", False, "Say what would be done, what it takes and how long; do nothing.", given)
    flags.DEFINE_string("status", None, "Folder of a run: say what is done and what is missing; do nothing.", given)
    two = "Two runs, as runs/a,runs/b@256: how alike are their layers on the same text? At a step, or the last."
    flags.DEFINE_list("similarity", [], two, given)
    flags.DEFINE_bool("version", False, "Tell the version.", given)
    shown = "Show this page; --help=train: a group of settings; --help=all: every setting; --config says of which."
    flags.DEFINE_string("help", None, shown, given)
    return given


def leads_nowhere(path: str) -> bool:
    """Whether its links go round in a circle."""
    try:
        os.stat(path)
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def parse(words: list[str]) -> flags.FlagValues:
    """The flags beside the experiment's settings; UserError, one line, where they are wrong."""
    given = defined()
    try:
        left = given([f"--help={PAGE}" if word in ("--help", "-help", "-h") else word for word in words])
    except flags.UnrecognizedFlagError as error:
        hint = did_you_mean(error.flagname, given) or "; see --help"
        raise UserError(f"--{error.flagname} is not a flag{hint}") from error
    except flags.IllegalFlagValueError as error:
        what = str(error).removeprefix("flag ").partition(": ")[0]
        raise UserError(f"{what}: true or false is needed") from error
    except flags.Error as error:
        raise UserError(f"{error}; see --help") from error
    if len(left) > 1:
        raise UserError(f"{left[1]!r} is not a flag; see --help")
    for name in ("config", "workdir", "figures", "status"):
        if given[name].value == "":
            raise UserError(f"--{name}= names nothing; give a name or leave it out")
        if re.search("[\ud800-\udfff]", given[name].value or ""):
            raise UserError(f"--{name}={given[name].value!r} is no UTF-8, in which checkpoints are named; name another")
    for name in PATHS:
        value = given[name].value or ""
        for path in [value] if isinstance(value, str) else value:
            if leads_nowhere(path.partition(PATHS[name])[0] if PATHS[name] else path):
                raise UserError(f"--{name}={path}: links lead to each other; name another")
    if given["similarity"].present and len(given.similarity) != 2:
        raise UserError("--similarity compares two runs; name two folders, as --similarity=runs/a,runs/b@256")
    alone = (given.help, given.version, given.list, given.similarity)
    if any(alone) or given.status is not None:
        return given
    if given.config is None:
        raise UserError("no experiment given; pass --config=experiments/quickstart.py, say, or see --list")
    choose("over", given.over, AXES)
    if not given.stages:
        raise UserError(f"--stages names no stage; choose from {', '.join(STAGES)}")
    for stage in given.stages:
        choose("stages", stage, (*STAGES, *FURTHER))
    check_archive(given)
    return given


def choose(flag: str, word: str, known: tuple[str, ...]) -> None:
    if word not in known:
        hint = did_you_mean(word, known)
        raise UserError(f"--{flag}: {word!r} is unknown; choose from {', '.join(known)}{hint}")


def check_archive(given: flags.FlagValues) -> None:
    """Raise UserError where flags of the stages `verify` and `replay` do not go together."""
    if "verify" in given.stages and len(given.stages) > 1:
        raise UserError(f"--stages=verify is done alone; leave out {next(s for s in given.stages if s != 'verify')}")
    if "verify" in given.stages and given.distributed:
        raise UserError("--stages=verify is done by one process; leave --distributed out")
    if bool(given.step) != ("replay" in given.stages):
        raise UserError("--stages=replay and --step=S go together: name the step, or leave both out")
    if wrong := [word for word in given.step if not (word.isascii() and word.isdecimal() and len(word) < 10)]:
        raise UserError(f"--step={wrong[0]}: a whole number is needed, as 300")


def check_settings(given: flags.FlagValues, settings: dict[str, str | None]) -> None:
    """Raise UserError for settings and flags of an experiment beside what runs none."""
    for name in ("list", "status", "similarity"):
        if settings and given[name].present and not given.help:
            advice = f"leave out --config.{next(iter(settings))}"
            raise UserError(f"--{name} runs no experiment and has no settings; {advice}")
    for name in OF_RUNS:
        if given.similarity and given[name].present and not given.help:
            raise UserError(f"--similarity compares two runs that are there; leave out --{name}")


def refuse_training(given: flags.FlagValues, what: str, stages: tuple[str, ...]) -> None:
    """Raise UserError for what only training runs have, where an experiment is of something else."""
    for name in ("compare", "distributed", "over"):
        if given[name].value != given[name].default:
            raise UserError(f"--{name} is for training runs; leave it out with an experiment on {what}")
    stages = (*stages, "verify")
    if asked := [stage for stage in FURTHER if stage in given.stages and stage not in stages]:
        advice = "anisoscope.verdicts([folder]) reads their tables" if asked[0] == "verdicts" else "leave it out"
        raise UserError(f"--stages={asked[0]}: {what} are not trained here; {advice}")
    if given["stages"].present and (asked := [stage for stage in given.stages if stage not in stages]):
        raise UserError(f"--stages={asked[0]}: {what} are not trained; choose from {', '.join(stages[:-1])}")


def check_tangents(given: flags.FlagValues, enabled: bool) -> None:
    """Raise UserError where the stage is named and switched off; where no stage is named it is left out."""
    if given["stages"].present and "tangents" in given.stages and not enabled:
        raise UserError("--stages=tangents: the stage is switched off here; pass --config.tangents.enabled=True")


def names(given: flags.FlagValues) -> list[str]:
    return [name for name in sorted(given) if name not in ("flagfile", "undefok")]  # absl's own


def explained(given: flags.FlagValues, settings: dict[str, str | None]) -> Iterator[str]:
    """What --help asks for: settings of the experiment given, or the defaults of one that trains."""
    config = settings_flags.load(given.config) if given.config else Config()
    config, where = settings_flags.override(config, settings), f" of {given.config}" if given.config else ""
    groups = explanation.groups(config)
    if given.help in groups:
        yield from explanation.settings(groups[given.help], f"{given.help}.")
        return
    if given.help not in (PAGE, ALL):
        known = (PAGE, ALL, *groups)
        hint = did_you_mean(given.help, known) or f"; choose from {', '.join(known)}"
        raise UserError(f"--help={given.help}: there is no such group of settings{hint}")
    for name in names(given):
        sign = "[no]" if given[name].boolean else ""
        yield from explanation.beside(f"  --{sign}{name}: ", given[name].help)
    if given.help == ALL:
        yield from ("", f"Settings{where}, with their values:", *explanation.settings(config))
    else:
        first = next(iter(groups), ALL)
        yield from ("", f"Settings{where}, in groups (--help={first}, --help=all say what each means):")
        yield from explanation.overview(config)
