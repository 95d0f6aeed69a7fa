"""Write report.html: every quantity of tables, drawn by plotly, in one file for offline use."""

import base64
import gzip
import itertools
import json
import os
import pathlib
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from anisoscope.config.pretrained_config import short_name
from anisoscope.metrics.registry import quantities
from anisoscope.plot import style
from anisoscope.plot.run_tables import INTERVAL, POSITION_LABELS, Run, describe_bands, provenance
from anisoscope.plot.typeset import typeset
from anisoscope.results.frame import as_run_table, check_table, excess_of, is_excess, nulls_in
from anisoscope.results.summary import excess_name
from anisoscope.utils import files
from anisoscope.utils.extras import required_by

PAGE_NAME = "report.html"
GENERATOR = '<meta name="generator" content="anisoscope">'
PAGE_TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">{mark}
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>
<style>body {{ font: 15px system-ui, sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em }}
pre {{ white-space: pre-wrap }} img {{ max-width: 100% }}</style></head>
<body><h1>{title}</h1>
{summary}<h2>Every quantity</h2>
<p>Menus choose quantity and token positions, the slider the training step; a click on a run in the
legend hides it. Bars: intervals, as the line above each figure says. Hover over a mark for its
values.</p>
{figures}<h2>Origin</h2><pre>{origin}</pre>
<script>
const unpack = text => new Response(new Blob([Uint8Array.from(atob(text), c => c.charCodeAt(0))])
  .stream().pipeThrough(new DecompressionStream("gzip"))).text();
const wrapText = text => text.replaceAll("<br>", " ").split(" ").reduce((lines, word) =>
  lines.at(-1).length + word.length < innerWidth / 7 ? [...lines.slice(0, -1), lines.at(-1) + " " + word]
    : [...lines, word], [""]).join("<br>");
const wrapTexts = figure => [figure.layout, ...figure.layout.updatemenus[0].buttons.map(x => x.args[1])]
  .forEach(x => {{
    const text = wrapText(x.title.text);
    const y = 1 - (178 - 13 * text.split("<br>").length) / figure.layout.height;  // above the axes
    Object.assign(x.title, {{text, y, yanchor: "bottom", font: {{size: 10}}}});
    if (x.xaxis.dtick) x.xaxis.dtick *= 2;
  }});
const narrow = innerWidth < 900;
(async () => {{
  const library = document.createElement("script");
  library.text = await unpack("{library}");
  document.head.append(library);
  const figures = JSON.parse(await unpack("{data}"));
  if (narrow) figures.forEach(figure => {{
    const slides = figure.layout.sliders.length;
    figure.layout.legend = {{orientation: "h", y: slides ? -0.5 : -0.2}};
    figure.layout.height += 80 * slides;
    figure.layout.updatemenus.forEach(menu => {{
      menu.buttons.forEach(x => x.label = x.label.replace(", excess over", " −"));
      Object.assign(menu, {{x: -0.25, font: {{size: 9}}}});
    }});
    wrapTexts(figure);
    figure.config = {{displayModeBar: false}};
  }});
  figures.forEach((figure, number) => Plotly.newPlot("figure-" + number, figure));
}})();
</script></body></html>
"""
PICTURE = '<p><img alt="" src="data:image/png;base64,{}"></p>\n'
PLACE = '<h2>{}</h2><div id="figure-{}"></div>\n'
DEPTHS = ("layer", "block")
LONGEST_LABEL = 45  # characters of a line beside the vertical axis
MOST_TICKS = 16  # of an axis of layers
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star")  # of further dimensions
HIDDEN = {"visible": False, "autorange": False, "range": [-9e9, -8e9]}  # axes of other positions
WITHOUT_FAMILY = "further quantities"  # heading of the quantities without a family
ARRAY_ATTRIBUTES = {"config": "{}", "points": 0, "batches": 1, "folds": 1}  # for tables of arrays


def report(
    tables: xr.Dataset | Mapping[str, xr.Dataset], path: str | os.PathLike[str] = PAGE_NAME
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
    >>> layers = [*np.random.default_rng(0).standard_normal((3, 256, 8))]
    >>> table = anisoscope.measure(layers, families="similarity", nulls=())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = report(table, f"{folder}/page.html")
    >>> path.name
    'page.html'
    """
    path = files.user_path(path)
    if not path.parent.is_dir():
        raise ValueError(f"{path}: there is no folder {path.parent} to write the page into")
    if path.exists() and (not path.is_file() or GENERATOR.encode() not in path.read_bytes()):
        raise ValueError(f"{path} exists and is not a page of this kind: name another path")
    if isinstance(tables, Mapping) and not len(tables):
        raise ValueError("no table was passed; pass one or a dict of tables")
    if not isinstance(tables, Mapping) or isinstance(tables, xr.Dataset):
        check_table(tables)
        tables = {model_name(tables) or str(tables.attrs.get("title", "")) or path.stem: tables}
    runs = {label: _as_run(label, table) for label, table in tables.items()}
    files.write_file(path, page(runs, ", ".join(runs)))
    return path


