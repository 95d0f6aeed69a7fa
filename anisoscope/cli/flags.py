"""The command line: absl's flags, one for each setting, and the file of the experiment."""

import ast
import importlib.util
import inspect
import pathlib
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple, get_args, get_origin

from absl import flags

import anisoscope
from anisoscope.config.curved_config import CurvedConfig
from anisoscope.config.experiment_config import Config
from anisoscope.config.pretrained_config import PretrainedConfig
from anisoscope.config.pretrained_models import ModelsConfig
from anisoscope.config.untrained_config import UntrainedConfig
from anisoscope.config.vectors_config import VectorsConfig
from anisoscope.utils.errors import UserError, did_you_mean
from anisoscope.utils.settings import (
    choose,
    format_limits,
    format_value,
    from_dict,
    replace,
    settings,
    to_dict,
)

STAGES = ("train", "measure", "tangents", "figures")  # done if --stages is left out
OPTIONAL = ("matched", "verdicts", "export", "replay", "verify")
AXES = ("step", "gain_over_unigram")
KINDS = (Config, UntrainedConfig, CurvedConfig, VectorsConfig, PretrainedConfig, ModelsConfig)
EXPERIMENTS = pathlib.Path(anisoscope.__file__).parent / "experiments"
LONGEST = 200  # letters of a message
STRINGS = {
    "config": "Experiment file, as experiments/decoder_small.py or …:tiny.",
    "workdir": "Folder of the run; left out: runs/<experiment>.",
    "figures": "Folder of the figures; left out: <workdir>/figures.",
    "status": "Folder of a run: say what is done and what is missing.",
}
LISTS = {
    "step": "With --stages=replay: steps to make a checkpoint of, as 300 or 300,301.",
    "compare": "Folders of other runs to draw in the same figures.",
    "similarity": "Two runs, as runs/a,runs/b@256: compare their layers at a step, or the last.",
}
SWITCHES = {
    "distributed": "Join the other processes of the cluster (TPU pod, SLURM, MPI).",
    "dry_run": "Say what would be done, and its memory and time; write nothing.",
    "list": "Name the experiments.",
    "version": "Print the version.",
}
STAGES_HELP = (
    f"Of {', '.join(STAGES)}; also matched: loss-matched contrasts; verdicts: on the papers' "
    "claims; export: Hugging Face folders; replay: the checkpoint of any --step; verify: is every "
    "file as it was written?"
)


class Request(NamedTuple):
    """What the command line asks for, apart from the experiment."""

    given: flags.FlagValues
    overridden: set[str]  # dotted names of the settings on the command line
    root: pathlib.Path  # the folder to work in
    title: str


def define_flags() -> flags.FlagValues:
    """Define the flags of the program, without settings."""
    values = flags.FlagValues()
    for name, meaning in STRINGS.items():
        flags.DEFINE_string(name, None, meaning, values)
    for name, meaning in LISTS.items():
        flags.DEFINE_list(name, [], meaning, values)
    for name, meaning in SWITCHES.items():
        flags.DEFINE_bool(name, False, meaning, values)
    flags.DEFINE_list("stages", [*STAGES], STAGES_HELP, values)
    axes = f"x axis of curves over training: {' or '.join(AXES)}."
    flags.DEFINE_string("over", AXES[0], axes, values)
    flags.DEFINE_bool("help", False, "Show all flags and settings.", values, short_name="h")
    return values


class SettingParser(flags.ArgumentParser):
    """Read a setting by the type of its field."""

    def __init__(self, kind: Any):
        self.kind = kind

    def parse(self, argument: Any) -> Any:
        return parse_value(self.kind, argument) if isinstance(argument, str) else argument


def parse_value(kind: Any, text: str) -> Any:
    """Read text as this type; ValueError says what is needed."""
    if type(None) in get_args(kind):  # as in `int | None`
        if text in ("None", "none", ""):
            return None
        kind = next(option for option in get_args(kind) if option is not type(None))
    if get_origin(kind) is tuple:
        return tuple(parse_value(get_args(kind)[0], item) for item in _items(text))
    try:
        return kind(text)
    except ValueError as error:
        raise ValueError(f"a {'whole ' if kind is int else ''}number is needed") from error


