"""Parse the command line: absl flags, a flag for each setting, and the experiment file."""

import ast
import errno
import importlib.util
import inspect
import os
import pathlib
import re
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple, get_args, get_origin

from absl import flags

import anisoscope
from anisoscope.config.experiment_config import Config
from anisoscope.config.pretrained_config import (
    ModelsConfig,
    PretrainedConfig,
    check_models,
    check_pretrained,
)
from anisoscope.config.untrained_config import (
    CurvedConfig,
    UntrainedConfig,
    check_curved,
    check_untrained,
)
from anisoscope.utils.errors import UserError, did_you_mean
from anisoscope.utils.settings import (
    choose,
    format_limits,
    format_value,
    from_dict,
    replace,
    to_dict,
    walk_settings,
)

DEFAULT_STAGES = ("train", "measure", "tangents", "figures")  # the default of --stages
FURTHER_STAGES = ("verify",)
FIGURE_AXES = ("step", "gain_over_unigram")
UNTRAINED_CONFIGS = {  # configs of experiments that train nothing: their subject, and a check
    UntrainedConfig: ("untrained blocks", check_untrained),
    CurvedConfig: ("curved manifolds", check_curved),
    PretrainedConfig: ("pretrained models", check_pretrained),
    ModelsConfig: ("pretrained models", check_models),
}
CONFIG_KINDS = (Config, *UNTRAINED_CONFIGS)
EXPERIMENTS = pathlib.Path(anisoscope.__file__).parent / "experiments"
FLAGS: dict[str, tuple[Any, str]] = {  # default (its type is the flag's type), and meaning
    "config": (
        None,
        "Experiment file, such as experiments/decoder_small.py or decoder_small:tiny.",
    ),
    "workdir": (None, "Folder of the run; default: runs/<experiment>."),
    "figures": (None, "Folder of the figures; default: <workdir>/figures."),
    "stages": (
        [*DEFAULT_STAGES],
        f"Stages to run: {', '.join(DEFAULT_STAGES)} (default). Also: "
        "verify (check every file against its checksum).",
    ),
    "steps": (
        None,
        "With --stages=measure: the part of the checkpoints to measure, as 0::4, 1::4 … of four processes. "
        "The same command without it joins the tables.",
    ),
    "compare": ([], "Folders of other runs to draw in the same figures."),
    "similarity": ([], "Compare the layers of two runs at a step or the last: runs/a,runs/b@256."),
    "over": (FIGURE_AXES[0], f"x axis of curves over training: {' or '.join(FIGURE_AXES)}."),
    "distributed": (False, "Train with the other processes of the cluster (TPU pod, SLURM, MPI)."),
    "dry_run": (False, "Print what would run and its memory and time; write nothing."),
    "list": (False, "List the experiments."),
    "version": (False, "Print the version."),
    "help": (False, "Show all flags and settings."),
}
FOLDERS = ("workdir", "figures", "compare", "similarity")  # flags that name folders
USAGE = """Train, measure and draw: anisoscope --config=decoder_small [--config.train.steps=100 …]
Measure a file of vectors: anisoscope measure acts.npz; see anisoscope measure --help
"""


class Request(NamedTuple):
    """Everything on the command line except the experiment."""

    flags: flags.FlagValues
    overridden: set[str]  # dotted names of the settings on the command line
    root: pathlib.Path  # the folder to work in
    title: str


def define_flags(known: dict[str, tuple[Any, str]] = FLAGS) -> flags.FlagValues:
    """Define the flags of a command, without settings."""
    values = flags.FlagValues()
    define = {bool: flags.DEFINE_bool, list: flags.DEFINE_list, int: flags.DEFINE_integer}
    for name, (default, meaning) in known.items():
        options: dict[str, Any] = {"flag_values": values}
        options |= {"short_name": "h"} if name == "help" else {}
        define.get(type(default), flags.DEFINE_string)(name, default, meaning, **options)
    return values


class SettingParser(flags.ArgumentParser):
    """Parser of a setting that follows the type of its field."""

    def __init__(self, kind: Any):
        self.kind = kind

    def parse(self, argument: Any) -> Any:
        return parse_value(self.kind, argument) if isinstance(argument, str) else argument


def parse_value(kind: Any, text: str) -> Any:
    """Convert text to this type; raise ValueError if it does not fit."""
    if type(None) in get_args(kind):  # as in `int | None`
        if text in ("None", "none", ""):
            return None
        kind = next(option for option in get_args(kind) if option is not type(None))
    if get_origin(kind) is tuple:  # words separated by commas, or a Python literal
        items = (item.strip(" '\"") for item in text.strip("()[]").split(","))
        return tuple(parse_value(get_args(kind)[0], item) for item in items if item)
    try:
        return kind(text)
    except ValueError as error:
        raise ValueError(f"a {'whole ' if kind is int else ''}number is needed") from error


