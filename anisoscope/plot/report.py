"""Write report.html: every quantity of tables, drawn by plotly, in one file for offline use."""

import base64
import itertools
import os
import pathlib
import textwrap
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from anisoscope.measurement.families.registry import quantities
from anisoscope.plot import style
from anisoscope.plot.run_tables import ENDS, POSITIONS, Run, describe_bands, provenance
from anisoscope.results.derived import excess_name, excess_of, is_excess, nulls_in
from anisoscope.results.frame import as_run_table, check_table
from anisoscope.utils import files
from anisoscope.utils.extras import required_by

NAME = "report.html"
MARK = '<meta name="generator" content="anisoscope">'
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">{mark}<title>{title}</title>
<style>body {{ font: 15px system-ui, sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em }}
pre {{ white-space: pre-wrap }}</style></head>
<body><h1>{title}</h1>
<p>Menus choose quantity and token positions, the slider the training step; a click on a run in the
legend hides it. Bars: intervals, as the line above each figure says.</p>
{figures}<h2>Origin</h2><pre>{origin}</pre></body></html>
"""
DEPTHS = ("layer", "block")
HIDDEN = {"visible": False, "autorange": False, "range": [-9e9, -8e9]}  # axes of other positions
WITHOUT_FAMILY = "further quantities"  # heading of the quantities without a family
DEFAULTS = {"config": "{}", "points": 0, "batches": 1, "folds": 1}  # for tables of arrays


def report(
    tables: xr.Dataset | Mapping[str, xr.Dataset], path: str | os.PathLike[str] = NAME
) -> pathlib.Path:
    """Write a browser page with every quantity of one table or several.

    Each family has a figure, with menus of quantities and of positions, and a slider over steps.

    Args:
        tables: from `measure`, `measure_model` or `measure_attention`, or results.nc of a run;
            several in a dict, by name.
        path: where to write, such as "page.html". An earlier page is replaced, no other file is.

    Returns:
        The path.

    Raises:
        ValueError: the path holds a file that is not such a page, or its folder does not exist.

    >>> import tempfile
    >>> import anisoscope
    >>> import numpy as np
    >>> layers = np.random.default_rng(0).standard_normal((3, 256, 8))
    >>> table = anisoscope.measure(layers, families="similarity", nulls=())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = report(table, f"{folder}/page.html")
    >>> path.name
    'page.html'
    """
    path = pathlib.Path(path)
    if not path.parent.is_dir():
        raise ValueError(f"{path}: there is no folder {path.parent} to write the page into")
    if path.exists() and (not path.is_file() or MARK.encode() not in path.read_bytes()):
        raise ValueError(f"{path} exists and is not a page of this kind: name another path")
    if not isinstance(tables, Mapping) or isinstance(tables, xr.Dataset):
        check_table(tables)
        tables = {str(tables.attrs.get("title", "")) or path.stem: tables}
    runs = {label: _as_run(label, table) for label, table in tables.items()}
    files.write_file(path, page(runs, ", ".join(runs)))
    return path


def _as_run(label: str, table: xr.Dataset) -> Run:
    results, names = as_run_table(table)
    facts = [f"{dim} {at}: {name}" for dim, own in names.items() for at, name in enumerate(own)]
    provenance = {"provenance": "; ".join([label, *facts])}
    return Run(results.assign_attrs(provenance | DEFAULTS | results.attrs), [])


def page(runs: dict[str, Run], title: str) -> str:
    """Return the HTML of the page."""
    with required_by("report"):
        from plotly.io import to_html  # slow to import

    shared, own = provenance(runs)
    settings = (f"{label}: {run.results.attrs['config']}" for label, run in runs.items())
    options = {"full_html": False, "validate": False, "auto_play": False}
    html = []
    for number, (family, lines) in enumerate(families(runs).items()):
        options |= {"include_plotlyjs": number == 0, "div_id": f"figure-{number}"}
        html.append(f"<h2>{escape(family)}</h2>" + to_html(figure(lines, [*runs]), **options))
    parts = {"title": escape(title), "figures": "\n".join(html), "mark": MARK}
    return PAGE.format(origin=escape("\n".join([shared, *own, *settings])), **parts)


class QuantityCurve(NamedTuple):
    """A quantity of a run for one set of positions, by step."""

    label: str  # label of the run
    words: str  # the entry in the menu of quantities
    side: str  # a set of positions; "" where the quantity has none
    attrs: dict[str, Any]
    along: str  # the dimension on the x axis
    steps: list[int]  # steps of the slider; empty: the slider has no effect
    ends: np.ndarray  # mean, low and high: (3, step, chunk, place)
    x: np.ndarray  # (place,)
    chunks: list[str]  # labels along further dimensions, such as heads


def families(runs: dict[str, Run]) -> dict[str, list[QuantityCurve]]:
    """Return the lines of each family, in the order of the registry."""
    entries = [(label, *entry) for label, run in runs.items() for entry in _values(run)]
    order = [*quantities(), *(name for _, name, *_ in entries)]
    found: dict[str, list[QuantityCurve]] = {}
    for label, _, words, values in sorted(entries, key=lambda entry: order.index(entry[1])):
        family = found.setdefault(values.attrs.get("family", WITHOUT_FAMILY), [])
        family.extend(lines_of(label, words, values))
    return found


def _values(run: Run) -> Iterator[tuple[str, str, xr.DataArray]]:
    """Yield each quantity and its excess over each of its null models: name, menu words, values."""
    results = run.results
    for name, values in results.items():
        if values.dtype.kind in "iuf" and not is_excess(values):
            words, attrs = style.variable_label(values), dict(values.attrs)
            if "statistic" in values.dims:
                attrs["band"] = describe_bands([results], str(name), what="bars")
            yield str(name), words, values.assign_attrs(attrs)
            for null in nulls_in(results) if excess_name(str(name)) in results else ():
                excess = excess_of(results, str(name), null)
                if excess.notnull().any():
                    yield str(name), f"{words}, excess over {null}", excess.assign_attrs(attrs)
    for name, values in run.tangents.items() if run.tangents is not None else ():
        yield str(name), str(name), values.assign_attrs(family="tangents")


def lines_of(label: str, words: str, values: xr.DataArray) -> list[QuantityCurve]:
    """Make a line for each set of positions, over layers or blocks, else over steps."""
    dims = [dim for dim in values.dims if dim not in ("statistic", "positions")]
    along = next((dim for dim in (*DEPTHS, "step", *dims) if dim in dims), "")
    further = [dim for dim in dims if dim not in (along, "step")]
    slides = "step" in dims and along != "step"
    if "statistic" not in values.dims:
        values = values.expand_dims(statistic=["mean"])
    if "positions" not in values.dims:
        values = values.expand_dims(positions=[""])
    values = values.reindex(statistic=list(ENDS))  # without an interval the ends are NaN
    places = itertools.product(*(values[dim].values.tolist() for dim in further))
    chunks = [", ".join(map("{} {}".format, further, place)) for place in places]
    labels = values[along].values if along else np.zeros(1)
    x = labels if labels.dtype.kind in "iuf" else np.arange(len(labels))
    steps = values["step"].values.tolist() if slides else []
    order = ["positions", "statistic", *["step"] * slides, *further, *[along] * bool(along)]
    sides = values["positions"].values.tolist()
    shape = (len(sides), len(ENDS), max(len(steps), 1), len(chunks), len(x))
    ends = values.transpose(*order).values.astype("f4").reshape(shape)
    attrs = values.attrs
    return [
        QuantityCurve(label, words, side, attrs, along, steps, own, x.astype(float), chunks)
        for side, own in zip(sides, ends, strict=True)
    ]


def figure(lines: list[QuantityCurve], runs: list[str]) -> dict[str, Any]:
    """Make a curve for each line; menus choose the visible ones."""
    looks = style.run_styles(runs)
    steps = sorted({step for line in lines for step in line.steps})
    words = dict.fromkeys(line.words for line in lines)
    sides = [side for side in dict.fromkeys(line.side for line in lines) if side]
    by_words = [_words_button(name, lines) for name in words]
    by_side = [_side_button(side, lines) for side in sides]
    frames = {
        step: [_trace(line, looks[line.label]["color"], step) for line in lines]
        for step in steps or [None]
    }
    menu = {"x": 0, "xanchor": "left", "yanchor": "top"}
    layout = {
        "height": 620,
        "margin": {"t": 170, "r": 20},
        "updatemenus": [menu | {"buttons": by_words, "y": 1.42}]
        + [menu | {"buttons": by_side, "y": 1.29}] * bool(by_side),
        "sliders": [_slider(steps)] * (len(steps) > 1),
        "xaxis2": HIDDEN | {"overlaying": "x"},
        "yaxis2": HIDDEN | {"overlaying": "y"},
        **by_words[0]["args"][1],
    }
    data = [dict(trace) for trace in frames[steps[-1] if steps else None]]
    for button in (by_words[0], *by_side[:1]):
        for name, values in button["args"][0].items():
            for trace, value in zip(data, values, strict=True):
                trace[name] = value
    named = [{"name": str(step), "data": traces} for step, traces in frames.items()]
    return {"data": data, "frames": named if len(steps) > 1 else [], "layout": layout}


@np.errstate(invalid="ignore")  # infinity minus infinity
def _trace(line: QuantityCurve, color: str, step: int | None) -> dict[str, Any]:
    """Make the curve at a step, with interval bars, and gaps between chunks; else NaN."""
    at = line.steps.index(step) if step in line.steps else 0
    ends = line.ends[:, at] * (np.nan if line.steps and step not in line.steps else 1)
    mean, low, high = np.pad(ends, ((0, 0), (0, 0), (0, 1)), constant_values=np.nan)
    x = np.broadcast_to(np.append(line.x, np.nan), mean.shape)
    bars = {"type": "data", "symmetric": False, "thickness": 1, "width": 0}
    bars |= {"array": _encode(high - mean), "arrayminus": _encode(mean - low)}
    trace = {"type": "scatter", "mode": "lines+markers", "line": {"color": color}}
    trace |= {"legendgroup": line.label, "name": line.label, "error_y": bars}
    if len(line.chunks) > 1:
        trace["text"] = [chunk for chunk in line.chunks for _ in range(x.shape[1])]
    return trace | {"x": _encode(x), "y": _encode(mean)}


def _encode(values: Any) -> dict[str, str]:
    """Encode float32 in base64, as plotly reads arrays from JSON."""
    content = np.ravel(values).astype("<f4").tobytes()
    return {"dtype": "f4", "bdata": base64.b64encode(content).decode()}


def _words_button(words: str, lines: list[QuantityCurve]) -> dict[str, Any]:
    """Make the menu entry of a quantity: only its curves are visible."""
    line = next(line for line in lines if line.words == words)
    shown = [other.words == words for other in lines]
    own = [other for other, visible in zip(lines, shown, strict=True) if visible]
    text = textwrap.fill(f"{_describe_bars(own)} {line.attrs.get('formula', '')}", 130)
    above = {"text": text.strip().replace("\n", "<br>"), "font": {"size": 12}, "x": 0.01, "y": 0.76}
    titles = {
        "title": above,
        "xaxis": {"title": {"text": line.along.replace("step", "training step")}},
        "yaxis": {"title": {"text": words}},
    }
    return {"label": words, "method": "update", "args": [{"visible": shown}, titles]}


def _describe_bars(lines: list[QuantityCurve]) -> str:
    """Describe the bars of a quantity, by run where they differ."""
    labels: dict[str, dict[str, None]] = {}
    for line in lines:
        labels.setdefault(line.attrs.get("band", ""), {})[line.label] = None
    if len(labels) == 1:
        return next(iter(labels))
    return " ".join(f"{', '.join(runs)}: {band}" for band, runs in labels.items() if band)


def _side_button(side: str, lines: list[QuantityCurve]) -> dict[str, Any]:
    """Make the menu entry of a set of positions: other curves move to hidden axes."""
    shown = [line.side in (side, "") for line in lines]
    axes = {f"{axis}axis": [axis if visible else f"{axis}2" for visible in shown] for axis in "xy"}
    label = POSITIONS.get(side, side)
    return {"label": label, "method": "restyle", "args": [axes | {"showlegend": shown}]}


def _slider(steps: list[int]) -> dict[str, Any]:
    how = {"mode": "immediate", "frame": {"duration": 0}, "transition": {"duration": 0}}
    how["frame"]["redraw"] = True
    places = [
        {"label": f"{step:,}", "method": "animate", "args": [[str(step)], how]} for step in steps
    ]
    prefix = {"currentvalue": {"prefix": "step "}, "pad": {"t": 45}}
    return {"active": len(steps) - 1, "steps": places} | prefix
