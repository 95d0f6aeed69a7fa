"""The look that all figures share: type, colours, bands, titles, legends, the small print below."""

import re
import textwrap
from collections.abc import Iterable
from contextlib import AbstractContextManager
from itertools import cycle
from typing import Any

import matplotlib.style
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import Collection
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.container import Container
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

PAGE = 6.9  # inches: the full width of a two-column paper
SINGLE = 4.6  # of a figure of one panel, with its key
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
INKS = (*OKABE_ITO, "#7F7F7F", "#6A3D9A")  # grids have nine lines and more
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
SMALL = 7.5  # points: titles of small panels and names on their axes
SMALL_PRINT = 6.5
UNNAMED = re.compile(r"_(child|container)\d+|_nolegend_|")  # labels that matplotlib gives by itself
RC = {
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same shapes on every machine
    "font.size": 8.5,
    "axes.titlesize": 8.5,
    "figure.titlesize": 9.5,
    "legend.fontsize": SMALL,
    "legend.title_fontsize": SMALL,
    "legend.frameon": False,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
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
    """Draw and save inside this: matplotlib's defaults with the settings above, whatever the user's
    own are.

    With `mathematics`, dollar signs are read as on a user's own axes: names are to be `literal`
    there.
    """
    return matplotlib.style.context(RC | {"text.parse_math": mathematics}, after_reset=True)


def literal(name: object) -> str:
    """A name that stands on a user's axes as it is written, dollar signs too."""
    return str(name).replace("$", r"\$")


def new(width: float, height: float) -> Figure:
    """A figure outside pyplot, with no global state, whose legends and small print take their own
    space.
    """
    return Figure(figsize=(width, height), layout="constrained")


def inks(runs: Iterable[str]) -> dict[str, dict[str, str]]:
    """Colour and marker of each run, by its place among all runs: the same in every figure, and
    told apart in grey.
    """
    # 9 and 7 are coprime: 63 different pairs
    looks = zip(cycle(INKS), cycle(MARKERS), strict=False)
    return {
        run: {"color": color, "marker": marker}
        for run, (color, marker) in zip(runs, looks, strict=False)
    }


def shades() -> Colormap:
    """Plasma without its last third, too pale on white paper: from blue through purple to orange,
    ever lighter.
    """
    return LinearSegmentedColormap.from_list(
        "shades", matplotlib.colormaps["plasma"](np.linspace(0, 0.64, 256))
    )


def banded(
    ax: Axes, x: np.ndarray, mean: np.ndarray, low: np.ndarray, high: np.ndarray, **look: Any
) -> None:
    """A line with its interval as band; where nothing was resampled there is none (NaN), so no
    band.
    """
    ax.plot(x, mean, **look)
    if len(x) == 1:  # a band has no width
        ax.vlines(x, low, high, color=look["color"])
    elif np.isfinite(low).any():
        ax.fill_between(x, low, high, color=look["color"], alpha=0.2, linewidth=0)


def label(long_name: str, units: str, symbol: str = "") -> str:
    """A quantity's name and its symbol or unit, as an axis has them."""
    if symbol:
        return f"{long_name} {symbol}"
    return long_name if units in ("", "1") else f"{long_name} ({units})"


def words(values: xr.DataArray) -> str:
    """The label of a variable of a table, from its attributes."""
    about = values.attrs
    return label(
        about.get("long_name", str(values.name)), about.get("units", ""), about.get("symbol", "")
    )


def title(figure: Figure, what: str) -> None:
    """What is shown; what bands are, and all numbers, stand in the small print and the caption."""
    figure.suptitle(wrap(what, figure.get_figwidth(), RC["figure.titlesize"]))


def below_a_strip(
    figure: Figure, rows: int, columns: int, height: float
) -> tuple[Axes, np.ndarray]:
    """A strip for a legend, 0.35 inches high, and below it a grid of panels whose rows are `height`
    inches high.
    """
    grid = figure.add_gridspec(1 + rows, columns, height_ratios=(0.35, *[height] * rows))
    places = [[grid[1 + row, column] for column in range(columns)] for row in range(rows)]
    axes = np.array([[figure.add_subplot(place) for place in row] for row in places])
    return figure.add_subplot(grid[0, :], frameon=False, xticks=[], yticks=[]), axes


def legend(axes: np.ndarray) -> None:
    """The runs of all panels, right of the first row, where no line can pass under them."""
    corner = np.atleast_2d(axes)[0, -1]
    corner.legend(*entries(axes.flat), loc="upper left", bbox_to_anchor=(1.02, 1), borderaxespad=0)


def entries(axes: Iterable[Axes]) -> tuple[list[Any], list[str]]:
    """What a legend of all these panels holds: each label once, one that begins with an underscore
    too.
    """
    parts = [one for ax in axes for one in (*ax.get_children(), *ax.containers)]
    drawn = [one for one in parts if isinstance(one, Line2D | Collection | Container)]
    handles = {one.get_label(): one for one in drawn if not UNNAMED.fullmatch(one.get_label())}
    return list(handles.values()), list(handles)


def wrap(text: str, width: float, size: float) -> str:
    """Break text into lines no wider than so many inches at this type size (a letter is about 0.58
    of its height).

    A last word of one character, as in "position 0", stays with the one before it.
    """
    whole = re.sub(r" (?=.$)", "\N{NO-BREAK SPACE}", text)
    lines = textwrap.fill(whole, int(width * 72 / (0.58 * size)), break_on_hyphens=False)
    return lines.replace("\N{NO-BREAK SPACE}", " ")


def small_print(figure: Figure, lines: list[str]) -> None:
    """What the figure was made from, in added height below everything: no figure travels without
    its origin.
    """
    text = "\n".join(wrap(line, figure.get_figwidth() - 0.1, SMALL_PRINT) for line in lines)
    figure.set_figheight(figure.get_figheight() + 1.4 * SMALL_PRINT / 72 * len(text.splitlines()))
    figure.supxlabel(text, x=0.01, ha="left", fontsize=SMALL_PRINT, color="0.25", linespacing=1.3)
