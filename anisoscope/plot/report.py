"""report.html: every quantity of tables in a browser, as plotly draws it; one file that fetches
nothing.
"""

import base64
import itertools
import math
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
from anisoscope.plot.footer import provenance
from anisoscope.plot.run_tables import ENDS, POSITIONS, Run, bands
from anisoscope.results.excess import NULL, excess_name, is_excess, nulls_in
from anisoscope.results.frame import check_table, whole
from anisoscope.utils import files

NAME = "report.html"
MARK = '<meta name="generator" content="anisoscope">'
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">{mark}<title>{title}</title>
<style>body {{ font: 15px system-ui, sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em }}
pre {{ white-space: pre-wrap }}</style></head>
<body><h1>{title}</h1>
<p>Menus choose quantity and token positions, the slider the training step; a click on a run in the
legend hides it. Shaded: intervals, as the line above each figure says.</p>
{figures}<h2>Origin</h2><pre>{origin}</pre></body></html>
"""
DEPTHS = ("layer", "block")
# axes of positions not chosen
UNSEEN = {"visible": False, "autorange": False, "range": [-9e9, -8e9]}
FURTHER = "further quantities"  # the heading of those that are of no family
Curves = dict[str, xr.DataArray]  # what the menu calls it, and its values


def report(
    tables: xr.Dataset | Mapping[str, xr.Dataset], path: str | os.PathLike[str] = NAME
) -> pathlib.Path:
    """Write a page of every quantity of one table or several, for a browser.

    A figure for each family, with a menu of quantities, one of positions, and a slider over steps.

    Args:
        tables: of `measure`, `measure_model`, `measure_attention`, or results.nc of a run; several
            by name.
        path: of the page, as "page.html". An earlier page there is replaced, no other file is.

    Returns:
        The path.

    Raises:
        ValueError: a file that is no page is there, or no folder to write into; in one line.
    """
    path = pathlib.Path(path)
    if not path.parent.is_dir():
        raise ValueError(f"{path}: there is no folder {path.parent} to write the page into")
    if path.exists() and (not path.is_file() or MARK.encode() not in path.read_bytes()):
        raise ValueError(f"{path} is there and is no page of this kind: name another path")
    if isinstance(tables, xr.Dataset) or not isinstance(tables, Mapping):
        check_table(tables)
        tables = {str(tables.attrs.get("title", "")) or path.stem: tables}
    runs = {label: _run(label, table) for label, table in tables.items()}
    files.write(path, page(runs, ", ".join(runs)))
    return path


def _run(label: str, table: xr.Dataset) -> Run:
    results, names = whole(table)
    facts = [label]
    facts += [f"{dim} {at}: {name}" for dim, own in names.items() for at, name in enumerate(own)]
    defaults = {
        "provenance": "; ".join(facts),
        "config": "{}",
        "points": 0,
        "batches": 1,
        "folds": 1,
    }
    results.attrs = defaults | results.attrs
    return Run(results, [])


def page(runs: dict[str, Run], title: str) -> str:
    """The HTML of the page."""
    from plotly.io import to_html  # where it is needed alone

    shared, own = provenance(runs)
    settings = (f"{label}: {run.results.attrs['config']}" for label, run in runs.items())
    html = [
        f"<h2>{escape(family)}</h2>"
        + to_html(
            figure(members),
            full_html=False,
            include_plotlyjs=number == 0,
            div_id=f"figure-{number}",
            validate=False,
            auto_play=False,
        )
        for number, (family, members) in enumerate(families(runs).items())
    ]
    parts = {"title": escape(title), "figures": "\n".join(html), "mark": MARK}
    return PAGE.format(origin=escape("\n".join([shared, *own, *settings])), **parts)


def families(runs: dict[str, Run]) -> dict[str, dict[str, Curves]]:
    """{family: {run: curves}}, in the order of the registry."""
    found: dict[str, dict[str, Curves]] = {}
    order = {name: at for at, name in enumerate(quantities())}
    names = {name: None for run in runs.values() for name in _names(run)}
    for name in sorted(names, key=lambda name: order.get(name, len(order))):
        for label, run in runs.items():
            for words, values in _curves(run, name):
                family = values.attrs.get("family", FURTHER)
                found.setdefault(family, {}).setdefault(label, {})[words] = values
    return found


def _names(run: Run) -> list[str]:
    numbers = {name: values for name, values in run.results.items() if values.dtype.kind in "iuf"}
    return [name for name, values in numbers.items() if not is_excess(values)] + [
        *({} if run.tangents is None else run.tangents)
    ]


def _curves(run: Run, name: str) -> Iterator[tuple[str, xr.DataArray]]:
    """A quantity, and its excess over every null model that has it."""
    if name not in run.results:
        if run.tangents is not None and name in run.tangents:
            yield name, run.tangents[name].assign_attrs(family="tangents")
        return
    values, words = run.results[name], style.words(run.results[name])
    yield (
        words,
        values.assign_attrs(band=bands({"": run}, name) if "statistic" in values.dims else ""),
    )
    for null in nulls_in(run.results) if excess_name(name) in run.results else ():
        excess = run.results[excess_name(name)].sel({NULL: null}, drop=True)
        if excess.notnull().any():
            yield f"{words}, excess over {null}", excess.assign_attrs(values.attrs)


class Line(NamedTuple):
    """A quantity of a run, for one set of positions: what plotly draws of it, by step."""

    label: str  # of the run
    words: str
    side: str  # a set of positions; "": it has none
    attrs: dict[str, Any]
    along: str  # the dimension below the curve
    steps: list[int]  # among which the slider chooses; none: it has no effect
    ends: np.ndarray  # mean, low and high: (3, step, piece, place); a step alone where it has none
    x: np.ndarray  # (place,)
    pieces: list[str]  # what they are called: single heads, say


def figure(members: dict[str, Curves]) -> dict[str, Any]:
    """A line and a band for each run, quantity and set of positions, of which menus show some."""
    looks, lines = style.inks(members), []
    for label, curves in members.items():
        for words, values in curves.items():
            lines += _lines(label, words, values)
    steps = sorted({step for line in lines for step in line.steps})

    def traces(step: int | None) -> list[dict[str, Any]]:
        return [part for line in lines for part in _traces(line, looks[line.label]["color"], step)]

    frames = [
        {"name": str(step), "data": traces(step)} for step in steps[: len(steps) * (len(steps) > 1)]
    ]
    words = dict.fromkeys(line.words for line in lines)
    by_words = [
        _button(next(line for line in lines if line.words == name), lines) for name in words
    ]
    by_side = [
        _side_button(side, lines) for side in dict.fromkeys(line.side for line in lines) if side
    ]
    menus = [{"buttons": by_words, "y": 1.42}]
    menus += [{"buttons": by_side, "y": 1.29}] if by_side else []
    layout = {
        "height": 620,
        "margin": {"t": 170, "r": 20},
        "updatemenus": [menu | {"x": 0, "xanchor": "left", "yanchor": "top"} for menu in menus],
        "sliders": [_slider(steps)] if frames else [],
        "xaxis2": UNSEEN | {"overlaying": "x"},
        "yaxis2": UNSEEN | {"overlaying": "y"},
        **by_words[0]["args"][1],
    }
    data = traces(steps[-1] if steps else None)
    for button in (by_words[0], *by_side[:1]):
        for name, values in button["args"][0].items():
            for trace, value in zip(data, values, strict=True):
                trace[name] = value
    return {"data": data, "frames": frames, "layout": layout}


def _lines(label: str, words: str, values: xr.DataArray) -> Iterator[Line]:
    """One for each set of positions; what has no depth is drawn over steps, else over its first
    dimension.
    """
    dims = [dim for dim in values.dims if dim not in ("statistic", "positions")]
    along = next((dim for dim in (*DEPTHS, "step") if dim in dims), dims[0] if dims else "")
    others = [dim for dim in dims if dim not in (along, "step")]
    slides = "step" in dims and along != "step"
    order = ["positions"] * ("positions" in values.dims) + ["statistic"] * (
        "statistic" in values.dims
    )
    order += [*["step"] * slides, *others, *[along] * bool(along)]
    sides = values["positions"].values.tolist() if "positions" in values.dims else [""]
    labels = values[along].values if along else np.zeros(1)
    numbers = values.sel(statistic=list(ENDS)) if "statistic" in values.dims else values
    shape = (
        len(sides),
        -1,
        values["step"].size if slides else 1,
        math.prod(values[dim].size for dim in others),
        labels.size,
    )
    array = numbers.transpose(*order).values.astype("f4").reshape(shape)
    if array.shape[1] == 1:  # without an interval
        array = np.concatenate(
            [array, np.full_like(array, np.nan), np.full_like(array, np.nan)], axis=1
        )
    x = labels.astype(float) if labels.dtype.kind in "iuf" else np.arange(len(labels), dtype=float)
    places = itertools.product(*(values[dim].values.tolist() for dim in others))
    pieces = [", ".join(map("{} {}".format, others, place)) for place in places]
    steps = values["step"].values.tolist() if slides else []
    for side, ends in zip(sides, array, strict=True):
        yield Line(label, words, side, values.attrs, along, steps, ends, x, pieces)


def _traces(line: Line, ink: str, step: int | None) -> list[dict[str, Any]]:
    """A band and a line at a step, a piece for each place of further dimensions, with gaps
    between.
    """
    at = line.steps.index(step) if step in line.steps else 0
    mean, low, high = line.ends[:, at] * (np.nan if line.steps and step not in line.steps else 1)
    gap = np.full((len(mean), 1), np.nan)
    x = np.hstack([np.broadcast_to(line.x, mean.shape), gap])
    band_x, band_y = [], []
    for lower, upper in zip(low, high, strict=True):
        known = np.isfinite(lower) & np.isfinite(upper)
        if known.any():
            band_x += [*line.x[known], *line.x[known][::-1], np.nan]
            band_y += [*upper[known], *lower[known][::-1], np.nan]
    common = {"type": "scatter", "legendgroup": line.label, "name": line.label}
    band = {"x": _numbers(band_x), "y": _numbers(band_y), "fill": "toself", "mode": "none"}
    band |= {"fillcolor": ink, "opacity": 0.2, "hoverinfo": "skip"}
    curve = {"x": _numbers(x), "y": _numbers(np.hstack([mean, gap])), "mode": "lines+markers"}
    curve |= {"line": {"color": ink}}
    if len(line.pieces) > 1:
        curve["text"] = [piece for piece in line.pieces for _ in range(len(line.x) + 1)]
    return [common | band, common | curve]


def _numbers(values: Any) -> dict[str, str]:
    """As plotly reads arrays from JSON: float32 in base64."""
    content = np.ravel(values).astype("<f4").tobytes()
    return {"dtype": "f4", "bdata": base64.b64encode(content).decode()}


def _button(line: Line, lines: list[Line]) -> dict[str, Any]:
    """Of the menu of quantities: its lines and bands alone are visible."""
    shown = [other.words == line.words for other in lines for _ in range(2)]
    about = line.attrs
    text = textwrap.fill(f"{about.get('band', '')} {about.get('formula', '')}", 130)
    titles = {
        "title": {"text": text.strip().replace("\n", "<br>")},
        "xaxis": {"title": {"text": line.along.replace("step", "training step")}},
        "yaxis": {"title": {"text": line.words}},
    }
    titles["title"] |= {"font": {"size": 12}, "x": 0.01, "y": 0.76}
    return {"label": line.words, "method": "update", "args": [{"visible": shown}, titles]}


def _side_button(side: str, lines: list[Line]) -> dict[str, Any]:
    """Of the menu of positions: what is of others goes to axes that nobody sees."""
    shown = [line.side in (side, "") for line in lines for _ in range(2)]
    legend = [one and place % 2 == 1 for place, one in enumerate(shown)]
    axes = {f"{axis}axis": [axis if one else f"{axis}2" for one in shown] for axis in "xy"}
    arguments = axes | {"showlegend": legend}
    return {"label": POSITIONS.get(side, side), "method": "restyle", "args": [arguments]}


def _slider(steps: list[int]) -> dict[str, Any]:
    how = {
        "mode": "immediate",
        "frame": {"duration": 0, "redraw": True},
        "transition": {"duration": 0},
    }
    places = [
        {"label": f"{step:,}", "method": "animate", "args": [[str(step)], how]} for step in steps
    ]
    return {
        "active": len(steps) - 1,
        "steps": places,
        "currentvalue": {"prefix": "step "},
        "pad": {"t": 45},
    }