def parse(argv: list[str]) -> tuple[flags.FlagValues, Any, set[str]]:
    """Parse the flags, the experiment (by default a training run), and names of settings in argv.

    Raises:
        UserError: A flag or setting is invalid; the message is one line.
    """
    first = define_flags()
    first.set_gnu_getopt(True)
    parse_words(first, argv, known_only=True)
    config = load_experiment(first.config) if first.config else Config()
    values = define_flags()
    for name, kind, value, metadata in walk_settings(config):
        flag = f"config.{name}", value, metadata["help"], values
        if kind is bool:
            flags.DEFINE_bool(*flag)
        else:
            flags.DEFINE(SettingParser(kind), *flag)
    if len(rest := parse_words(values, argv)) > 1:
        advice = did_you_mean(rest[1], ["measure"])
        raise UserError(f"{rest[1]!r} is not a flag, nor the command measure; {advice}see --help")
    names = {name for name, *_ in walk_settings(config) if values[f"config.{name}"].present}
    changes = {name: expand_home(values[f"config.{name}"].value) for name in names}
    for name in FOLDERS:
        values[name].value = expand_home(values[name].value)
        check_no_loop(f"--{name}", values[name].value or ())
    _check_rate(config, changes)
    return values, replace(config, changes), names


def expand_home(value: Any) -> Any:
    """Expand ~ at the beginning of a text, also after LABEL=; in a list, of each."""
    if isinstance(value, list | tuple):
        return type(value)(map(expand_home, value))
    if not isinstance(value, str):
        return value
    label, equals, path = value.rpartition("=")
    return f"{label}{equals}{os.path.expanduser(path)}"


def check_no_loop(name: str, paths: str | list[str]) -> None:
    """Raise UserError where a path leads through a link to itself."""
    for path in [paths] if isinstance(paths, str) else paths:
        try:
            os.stat(path)
        except OSError as error:
            if error.errno == errno.ELOOP:
                what = f"{name}={path} leads through a link to itself"
                raise UserError(f"{what}; name another folder") from error


def _check_rate(config: Any, changes: dict[str, Any]) -> None:
    """Raise UserError where another optimizer would have the learning rate of the former one."""
    new = changes.get("train.optimizer")
    if new and new != config.train.optimizer and "train.learning_rate" not in changes:
        what = f"the learning rate {config.train.learning_rate:g} is {config.train.optimizer}'s"
        raise UserError(
            f"--config.train.optimizer={new}: {what}; pass --config.train.learning_rate too"
        )


def parse_words(values: flags.FlagValues, argv: list[str], known_only: bool = False) -> list[str]:
    """Parse flags into `values`, and return the words that are none; UserError for a bad flag."""
    if any(re.match("--?flagfile(=|$)", word) for word in argv):  # absl's own, of any size
        raise UserError("--flagfile is not a flag; pass each flag on the command line")
    try:
        return values(argv, known_only=known_only)
    except flags.UnrecognizedFlagError as error:
        advice = did_you_mean(error.flagname, values, "--")
        raise UserError(f"--{error.flagname} is not a flag; {advice}see --help") from error
    except flags.Error as error:
        words = " ".join(str(error).removeprefix("flag ").split())
        what, illegal, _ = words.partition(": ('Non-boolean")
        raise UserError(f"{what}: true or false is needed" if illegal else words) from error


def check_flags(values: flags.FlagValues) -> None:
    """Raise UserError if the flags of an experiment contradict each other."""
    if values.config is None:
        raise UserError(
            "no experiment named; pass --config=quickstart, or see --list; to measure a file of "
            "vectors: measure FILE"
        )
    choose("--over", values.over, FIGURE_AXES)
    if not values.stages:
        raise UserError("--stages= names no stage; omit it, or see --help")
    for stage in values.stages:
        choose("--stages", stage, (*DEFAULT_STAGES, *FURTHER_STAGES))
    if values.distributed and values.stages != ["train"]:
        advice = (
            "pass --stages=train, then measure without it, in parts: --stages=measure --steps=0::4"
        )
        raise UserError(f"--distributed trains alone; {advice}")
    if parse_steps(values.steps) and values.stages != ["measure"]:
        raise UserError("--steps is for --stages=measure; omit it with other stages")
    if "verify" in values.stages and len(values.stages) > 1:
        raise UserError("--stages=verify runs alone; omit other stages")


