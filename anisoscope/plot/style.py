"""The style of all figures: type, colors, bands, titles, legends, the footer."""

import re
import textwrap
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from itertools import cycle
from typing import Any

import matplotlib.style
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import Collection
from matplotlib.colors import Colormap, LinearSegmentedColormap, to_hex
from matplotlib.container import Container
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

PAGE_WIDTH = 6.9  # inches: the full width of a two-column paper
SINGLE_WIDTH = 4.6  # a figure of one panel, with its legend
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
COLORS = (*OKABE_ITO, "#7F7F7F", "#6A3D9A")  # grids have nine lines and more
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
SMALL_FONT = 7.5  # points: titles of small panels and names on their axes
FOOTER = 6.5
UNNAMED = re.compile(r"_(child|container)\d+|_nolegend_|")  # labels that matplotlib gives by itself
RC = {
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same shapes on every machine
    "font.size": 8.5,
    "axes.titlesize": 8.5,
    "figure.titlesize": 9.5,
    "legend.fontsize": SMALL_FONT,
    "legend.title_fontsize": SMALL_FONT,
    "legend.frameon": False,
    "xtick.labelsize": SMALL_FONT,
    "ytick.labelsize": SMALL_FONT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "0.92",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "savefig.dpi": 200,
    "pdf.fonttype": 42,  # TrueType: text stays text, and journals accept it
    "text.parse_math": False,  # a name may hold dollar signs
}


def context(mathematics: bool = False) -> AbstractContextManager[None]:
    """Set matplotlib's defaults to this style, whatever the user's own settings.

    With `mathematics`, dollar signs are read as on a user's own axes: `escape` protects names.
    """
    return matplotlib.style.context(RC | {"text.parse_math": mathematics}, after_reset=True)


def escape(name: object) -> str:
    """Escape the dollar signs of a name on a user's axes."""
    return str(name).replace("$", r"\$")


def new_figure(width: float, height: float) -> Figure:
    """Make a figure outside pyplot that makes room for legends and footer."""
    return Figure(figsize=(width, height), layout="constrained")


def run_styles(runs: Iterable[Any]) -> dict[Any, dict[str, str]]:
    """Give each run a color and a marker by its place among all: distinct in gray too."""
    looks = zip(runs, cycle(COLORS), cycle(MARKERS), strict=False)  # 63 different: 9 × 7
    return {run: {"color": color, "marker": marker} for run, color, marker in looks}


def depth_colormap() -> Colormap:
    """Return plasma without its last third, which is too pale on white paper."""
    shades = matplotlib.colormaps["plasma"](np.linspace(0, 0.64, 256))
    return LinearSegmentedColormap.from_list("depth", shades)


def plot_with_interval(
    ax: Axes, x: np.ndarray, mean: np.ndarray, low: np.ndarray, high: np.ndarray, **look: Any
) -> None:
    """Draw a line with its interval as a band; no band where the ends are NaN."""
    ax.plot(x, mean, **look)
    if len(x) == 1:  # a band has no width
        ax.vlines(x, low, high, color=look["color"])
    elif np.isfinite(low).any():
        ax.fill_between(x, low, high, color=look["color"], alpha=0.2, linewidth=0)


def error_bars(ax: Axes, x: Sequence[np.ndarray], y: Sequence[np.ndarray], **look: Any) -> None:
    """Draw points with bars, from mean, low and high of both; a bar is missing where an end is NaN."""
    (x, *across), (y, *upright) = x, y
    reach = (np.nan_to_num(np.abs(np.array(ends) - at)) for ends, at in ((upright, y), (across, x)))
    ax.errorbar(x, y, *reach, **look)


def draw_row(
    ax: Axes,
    place: float,
    value: float,
    ends: Sequence[float],
    color: Any,
    filled: bool,
    **look: Any,
) -> None:
    """Draw a value in a row of a forest plot, with its interval; hollow unless filled."""
    ax.plot(ends, [place, place], color=color, linewidth=look.pop("linewidth", 1))
    look = {"marker": "o", "markersize": 3, "linestyle": "none"} | look
    ax.plot(value, place, color=color, markerfacecolor=color if filled else "white", **look)


def name_rows(ax: Axes, labels: Sequence[str], bold: Sequence[bool], size: float = FOOTER) -> None:
    """Name rows from 0 downward; headings are bold."""
    ax.set_yticks(range(0, -len(labels), -1), labels, fontsize=size)
    for tick, heading in zip(ax.get_yticklabels(), bold, strict=True):
        tick.set_fontweight("bold" if heading else "normal")
    ax.set_ylim(0.4 - len(labels), 0.6)
    ax.grid(axis="y", visible=False)
    ax.tick_params(axis="y", length=0)


def axis_label(long_name: str, units: str, symbol: str = "") -> str:
    """Join a quantity's name and its symbol or unit."""
    if symbol:
        return f"{long_name} {symbol}"
    return long_name if units in ("", "1") else f"{long_name} ({units})"