def _items(text: str) -> list[str]:
    """Split a Python literal, ("a", "b"), or words with commas between them."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return [word.strip() for word in text.strip("()[]").split(",") if word.strip()]
    return [str(item) for item in (value if isinstance(value, list | tuple) else [value])]


def parse(argv: list[str]) -> tuple[flags.FlagValues, Any, set[str]]:
    """Read the flags, the experiment with its settings, and the names of settings in argv.

    Without --config the settings are those of a training run.

    Raises:
        UserError: The input is bad; the message is one line.
    """
    first = define_flags()
    first.set_gnu_getopt(True)
    _parse(first, argv, known_only=True)
    config = load(first.config) if first.config else Config()
    given = define_flags()
    for name, kind, value, metadata in settings(config):
        flag, help_line = f"config.{name}", metadata["help"]
        if kind is bool:
            flags.DEFINE_bool(flag, value, help_line, given)
        else:
            flags.DEFINE(SettingParser(kind), flag, value, help_line, given)
    if len(rest := _parse(given, argv)) > 1:
        raise UserError(f"{rest[1][:LONGEST]!r} is not a flag; see --help")
    names = {name for name, *_ in settings(config) if given[f"config.{name}"].present}
    return given, replace(config, {name: given[f"config.{name}"].value for name in names}), names


def _parse(values: flags.FlagValues, argv: list[str], known_only: bool = False) -> list[str]:
    for name in (word.partition("=")[0] for word in argv[1:]):
        if name.startswith("-") and len(name) > LONGEST:  # absl's suggestions recurse by letters
            raise UserError(f"{name[:60]}… is not a flag; see --help")
    try:
        return values(argv, known_only=known_only)
    except flags.UnrecognizedFlagError as error:
        hint = did_you_mean(error.flagname, values) or "; see --help"
        raise UserError(f"--{error.flagname} is not a flag{hint}") from error
    except flags.Error as error:
        words = " ".join(str(error).removeprefix("flag ").split())
        what, illegal, _ = words.partition(": ('Non-boolean")
        words = f"{what}: true or false is needed" if illegal else words[:LONGEST]
        raise UserError(f"{words}; see --help") from error


def check_flags(given: flags.FlagValues) -> None:
    """Raise UserError where the flags of an experiment do not go together."""
    if given.config is None:
        raise UserError("no experiment is named; pass --config=quickstart, say, or see --list")
    choose("--over", given.over, AXES)
    for stage in given.stages:
        choose("--stages", stage, (*STAGES, *OPTIONAL))
    if "verify" in given.stages and (len(given.stages) > 1 or given.distributed):
        raise UserError("--stages=verify is done alone, by one process; leave the rest out")
    if bool(given.step) != ("replay" in given.stages):
        raise UserError("--stages=replay and --step=S go together; name a step, or leave both out")
    if wrong := [word for word in given.step if not (word.isascii() and word.isdecimal())]:
        raise UserError(f"--step={wrong[0]}: a whole number is needed, as 300")


def refuse_training(given: flags.FlagValues, what: str, stages: tuple[str, ...]) -> None:
    """Raise UserError for flags of training runs, where an experiment trains nothing."""
    for name in ("compare", "distributed", "over"):
        if given[name].value != given[name].default:
            raise UserError(f"--{name} is for training runs; leave it out with {what}")
    allowed = (*stages, "verify")
    if given["stages"].present and (wrong := [s for s in given.stages if s not in allowed]):
        names = ", ".join(allowed)
        raise UserError(f"--stages={wrong[0]}: {what} are not trained here; choose from {names}")


def check_tangents(given: flags.FlagValues, enabled: bool) -> None:
    """Raise UserError where the stage is named and switched off."""
    if given["stages"].present and "tangents" in given.stages and not enabled:
        raise UserError("--stages=tangents is switched off; pass --config.tangents.enabled=True")


def format_help(config: Any) -> Iterator[str]:
    """List all flags, and the settings of this experiment with their values, limits and meaning."""
    for name, meaning in flag_meanings():
        yield f"  --{name}: {meaning}"
    yield "\nSettings, with their values:"
    yield from format_settings(config)


def flag_meanings() -> Iterator[tuple[str, str]]:
    """List the flags with their meanings."""
    values = define_flags()
    names = (name for name in sorted(values) if name not in ("flagfile", "undefok", "h"))
    return ((name, values[name].help) for name in names)


def format_settings(config: Any) -> Iterator[str]:
    """Format each setting as a flag takes it, with its meaning and limits."""
    for name, _, value, metadata in settings(config):
        limits = format_limits(metadata)
        left = f"  --config.{name}={format_value(value)}"
        yield f"{left:48} {metadata['help']}{f' ({limits})' if limits else ''}"


def list_experiments(folder: pathlib.Path = EXPERIMENTS) -> Iterator[tuple[str, str]]:
    """Name each file that defines get_config(), with the first line of its docstring; run none."""
    for path in sorted(folder.glob("*.py")):
        tree = ast.parse(path.read_bytes())
        functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        if "get_config" in functions:
            yield path.stem, (ast.get_docstring(tree) or "").partition("\n")[0]


def find_file(path: str) -> pathlib.Path:
    """Resolve a path, or the name of an experiment of the package (with experiments/ or not)."""
    name = path.removeprefix("experiments/").removesuffix(".py")
    own = EXPERIMENTS / f"{name}.py"
    known = path in (name, f"experiments/{name}.py") and name.isidentifier() and own.is_file()
    return own if known and not pathlib.Path(path).is_file() else pathlib.Path(path)


def load(name: str) -> Any:
    """Call get_config of FILE[:ARGUMENT]; UserError, one line, where there is no experiment."""
    where = f"--config={name[:LONGEST]}"
    name, colon, argument = name.partition(":")
    path = find_file(name)
    if colon and not argument:
        raise UserError(f"{where}: nothing stands after ':'; leave it out too")
    if not path.is_file():
        names = [*path.parent.glob("*.py"), *(file.stem for file in EXPERIMENTS.glob("*.py"))]
        hint = did_you_mean(name, map(str, names)) or "; --list names the experiments"
        raise UserError(f"{where}: there is no file {path}{hint}")
    spec = importlib.util.spec_from_file_location(f"experiment_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UserError(f"{where}: {path} is no Python file; --list names the experiments")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        if not hasattr(module, "get_config"):
            raise UserError(f"{where}: {path} defines no get_config(); --list names experiments")
        if argument and not inspect.signature(module.get_config).parameters:
            raise UserError(f"{where}: this experiment takes no size after ':'")
        config = module.get_config(*filter(None, [argument]))
        if not isinstance(config, KINDS):
            kinds = " or ".join(kind.__name__ for kind in KINDS)
            raise UserError(f"{where}: get_config() gives a {type(config).__name__}, no {kinds}")
        return from_dict(to_dict(config), type(config))  # NumPy's and JAX's numbers are Python's
    except UserError:
        raise
    except SyntaxError as error:
        raise UserError(f"{where}: {error.filename}, line {error.lineno}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        words = " ".join(str(error).split())[:LONGEST]
        raise UserError(f"{where}: {type(error).__name__}: {words}") from error