def parse_steps(text: str | None) -> slice | None:
    """Read the part of a list of steps, as 0::4 for every fourth; None where nothing is named."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d*):(\d*)(?::([1-9]\d*)?)?", text, re.ASCII)
    if not match:
        raise UserError(f"--steps={text!r} is no part of a list; pass 0::4, or 8:16")
    return slice(*(int(number) if number else None for number in match.groups()))


def experiment_name(config: str) -> str:
    """Name an experiment's folder: decoder_small.py:tiny -> decoder_small_tiny."""
    path, _, argument = config.partition(":")
    argument = pathlib.Path(argument).name if pathlib.Path(argument).exists() else argument
    words = pathlib.Path(path).stem, re.sub(r"[^\w.=-]+", "_", argument).strip("_.")
    return "_".join(filter(None, words))


def check_without_training(experiment: Any, values: flags.FlagValues) -> None:
    """Check an experiment that trains nothing; reject stages and flags of training."""
    what, check = UNTRAINED_CONFIGS[type(experiment)]
    check(experiment)
    single = type(experiment) is PretrainedConfig
    for name in ("compare", "distributed", "over", *["steps"] * (not single)):
        if values[name].value != values[name].default:
            raise UserError(f"--{name} is for models that are trained here; omit it with {what}")
    allowed = ("measure", *["tangents"] * single, "figures", "verify")
    if values["stages"].present and (wrong := {*values.stages} - {*allowed}):
        names = ", ".join(allowed)
        raise UserError(f"--stages={min(wrong)}: {what} are not trained here; choose from {names}")
    if single:
        check_tangent_stage(values, experiment.tangents.enabled)


def check_tangent_stage(values: flags.FlagValues, enabled: bool) -> None:
    """Raise UserError if the stage tangents is named but switched off."""
    if values["stages"].present and "tangents" in values.stages and not enabled:
        raise UserError("--stages=tangents is switched off; pass --config.tangents.enabled=True")


def format_help(config: Any) -> Iterator[str]:
    """List all flags and this experiment's settings with their values, limits and meanings."""
    yield USAGE
    yield from (f"  --{name}: {meaning}" for name, (_, meaning) in FLAGS.items())
    yield "\nSettings, with their values:"
    yield from format_settings(config)


def format_settings(config: Any) -> Iterator[str]:
    """Format each setting as a flag with its value, meaning and limits."""
    for name, _, value, metadata in walk_settings(config):
        limits = format_limits(metadata)
        left = f"  --config.{name}={format_value(value)}"
        yield f"{left:48} {metadata['help']}{f' ({limits})' if limits else ''}"


def list_experiments(folder: pathlib.Path = EXPERIMENTS) -> Iterator[tuple[str, str]]:
    """List each experiment file with the first line of its docstring, without running it."""
    for path in sorted(folder.glob("*.py")):
        tree = ast.parse(path.read_bytes())
        functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        if "get_config" in functions:
            yield path.stem, (ast.get_docstring(tree) or "").partition("\n")[0]


def find_file(path: str) -> pathlib.Path:
    """Resolve a path, or the name of an experiment of the package, with or without experiments/."""
    name = path.removeprefix("experiments/").removesuffix(".py")
    own = EXPERIMENTS / f"{name}.py"
    known = path in (name, f"experiments/{name}.py") and name.isidentifier() and own.is_file()
    return own if known and not pathlib.Path(path).is_file() else pathlib.Path(path)


def load_experiment(name: str) -> Any:
    """Call get_config of FILE[:ARGUMENT]; raise UserError if there is no experiment."""
    where, (name, _, argument) = f"--config={name}", name.partition(":")
    name, argument = map(expand_home, (name, argument))
    path = find_file(name)
    if not path.is_file():
        advice = did_you_mean(path.stem, (own for own, _ in list_experiments()))
        raise UserError(f"{where}: there is no file {path}; {advice}--list names the experiments")
    spec = importlib.util.spec_from_file_location(f"experiment_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UserError(f"{where}: {path} is not a Python file; --list names the experiments")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "get_config"):
        raise UserError(f"{where}: {path} defines no get_config(); --list names experiments")
    if argument and not inspect.signature(module.get_config).parameters:
        raise UserError(f"{where}: this experiment takes no size after ':'")
    config = module.get_config(*filter(None, [argument]))
    if not isinstance(config, CONFIG_KINDS):
        kinds = " or ".join(kind.__name__ for kind in CONFIG_KINDS)
        what = f"get_config() returns a {type(config).__name__}"
        raise UserError(f"{where}: {what}; return a {kinds}")
    return from_dict(to_dict(config), type(config))  # makes NumPy and JAX numbers Python's