def variable_label(values: xr.DataArray) -> str:
    """Label a variable of a table, from its attributes."""
    name, attrs = str(values.name), values.attrs
    return axis_label(attrs.get("long_name", name), attrs.get("units", ""), attrs.get("symbol", ""))


def title(figure: Figure, text: str) -> None:
    figure.suptitle(wrap(text, figure.get_figwidth(), RC["figure.titlesize"]))


def panel_title(ax: Axes, text: str, width: float = 1.4) -> None:
    """Set a small title, wrapped at this many inches."""
    ax.set_title(wrap(text, width, SMALL_FONT), fontsize=SMALL_FONT)


def legend(axes: np.ndarray | Sequence[Axes]) -> None:
    """Name the runs of all panels to the right of the first row, clear of all lines."""
    corner = np.atleast_2d(axes)[0, -1]
    handles, labels = legend_entries(np.ravel(axes))
    corner.legend(handles, labels, loc="upper left", bbox_to_anchor=(1.02, 1), borderaxespad=0)


def label_ends(ax: Axes, width: float = 1.2) -> bool:
    """Name the lines of a panel at its right edge, in their colors and without overlap.

    Limits are those of the lines so far. Names break at this many inches; one of several lines is gray.

    Returns:
        False, and nothing is drawn, if the names need more than the height of the panel.
    """
    ends: dict[str, tuple[float, str, Any]] = {}
    ax.get_xlim(), ax.get_ylim()  # matplotlib sets limits when they are read
    to_share = ax.transData + ax.transAxes.inverted()
    for line in ax.lines:
        y, label = np.asarray(line.get_ydata(), float), str(line.get_label())
        if not UNNAMED.fullmatch(label) and np.isfinite(y).any():
            text = "\n".join(wrap(part, width, SMALL_FONT) for part in label.split("\n"))
            share = to_share.transform((0, y[np.isfinite(y)][-1]))[1]
            color = "0.35" if label in ends else line.get_color()
            ends[label] = (share, text, color)
    row = 1.3 * SMALL_FONT / 72 / (ax.get_position().height * ax.figure.get_figheight())
    names = sorted(ends.values(), key=lambda end: end[0])
    heights = np.array([row * (1 + text.count("\n")) for _, text, _ in names])
    if heights.sum() > 1:
        return False
    # a name is moved up by those below it, and all down where they leave the panel
    stacked = np.cumsum(heights) - heights / 2
    shifts = np.maximum.accumulate([share for share, *_ in names] - stacked)
    places = np.clip(shifts, 0, 1 - heights.sum()) + stacked
    for place, (_, text, color) in zip(places, names, strict=True):
        y = to_share.inverted().transform((0, place))[1]
        look = {"va": "center", "color": color, "fontsize": SMALL_FONT}
        ax.text(1.02, y, text, transform=ax.get_yaxis_transform(), **look)
    return True


def legend_entries(axes: Iterable[Axes]) -> tuple[list[Any], list[str]]:
    """Collect the legend entries of these panels: each label once, even if it begins with "_".

    A label of lines in several colors, such as a null model's, comes last and is gray.
    """
    handles = {}
    for ax in axes:
        for artist in (*ax.get_children(), *ax.containers):
            named = isinstance(artist, Line2D | Collection | Container)
            if named and not UNNAMED.fullmatch(label := artist.get_label()):
                lines = [line for line in (handles.get(label), artist) if isinstance(line, Line2D)]
                if len({to_hex(line.get_color()) for line in lines}) > 1:
                    handles.pop(label)
                    look = {
                        "linestyle": artist.get_linestyle(),
                        "linewidth": artist.get_linewidth(),
                    }
                    artist = Line2D([], [], color="0.35", **look)
                handles[label] = artist
    return list(handles.values()), list(handles)


def wrap(text: str, width: float, size: float) -> str:
    """Break text into lines of at most this many inches at this type size in points.

    A letter is about 0.58 of its height wide. A last word of a single character stays with the
    word before it.
    """
    whole = re.sub(r" (?=.$)", "\N{NO-BREAK SPACE}", text)
    lines = textwrap.fill(whole, int(width * 72 / (0.58 * size)), break_on_hyphens=False)
    return lines.replace("\N{NO-BREAK SPACE}", " ")


def finish(figure: Figure, heading: str, footer: list[str], description: str) -> Figure:
    """Add title and footer; the description, with the footer, is the figure's label."""
    title(figure, heading)
    add_footer(figure, footer)
    figure.set_label("\n".join([description, "", *footer]))
    return figure


def add_footer(figure: Figure, lines: list[str]) -> None:
    """Write the provenance of a figure in added height below it."""
    text = "\n".join(wrap(line, figure.get_figwidth() - 0.1, FOOTER) for line in lines)
    figure.set_figheight(figure.get_figheight() + 1.4 * FOOTER / 72 * len(text.splitlines()))
    figure.supxlabel(text, x=0.01, ha="left", fontsize=FOOTER, color="0.25", linespacing=1.3)
