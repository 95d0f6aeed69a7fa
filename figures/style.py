"""The look that all figures share: type, colours, the step axis, bands, the footer; files that repeat to the byte."""

import io
import math
import pathlib
import re
import textwrap
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from itertools import cycle
from typing import Any

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, Colormap, LinearSegmentedColormap, SymLogNorm
from matplotlib.figure import Figure

from figures.run import Run, provenance
from workdir import files

PAGE = 6.9  # inches: the full width of a two-column paper
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
INKS = (*OKABE_ITO, "#7F7F7F", "#6A3D9A")  # grids have nine lines and more
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
FOOTER_SIZE = 5.5
RC = {
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same shapes on every machine
    "font.size": 8,
    "axes.titlesize": 8,
    "figure.titlesize": 9,
    "legend.fontsize": 7,
    "legend.title_fontsize": 7,
    "legend.frameon": False,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
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
}


def context() -> AbstractContextManager[None]:
    """Draw and save inside this: matplotlib's defaults with the settings above, whatever the user's own are."""
    return matplotlib.style.context(RC, after_reset=True)


def new(width: float, height: float) -> Figure:
    """A figure outside pyplot, with no global state, whose legends and footer take their own space."""
    return Figure(figsize=(width, height), layout="constrained")


def inks(runs: Iterable[str]) -> dict[str, dict[str, str]]:
    """Colour and marker of each run, by its place among all runs: the same in every figure, and told apart in grey."""
    looks = zip(cycle(INKS), cycle(MARKERS), strict=False)  # 9 and 7 are coprime: 63 different pairs
    return {run: {"color": color, "marker": marker} for run, (color, marker) in zip(runs, looks, strict=False)}


def shades() -> Colormap:
    """Viridis without its last tenth, too pale on white paper."""
    return LinearSegmentedColormap.from_list("shades", matplotlib.colormaps["viridis"](np.linspace(0, 0.9, 256)))


def banded(ax: Axes, x: np.ndarray, mean: np.ndarray, low: np.ndarray, high: np.ndarray, **look: Any) -> None:
    """A line with its interval as band; where nothing was resampled there is none (NaN), so no band."""
    ax.plot(x, mean, **look)
    if np.isfinite(low).any():
        ax.fill_between(x, low, high, color=look["color"], alpha=0.2, linewidth=0)


def ground(axes: Iterable[Axes]) -> None:
    """Zero, as a line on axes of one scale, unless all that they hold keeps far from it: it would flatten the rest."""
    axes = list(axes)
    low, high = min(ax.dataLim.y0 for ax in axes), max(ax.dataLim.y1 for ax in axes)
    if low < high / 2 or high <= 0:
        for ax in axes:
            ax.axhline(0, color="0.7", linewidth=0.6, zorder=1)


def title(figure: Figure, text: str) -> None:
    """In one line, or with what is in brackets on a second."""
    fits = "\n" not in wrap(text, figure.get_figwidth(), RC["figure.titlesize"])
    figure.suptitle(text if fits else text.replace(" (", "\n("))


def legend(axes: np.ndarray) -> None:
    """The runs of all panels, right of the first row, where no line can pass under them."""
    found = [ax.get_legend_handles_labels() for ax in axes.flat]
    handles = {label: handle for pair in found for handle, label in zip(*pair, strict=True)}
    corner = np.atleast_2d(axes)[0, -1]
    corner.legend(handles.values(), handles.keys(), loc="upper left", bbox_to_anchor=(1.02, 1), borderaxespad=0)


def step_axis(ax: Axes, last: int) -> None:
    """Training steps on a log axis that also has room for step 0."""
    ax.set_xscale("symlog", linthresh=1, linscale=0.5)
    ax.set_xlim(-0.25, max(last, 1) * 1.3)
    ticks = _decades(last)
    ax.set_xticks(ticks, [_short(tick) for tick in ticks])
    ax.set_xticks([], minor=True)
    ax.set_xlabel("training step")


def step_colours(last: int) -> ScalarMappable:
    """Training steps as colours, on the scale of `step_axis`."""
    return ScalarMappable(SymLogNorm(linthresh=1, linscale=0.5, vmin=0, vmax=max(last, 1), base=10), shades())