def model_name(table: xr.Dataset) -> str:
    """Return the name of the pretrained model of a table; empty: it has none."""
    return short_name(str(table.attrs.get("pretrained", "")))


def _as_run(label: str, table: xr.Dataset) -> Run:
    results, names = as_run_table(table)
    facts = [f"{dim} {at}: {name}" for dim, own in names.items() for at, name in enumerate(own)]
    provenance = {"provenance": "; ".join([label, *facts])}
    return Run(results.assign_attrs(provenance | ARRAY_ATTRIBUTES | results.attrs), [])


def page(
    runs: dict[str, Run],
    title: str,
    sentences: Sequence[str] = (),
    pictures: Sequence[pathlib.Path] = (),
) -> str:
    """Return the HTML of the page: sentences, pictures in PNG, every quantity, and the origin."""
    with required_by("report"):
        from plotly.offline import get_plotlyjs  # slow to import

    shared, own = provenance(runs)
    settings = (f"{label}: {run.results.attrs['config']}" for label, run in runs.items())
    lines = families(runs)
    summary = [f"<p>{escape(sentence)}</p>\n" for sentence in sentences]
    summary += [PICTURE.format(base64.b64encode(path.read_bytes()).decode()) for path in pictures]
    places = (PLACE.format(escape(family), number) for number, family in enumerate(lines))
    return PAGE_TEMPLATE.format(
        mark=GENERATOR,
        title=escape(title),
        summary="".join(summary),
        figures="".join(places),
        origin=escape("\n".join([shared, *own, *settings])),
        library=_pack(get_plotlyjs()),
        data=_pack(json.dumps([figure(family, [*runs]) for family in lines.values()])),
    )


def _pack(text: str) -> str:
    """Compress a text for a browser, which unpacks it by itself."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


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
    values = values.reindex(statistic=list(INTERVAL))  # without an interval the ends are NaN
    places = itertools.product(*(values[dim].values.tolist() for dim in further))
    chunks = [", ".join(map("{} {}".format, further, place)) for place in places]
    labels = values[along].values if along else np.zeros(1)
    x = labels if labels.dtype.kind in "iuf" else np.arange(len(labels))
    steps = values["step"].values.tolist() if slides else []
    order = ["positions", "statistic", *["step"] * slides, *further, *[along] * bool(along)]
    sides = values["positions"].values.tolist()
    shape = (len(sides), len(INTERVAL), max(len(steps), 1), len(chunks), len(x))
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
    data = [_trace(line, looks[line.label]["color"]) for line in lines]
    for button in (by_words[0], *by_side[:1]):
        for name, values in button["args"][0].items():
            for trace, value in zip(data, values, strict=True):
                trace[name] = value
    frames = [
        {"name": str(step), "data": [_heights(line, step) for line in lines]}
        for step in steps * (len(steps) > 1)
    ]
    return {"data": data, "frames": frames, "layout": layout}


def _trace(line: QuantityCurve, color: str) -> dict[str, Any]:
    """Make the curve at the last step, with gaps between chunks, whose marks differ."""
    heights = _heights(line, line.steps[-1] if line.steps else None)
    places, chunks = len(line.x) + 1, len(line.chunks)
    bars = {"type": "data", "symmetric": False, "thickness": 1, "width": 0} | heights["error_y"]
    trace = {"type": "scatter", "mode": "lines+markers", "line": {"color": color}}
    trace |= {"legendgroup": line.label, "name": line.label, "y": heights["y"], "error_y": bars}
    trace["x"] = _encode(np.tile(np.append(line.x, np.nan), chunks))
    if chunks > 1:
        trace["text"] = [chunk for chunk in line.chunks for _ in range(places)]
        marks = [SYMBOLS[chunk % len(SYMBOLS)] for chunk in range(chunks)]
        trace["marker"] = {"symbol": [mark for mark in marks for _ in range(places)], "size": 7}
    return trace


@np.errstate(invalid="ignore")  # infinity minus infinity
def _heights(line: QuantityCurve, step: int | None) -> dict[str, Any]:
    """Return the curve's heights and bars at a step, all that a frame changes; else NaN."""
    at = line.steps.index(step) if step in line.steps else 0
    ends = line.ends[:, at] * (np.nan if line.steps and step not in line.steps else 1)
    mean, low, high = np.pad(ends, ((0, 0), (0, 0), (0, 1)), constant_values=np.nan)
    bars = {"array": _encode(high - mean), "arrayminus": _encode(mean - low)}
    return {"y": _encode(mean), "error_y": bars}


