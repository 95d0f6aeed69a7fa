"""Settings as nested frozen dataclasses, with help, limits, JSON and changes by dotted name."""

import dataclasses
import functools
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from anisoscope.utils.errors import SettingError, UserError

LARGEST_SEED = 2**31 - 1  # the largest integer in a NetCDF-3 table


def setting(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: Collection[str] = (),
    nonempty: bool = False,
) -> Any:
    """Make a dataclass field with its help, range (both ends included) and choices.

    In a tuple, range and choices hold for each element, and no element may be repeated.
    """
    limits = {"low": low, "high": high, "choices": tuple(choices), "nonempty": nonempty}
    return dataclasses.field(default=default, metadata={"help": help, **limits})


fraction = functools.partial(setting, low=0, high=1)
seed_setting = functools.partial(setting, low=0, high=LARGEST_SEED)


class Setting(NamedTuple):
    """A leaf of a config; `metadata` holds the arguments of `setting`."""

    name: str  # dotted
    kind: Any  # its type
    value: Any
    metadata: Any


def walk_settings(config: Any, prefix: str = "") -> Iterator[Setting]:
    """List all settings, direct fields before groups; dicts are skipped."""
    hints, groups = get_type_hints(type(config)), []
    for field in dataclasses.fields(config):
        name, value = f"{prefix}{field.name}", getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            groups += walk_settings(value, f"{name}.")
        elif get_origin(hints[field.name]) is not dict:
            yield Setting(name, hints[field.name], value, field.metadata)
    yield from groups


def check_fields(config: Any) -> None:
    """Raise UserError if a setting is outside the limits of its field."""
    for name, _, value, limits in walk_settings(config):
        choices = limits["choices"]
        if isinstance(value, tuple):
            check_unique(name, value)
            if limits["nonempty"] and not value:
                allowed = f"choose from {', '.join(choices)}" if choices else "pass a value"
                raise SettingError(f"{name} is empty; {allowed}", name)
        for item in value if isinstance(value, tuple) else (value,):
            if choices:
                choose(name, item, choices)
            if isinstance(item, float) and not math.isfinite(item):
                raise UserError(f"{name} is {item}; it must be a finite number")
            check_range(name, item, limits["low"], limits["high"])


def format_limits(limits: Any) -> str:
    """Format the limits in a field's metadata; empty if every value is allowed."""
    low, high = limits["low"], limits["high"]
    if limits["choices"]:
        return ", ".join(limits["choices"])
    if low is None:
        return ""
    return f"at least {low:g}" if high is None else f"{low:g} to {high:g}"


def format_value(value: Any) -> str:
    """Format a value as a flag takes it."""
    if isinstance(value, tuple):
        return ",".join(map(format_value, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def to_dict(config: Any) -> dict[str, Any]:
    """Convert to a nested dict as JSON holds it: tuples become lists, array scalars numbers."""
    return json.loads(json.dumps(dataclasses.asdict(config), default=_to_python))


def _to_python(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise UserError(f"{value!r} cannot be a setting; use numbers, strings or tuples of them")


def replace(config: Any, changes: dict[str, Any]) -> Any:
    """Copy a config with changes {dotted name: value}; raise UserError for a bad name or type."""
    values = to_dict(config)
    for path, value in changes.items():
        *groups, leaf = path.split(".")
        target = values
        for group in groups:
            target = target.get(group) if isinstance(target, dict) else None
        if not isinstance(target, dict) or leaf not in target:
            raise UserError(f"config field {path} does not exist; see --help for all settings")
        target[leaf] = value
    return from_dict(values, type(config))


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested settings to dotted names; an empty group counts as a value."""
    settings = {}
    for name, value in values.items():
        group = isinstance(value, dict) and value
        settings |= flat(value, f"{prefix}{name}.") if group else {prefix + name: value}
    return settings


def format_differences(
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    names: Iterable[str] | None = None,
    whose: tuple[str, str] = ("there", "now"),
) -> str:
    """Format the first three settings that differ, "seed=0 there, 1 now; …"; empty if none does.

    `names` are the settings to compare; None compares all settings of both.
    """
    names = before.keys() | now.keys() if names is None else names
    different = [name for name in sorted(names) if before.get(name) != now.get(name)]
    first, second = whose
    words = [f"{x}={before.get(x)!r} {first}, {now.get(x)!r} {second}" for x in different[:3]]
    more = f" and {len(different) - 3} more" if len(different) > 3 else ""
    return "; ".join(words) + more


def from_dict(values: dict[str, Any], kind: type, where: str = "") -> Any:
    """Rebuild a config dataclass; raise UserError for an unknown, missing or ill-typed field."""
    hints = get_type_hints(kind)
    for name in values.keys() ^ hints.keys():
        what = "unknown" if name in values else "missing"
        raise UserError(f"config field {where}{name} is {what}")
    return kind(**{name: _convert(f"{where}{name}", hints[name], values[name]) for name in hints})


def _convert(name: str, hint: Any, value: Any) -> Any:
    """Check the type of a field's value; a list becomes a tuple, a whole number a float."""
    origin, kinds = get_origin(hint), get_args(hint) or (hint,)
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return from_dict(value, hint, f"{name}.")
    if hint is float and type(value) is int:
        return float(value)
    if origin is tuple:
        if isinstance(value, list | tuple) and all(type(item) is kinds[0] for item in value):
            return tuple(value)
    elif type(value) is origin or (origin is not dict and type(value) in kinds):
        return value
    kind = getattr(hint, "__name__", hint)
    raise SettingError(f"config field {name} is {value!r}, not {kind}", f"config field {name}")


def choose(name: str, value: str, allowed: Iterable[str]) -> None:
    """Raise UserError unless the value of this setting is allowed."""
    if value not in allowed:
        raise SettingError(f"{name} is {value!r}; choose one of {', '.join(allowed)}", name)


def check_unique(name: str, values: Sequence) -> None:
    """Raise UserError if a setting repeats a value."""
    for value in values:
        if values.count(value) > 1:
            raise SettingError(f"{name} names {value} twice; name each once", name)


def check_range(name: str, value: float | None, low: float | None, high: float | None) -> None:
    """Raise UserError if a number is outside [low, high] or NaN; None means no limit."""
    if value is None or low is None or (value >= low and (high is None or value <= high)):
        return
    limits = f"be at least {low}" if high is None else f"lie in [{low}, {high}]"
    raise SettingError(f"{name} is {value}; it must {limits}", name)
