"""Write reference pages from the code: what stands between `<!-- generated: NAME -->` and `<!-- end -->`.

    PYTHONPATH=. .venv/bin/python docs/site/generated.py

`make docs` reads the pages as they are, and tests/docs/test_generated.py holds them current.
"""

import dataclasses
import functools
import math
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import Any

from anisoscope.cli import flags, measure_file
from anisoscope.config.measure_config import CLOUD_NULLS
from anisoscope.metrics.quantity import Quantity
from anisoscope.metrics.registry import FAMILIES, coordinates
from anisoscope.utils.settings import format_limits, format_value, walk_settings

REFERENCE = pathlib.Path(__file__).parents[1] / "reference"
BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
CLOUDS = {
    "cloud": "the points of each layer",
    "layers": "all layers together",
    "heads": "queries and keys of each head",
    "logit_lens": "all layers together, and how the model makes its output of the last",
}
INTERVAL = {
    "": "the batches are the sample",
    "jackknife": "whole folds of windows left out in turn",
    "sections": "the scatter between sections",
    "share_sections": "the scatter between sections",
}
CONFIGS = {
    "Config": "Training runs",
    "PretrainedConfig": "Pretrained models",
    "ModelsConfig": "Lists of pretrained models",
    "UntrainedConfig": "Untrained blocks",
    "CurvedConfig": "Curved manifolds",
}


def list_quantities() -> Iterator[str]:
    """Write a section for each family, with an entry for each quantity."""
    for name, family in FAMILIES.items():
        nulls = ", ".join(f"`{null}`" for null in family.nulls) or "none"
        where = "Null models" if {*family.nulls} & {*CLOUD_NULLS} else "Null models of runs"
        yield from (
            f"## {name}",
            "",
            f"Computed from {CLOUDS[family.kind]}. {where}: {nulls}.",
            "",
        )
        for key, quantity in family.quantities.items():
            yield from describe_quantity(key, quantity)


def describe_quantity(name: str, quantity: Quantity) -> Iterator[str]:
    yield from (
        f"### {name}",
        "",
        f"{quantity.long_name[0].upper()}{quantity.long_name[1:]}:",
        escape(re.sub(r"\blambda", "λ", quantity.formula)),
        "",
    )
    facts = {
        "dimensions": ", ".join(f"`{dim}`" for dim in quantity.dims) + format_labels(quantity),
        "units": {"1": "none", "activation": "those of the activations"}.get(
            quantity.units, quantity.units
        ),
        "range": format_range(*quantity.range),
        "interval": INTERVAL[quantity.resampling],
        "source": escape(quantity.source),
    }
    if quantity.null_words:
        facts["null models"] = escape(quantity.null_words)
    yield from (f"- {what}: {value}" for what, value in facts.items())
    yield ""


def format_labels(quantity: Quantity) -> str:
    """Describe the labels of the further dimensions of a quantity."""
    known = coordinates()
    parts = [
        f"`{dim}` is {', '.join(map(str, known[dim]))}" for dim in quantity.dims if dim in known
    ]
    return f"; {'; '.join(parts)}" if parts else ""


def format_range(low: float, high: float) -> str:
    left = "(−∞" if math.isinf(low) else f"[{low:g}".replace("-", "−")
    return f"{left}, {'∞)' if math.isinf(high) else f'{high:g}]'}"


def escape(words: str) -> str:
    """Escape the signs of Markdown in words that hold formulas."""
    return re.sub(r"([\\*_|<>\[\]$^])", r"\\\1", words)


def list_settings() -> Iterator[str]:
    """Write a table of each group of settings for each kind of experiment; shared groups once."""
    seen: set[type] = set()
    for kind in sorted(flags.CONFIG_KINDS, key=lambda kind: list(CONFIGS).index(kind.__name__)):
        yield from (f"## {CONFIGS[kind.__name__]}", "")
        yield from list_group(kind(), "", seen)


def list_group(config: Any, prefix: str, seen: set[type]) -> Iterator[str]:
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    groups = {name: value for name, value in values.items() if dataclasses.is_dataclass(value)}
    level = prefix.count(".")
    leaves = [leaf for leaf in walk_settings(config, prefix) if leaf.name.count(".") == level]
    if leaves:
        yield from ("| setting | default | meaning |", "| --- | --- | --- |")
        for name, _, value, metadata in leaves:
            default = f"`{format_value(value)}`" if format_value(value) else "empty"
            limits = format_limits(metadata)
            meaning = metadata["help"] + (f" ({limits})" if limits else "")
            yield f"| `{name}` | {default} | {escape(meaning)} |"
        yield ""
    for name, inner in groups.items():
        yield from (f"### {prefix}{name}" if type(inner) not in seen else "", "")
        if type(inner) in seen:
            yield from (f"`{prefix}{name}`: as above.", "")
            continue
        seen.add(type(inner))
        yield from list_group(inner, f"{prefix}{name}.", seen)


def list_flags(known: dict[str, tuple[Any, str]] = flags.FLAGS) -> Iterator[str]:
    yield from ("| flag | meaning |", "| --- | --- |")
    yield from (f"| `--{name}` | {escape(meaning)} |" for name, (_, meaning) in known.items())
    yield ""


def list_experiments() -> Iterator[str]:
    yield from ("| experiment | what it runs |", "| --- | --- |")
    yield from (f"| `{name}` | {escape(title)} |" for name, title in flags.list_experiments())
    yield ""


PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "quantities": list_quantities,
    "settings": list_settings,
    "command": list_flags,
    "files": functools.partial(list_flags, measure_file.FILE_FLAGS),
    "experiments": list_experiments,
}


def fill(text: str) -> str:
    """Write the blocks of a page anew."""

    def write(found: re.Match[str]) -> str:
        lines = "\n".join(PAGES[found[2]]())
        return f"{found[1]}\n{lines.rstrip()}\n\n{found[3]}"

    return BLOCK.sub(write, text)


if __name__ == "__main__":
    for page in sorted(REFERENCE.glob("*.md")):
        page.write_text(fill(page.read_text()))