def _encode(values: np.ndarray) -> list[float | None]:
    """Round float32 to its digits; what is not finite is a gap."""
    finite = np.isfinite(values).ravel()
    return [
        float(f"{value:.6g}") if known else None
        for value, known in zip(np.ravel(values).tolist(), finite, strict=True)
    ]


def _words_button(words: str, lines: list[QuantityCurve]) -> dict[str, Any]:
    """Make the menu entry of a quantity: only its curves are visible."""
    line = next(line for line in lines if line.words == words)
    shown = [other.words == words for other in lines]
    own = [other for other, visible in zip(lines, shown, strict=True) if visible]
    formula = f"Formula: {line.attrs['formula']}." if "formula" in line.attrs else ""
    text = f"{_describe_bars(own)} {formula}".strip()
    text = "<br>".join(map(typeset, textwrap.wrap(f"{text} {_describe_marks(line)}".strip(), 130)))
    above = {"text": text, "font": {"size": 12}, "x": 0.01, "y": 0.76}
    ticks = {"dtick": -(-len(line.x) // MOST_TICKS)} if line.along in DEPTHS else {}
    titles = {
        "title": above,
        "xaxis": {"title": {"text": line.along.replace("step", "training step")}, **ticks},
        "yaxis": {"title": {"text": "<br>".join(textwrap.wrap(words, LONGEST_LABEL))}},
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


def _describe_marks(line: QuantityCurve) -> str:
    """Name the marks of further dimensions where each has one of its own."""
    if not 1 < len(line.chunks) <= len(SYMBOLS):
        return ""
    pairs = zip(SYMBOLS, line.chunks, strict=False)
    return f"Marks: {', '.join(f'{mark} {chunk}' for mark, chunk in pairs)}."


def _side_button(side: str, lines: list[QuantityCurve]) -> dict[str, Any]:
    """Make the menu entry of a set of positions: other curves move to hidden axes."""
    shown = [line.side in (side, "") for line in lines]
    axes = {f"{axis}axis": [axis if visible else f"{axis}2" for visible in shown] for axis in "xy"}
    label = POSITION_LABELS.get(side, side)
    return {"label": label, "method": "restyle", "args": [axes | {"showlegend": shown}]}


def _slider(steps: list[int]) -> dict[str, Any]:
    how = {"mode": "immediate", "frame": {"duration": 0}, "transition": {"duration": 0}}
    how["frame"]["redraw"] = True
    places = [
        {"label": f"{step:,}", "method": "animate", "args": [[str(step)], how]} for step in steps
    ]
    prefix = {"currentvalue": {"prefix": "step "}, "pad": {"t": 45}}
    return {"active": len(steps) - 1, "steps": places} | prefix