def step_bar(figure: Figure, colours: ScalarMappable, axes: np.ndarray) -> None:
    """Decades and the last step, without a decade that would touch it."""
    last = int(colours.norm.vmax)
    ticks = [*(tick for tick in _decades(last) if 3 * tick <= last), last]
    bar(figure, colours, axes, "training step", ticks, [_short(tick) for tick in ticks])


def block_colours(blocks: int) -> ScalarMappable:
    """Blocks 1 .. N as colours, one flat patch each."""
    return ScalarMappable(BoundaryNorm(np.arange(blocks + 1) + 0.5, 256), shades())


def block_bar(figure: Figure, colours: ScalarMappable, axes: np.ndarray) -> None:
    _patch_bar(figure, colours, axes, "block")


def layer_colours(layers: int) -> ScalarMappable:
    """Layers 0 (the embedding) .. N - 1 as colours, one flat patch each."""
    return ScalarMappable(BoundaryNorm(np.arange(layers + 1) - 0.5, 256), shades())


def layer_bar(figure: Figure, colours: ScalarMappable, axes: np.ndarray) -> None:
    _patch_bar(figure, colours, axes, "layer (0 = embedding)")


def _patch_bar(figure: Figure, colours: ScalarMappable, axes: np.ndarray, words: str) -> None:
    patches = (colours.norm.boundaries[:-1] + 0.5).astype(int).tolist()
    ticks = patches[:: math.ceil(len(patches) / 8)]
    bar(figure, colours, axes, words, ticks, [str(tick) for tick in ticks])


def bar(
    figure: Figure, colours: ScalarMappable, axes: np.ndarray, words: str, ticks: Sequence[float], names: list[str]
) -> None:
    """A colour bar right of all these panels, as tall as they are together."""
    bar = figure.colorbar(colours, ax=axes, label=words, aspect=16 * len(axes), fraction=0.05, pad=0.02)
    bar.set_ticks(ticks, labels=names)
    bar.minorticks_off()
    bar.outline.set_visible(False)


def _decades(last: int) -> list[int]:
    return [0, *(10**power for power in range(int(math.log10(max(last, 1))) + 1))]


def _short(step: int) -> str:
    for size, letter in ((10**6, "M"), (10**3, "k")):
        if step >= size:
            return f"{step / size:.3g}{letter}"
    return str(step)


def wrap(text: str, width: float, size: float) -> str:
    """Break text into lines no wider than so many inches at this type size (a letter is about 0.58 of its height).

    A last word of one character, as in "position 0", stays with the one before it.
    """
    whole = re.sub(r" (?=.$)", "\N{NO-BREAK SPACE}", text)
    lines = textwrap.fill(whole, int(width * 72 / (0.58 * size)), break_on_hyphens=False)
    return lines.replace("\N{NO-BREAK SPACE}", " ")


def footer(figure: Figure, runs: dict[str, Run]) -> None:
    """What the figure was made from: no figure travels without its origin."""
    small_print(figure, provenance(runs))


def small_print(figure: Figure, lines: list[str]) -> None:
    """In added height below everything."""
    text = "\n".join(wrap(line, figure.get_figwidth() - 0.1, FOOTER_SIZE) for line in lines)
    figure.set_figheight(figure.get_figheight() + 1.4 * FOOTER_SIZE / 72 * len(text.splitlines()))
    figure.supxlabel(text, x=0.01, ha="left", fontsize=FOOTER_SIZE, color="0.35", linespacing=1.3)


def save(figure: Figure | None, folder: pathlib.Path, name: str) -> list[pathlib.Path]:
    """Write name.png and name.pdf; each appears whole or not at all, and without a date, so the same twice.

    Where there is nothing to draw, those of an older measurement are removed.
    """
    paths = []
    for kind, metadata in (("png", None), ("pdf", {"CreationDate": None})):
        if figure is None:
            (folder / f"{name}.{kind}").unlink(missing_ok=True)
            continue
        content = io.BytesIO()
        figure.savefig(content, format=kind, metadata=metadata)
        figure.set_layout_engine("none")  # laid out once, by the first: both files have the same geometry
        path = folder / f"{name}.{kind}"
        files.write(path, content.getvalue())
        paths.append(path)
    return paths
