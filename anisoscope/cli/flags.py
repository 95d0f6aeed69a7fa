"""An experiment from the command line: its file, --config=FILE[:SIZE], and its settings, --config.GROUP.FIELD=VALUE."""

import ast
import dataclasses
import importlib.util
import inspect
import pathlib
import re
import sys
from typing import Any, get_args, get_origin, get_type_hints

import anisoscope
from anisoscope.config.curved import CurvedConfig
from anisoscope.config.experiment import Config
from anisoscope.config.pretrained import PretrainedConfig
from anisoscope.config.pretrained_models import ModelsConfig
from anisoscope.config.untrained import UntrainedConfig
from anisoscope.config.vectors import VectorsConfig
from anisoscope.utils.errors import UserError, did_you_mean
from anisoscope.utils.settings import replace

KINDS = (Config, UntrainedConfig, CurvedConfig, VectorsConfig, PretrainedConfig, ModelsConfig)
EXPERIMENTS = pathlib.Path(anisoscope.__file__).parent / "experiments"
BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


def split(argv: list[str]) -> tuple[list[str], dict[str, str | None]]:
    """What is no setting; and the settings as given, {dotted name: text}, where a bare --config.FIELD has None."""
    rest, given = [], {}
    waiting = None  # the setting whose value may be the next word
    for word in argv:
        flag, equals, text = word.partition("=")
        name = flag.lstrip("-") if flag.startswith("-") else ""
        if waiting is not None and (not flag.startswith("-") or re.match(r"-[\d.]", word)):  # numbers
            given[waiting], waiting = word, None
        elif name.startswith("config."):
            path = name.removeprefix("config.")
            given[path], waiting = (text, None) if equals else (None, path)
        elif name.startswith("noconfig.") and not equals:
            given[name.removeprefix("noconfig.")], waiting = "false", None
        else:
            rest.append(word)
            waiting = None
    return rest, given


def joined(settings: dict[str, Any]) -> list[str]:
    """The words of a command line with these settings, which `split` reads."""
    return [f"--config.{name}" if value is None else f"--config.{name}={value}" for name, value in settings.items()]


def file_of(path: str) -> pathlib.Path:
    """The file of this path, or of the package: decoder_small, or experiments/decoder_small.py as in a checkout."""
    name = path.removeprefix("experiments/").removesuffix(".py") if path.startswith("experiments/") else path
    own = EXPERIMENTS / f"{name}.py"
    return own if name.isidentifier() and own.is_file() and not pathlib.Path(path).is_file() else pathlib.Path(path)


def load(given: str) -> Config | UntrainedConfig | CurvedConfig | VectorsConfig | PretrainedConfig:
    """The config of an experiment file; UserError, one line, where there is none."""
    path, colon, size = given.partition(":")
    path, where = str(file_of(path)), f"--config={given}"
    if colon and not size:
        raise UserError(f"{where}: nothing stands after ':'; leave it out too, or see --list")
    stem = pathlib.Path(path).stem
    if not pathlib.Path(path).is_file():
        files = map(str, pathlib.Path(path).parent.glob("*.py"))
        near = did_you_mean(path, files) or did_you_mean(stem, (one.stem for one in EXPERIMENTS.glob("*.py")))
        raise UserError(f"{where}: there is no file {path}{near or '; --list names the experiments'}")
    spec = importlib.util.spec_from_file_location(f"experiment_{stem}", path)
    if spec is None or spec.loader is None:
        raise UserError(f"{where}: {path} is no Python file; --list names the experiments")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # where dataclasses look for it
    try:
        spec.loader.exec_module(module)
        get_config = getattr(module, "get_config", None)
        if get_config is None:
            words = "is no experiment, it defines no get_config(); --list names those there are"
            raise UserError(f"{where}: {path} {words}")
        if size and not inspect.signature(get_config).parameters:
            raise UserError(f"{where}: this experiment takes no size after ':'")
        config = get_config(size) if size else get_config()
    except UserError:
        raise
    except SyntaxError as error:
        at = f"{error.filename}, line {error.lineno}" if error.lineno else path
        raise UserError(f"{where}: {at}: {error.msg}") from error
    except (Exception, SystemExit) as error:  # whatever a file of the user's may raise
        raise UserError(f"{where}: {type(error).__name__}: {' '.join(str(error).split())}") from error
    if not isinstance(config, KINDS):
        kinds = " or ".join(kind.__name__ for kind in KINDS)
        raise UserError(f"{where}: get_config() gives a {type(config).__name__}, no {kinds}")
    return config


def override(config: Any, given: dict[str, str | None]) -> Any:
    """The config with these settings; UserError where a name leads to none or a text does not fit its type."""
    return replace(config, {path: parse_value(path, text, hint(config, path)) for path, text in given.items()})


def hint(config: Any, path: str) -> Any:
    """The type of the setting that a dotted name leads to."""
    kind = type(config)
    for name in path.split("."):
        if get_origin(kind) is dict:
            break
        if not dataclasses.is_dataclass(kind):
            raise UserError(f"--config.{path}: what stands before {name!r} is a single setting, it has no fields")
        hints = get_type_hints(kind)
        if name not in hints:
            if not name:
                raise UserError(f"--config.{path}= names no setting; as in --config.train.steps=100, see --help")
            words = did_you_mean(name, hints) or f"; choose from {', '.join(hints)}"
            raise UserError(f"--config.{path}: there is no config field {name!r}{words}")
        kind = hints[name]
    if get_origin(kind) is dict:
        raise UserError(f"--config.{path}: the runs of an experiment are set in its file, not by flags")
    if dataclasses.is_dataclass(kind):
        names = ", ".join(field.name for field in dataclasses.fields(kind))
        raise UserError(f"--config.{path} is a group of settings; set one of them: {names}")
    return kind


def parse_value(path: str, text: str | None, kind: Any) -> Any:
    if type(None) in get_args(kind):  # as in `int | None`
        if text in ("None", "none", ""):
            return None
        kind = next(option for option in get_args(kind) if option is not type(None))
    if text is None and kind is not bool:
        raise UserError(f"--config.{path} needs a value: --config.{path}={_example(kind)}")
    try:
        if kind is bool:
            return True if text is None else BOOLEANS[text.lower()]
        if get_origin(kind) is tuple:
            return tuple(get_args(kind)[0](item) for item in _items(text))
        return kind(text)
    except (ValueError, KeyError) as error:
        raise UserError(f"--config.{path}={text[:60]}: {_wanted(kind)} is needed, as {_example(kind)}") from error


def _items(text: str) -> list[str]:
    """Of a Python literal, ("a", "b"), or of words with commas between them."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):  # all that it raises
        return [word.strip() for word in text.strip("()[]").split(",") if word.strip()]
    return [str(item) for item in (value if isinstance(value, list | tuple) else [value])]


def _wanted(kind: Any) -> str:
    words = {bool: "true or false", int: "a whole number", float: "a number"}
    return words[kind] if kind in words else f"a list, each {_wanted(get_args(kind)[0])},"


def _example(kind: Any) -> str:
    examples = {bool: "true", int: "8", float: "0.5", str: "TEXT"}
    return examples[kind] if kind in examples else f"'({_example(get_args(kind)[0])},)'"
