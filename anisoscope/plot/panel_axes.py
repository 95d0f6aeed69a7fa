"""Axes and colour bars that several figures have: training steps, blocks, layers; where zero is
drawn.
"""

import math
import re
from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, Normalize, SymLogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    LogFormatterSciNotation,
    LogLocator,
    MaxNLocator,
    NullLocator,
    ScalarFormatter,
)

from anisoscope.plot import style
from anisoscope.plot.style import shades

DEPTH = "relative depth (0 = embedding)"
LAYER = "layer (0 = embedding)"
RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


class Powers(LogFormatterSciNotation):
    """Numbers of a log axis as matplotlib writes them, in plain text: 10⁻², 2×10⁻²."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        written = re.fullmatch(
            r"\$\\mathdefault\{(.*?)(?:\^\{(-?\d+)\})?\}\$", super().__call__(x, pos)
        )
        return (
            written[1].replace(r"\times", "×") + (written[2] or "").translate(RAISED)
            if written
            else ""
        )


def power(exponent: int) -> str:
    """This power of ten in plain text."""
    return f"10{str(exponent).translate(RAISED)}"


def fit(axes: Iterable[Axes], zero: bool = False) -> None:
    """Limits of axes of one scale that serve their lines: a band is cut where it reaches beyond
    them twice their span.

    Zero is among them, as a line, where it is asked for or the lines come near it.
    """
    axes = list(axes)
    values = [line.get_ydata() for ax in axes for line in ax.lines if _of_data(ax, line)]
    lines = np.concatenate([np.ravel(one) for one in values] or [np.empty(0)])
    lines = lines[np.isfinite(lines)].astype(float)
    if not lines.size:
        for ax in axes:
            ax.set_ylim(0, 1)  # there is nothing to serve
        return
    least, most = lines.min(), lines.max()
    span = (most - least) or abs(most) or 1.0
    low = max(min(ax.dataLim.y0 for ax in axes), least - 2 * span)
    high = min(max(ax.dataLim.y1 for ax in axes), most + 2 * span)
    if zero or least < most / 2 or most <= 0:
        low, high = min(low, 0.0), max(high, 0.0)
        for ax in axes:
            ax.axhline(0, color="0.6", linewidth=0.7, zorder=1)
    margin = 0.05 * ((high - low) or span)
    for ax in axes:
        ax.set_ylim(low - margin, high + margin)


def fit_logarithmic(axes: Sequence[Axes]) -> None:
    """One scale for all, on logarithms; the lines decide, since a band may reach down to 0."""
    values = np.concatenate([line.get_ydata() for ax in axes for line in ax.lines])
    values = values[np.isfinite(values) & (values > 0)]
    for ax in axes if values.size else ():
        ax.set_yscale("log")
        ax.set_ylim(values.min() / 1.3, values.max() * 1.3)
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_formatter(ScalarFormatter())


def rank_axis(ax: Axes, ranks: np.ndarray) -> None:
    """Ranks of neighbors on a log axis."""
    ax.set_xscale("log", base=2)
    ax.set_xticks(ranks, [str(rank) for rank in ranks])
    ax.set_xlabel("neighbour rank k (from r_2k / r_k)")


def name_axis(ax: Axes, name: str, labels: Sequence[str]) -> None:
    """Labels in words, or layers by name; of many, every other or third."""
    every = np.arange(0, len(labels), -(-len(labels) // 12))
    ax.set_xticks(every, [str(labels[place]).replace(" ", "\n") for place in every])
    ax.set_xlabel(name)


def ground(ax: Axes, none: str) -> None:
    """An empty panel says why it has no curve."""
    if any(np.isfinite(line.get_ydata()).any() for line in ax.lines):
        return
    for line in list(ax.lines):
        line.remove()
    ax.text(0.5, 0.5, none, transform=ax.transAxes, ha="center", color="0.4", fontsize=style.SMALL)
    ax.grid(visible=False)
    ax.set(xticks=[], yticks=[])
    ax.spines[["left", "bottom"]].set_visible(False)


def _of_data(ax: Axes, line: Line2D) -> bool:
    """Whether its heights are values: those of `axvline` are shares of the panel."""
    return line.get_transform().contains_branch_seperately(ax.transData)[1]


def logarithmic(*axes: Axis) -> None:
    """Log axes; all text is plain (style.RC), so their numbers must be too."""
    for axis in axes:
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        axis.set_major_formatter(Powers())
        axis.set_minor_formatter(Powers())


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
    return ScalarMappable(
        SymLogNorm(linthresh=1, linscale=0.5, vmin=0, vmax=max(last, 1), base=10), shades()
    )


def step_bar(figure: Figure, colours: ScalarMappable, axes: np.ndarray) -> None:
    """Decades and the last step, without a decade that would touch it."""
    last = int(colours.norm.vmax)
    ticks = [*(tick for tick in _decades(last) if 3 * tick <= last), last]
    bar(figure, colours, axes, "training step", ticks, [_short(tick) for tick in ticks])


def block_colours(blocks: int) -> ScalarMappable:
    """Blocks 1 .. N as colours, one flat patch each."""
    return ScalarMappable(BoundaryNorm(np.arange(blocks + 1) + 0.5, 256), shades())


def layer_colours(layers: int) -> ScalarMappable:
    """Layers 0 (the embedding) .. N - 1 as colours, one flat patch each."""
    return ScalarMappable(BoundaryNorm(np.arange(layers + 1) - 0.5, 256), shades())


def patch_bar(
    figure: Figure, colours: ScalarMappable, axes: np.ndarray, words: str = LAYER
) -> None:
    """Layers, or what `words` says, by their numbers; of many some."""
    patches = (colours.norm.boundaries[:-1] + 0.5).astype(int).tolist()
    ticks = patches[:: math.ceil(len(patches) / 8)]
    bar(figure, colours, axes, words, ticks, [str(tick) for tick in ticks])


def bar(
    figure: Figure,
    colours: ScalarMappable,
    axes: np.ndarray,
    words: str,
    ticks: Sequence[float],
    names: list[str],
) -> None:
    """A colour bar right of all these panels, as tall as they are together."""
    bar = figure.colorbar(
        colours, ax=axes, label=words, aspect=16 * len(axes), fraction=0.05, pad=0.02
    )
    bar.set_ticks(ticks, labels=names)
    bar.minorticks_off()
    bar.outline.set_visible(False)


def similarities(
    figure: Figure, axes: np.ndarray, maps: Iterable[np.ndarray], aspect: str = "equal"
) -> None:
    """Every layer beside every other as heat maps of one scale, from 0 to 1, with its bar."""
    colours = ScalarMappable(Normalize(0, 1), "viridis")
    for ax, values in zip(axes.flat, maps, strict=True):
        ax.imshow(values, cmap=colours.cmap, norm=colours.norm, origin="lower", aspect=aspect)
        ax.grid(False)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    ticks = (0, 0.2, 0.4, 0.6, 0.8, 1)
    bar(figure, colours, axes, "similarity (1: the same)", ticks, [f"{tick:g}" for tick in ticks])


def rows_of_runs(labels: Sequence[str], titles: Sequence[str]) -> tuple[Figure, np.ndarray]:
    """A row for each run and a column for each quantity over training; a column has one scale: rows
    compare.
    """
    figure = style.new(style.PAGE, 1.0 + 1.4 * len(labels))
    axes = figure.subplots(len(labels), len(titles), sharex=True, sharey="col", squeeze=False)
    for ax, label in zip(axes[:, 0], labels, strict=True):
        ax.set_ylabel(label, fontweight="bold")
    for ax, title in zip(axes[0], titles, strict=True):
        ax.set_title(
            style.wrap(title, 0.7 * style.PAGE / len(titles), style.SMALL), fontsize=style.SMALL
        )
    return figure, axes


def fit_columns(axes: np.ndarray) -> None:
    """When all is drawn: a scale for each column, and what lies below the curves named once."""
    for column in axes.T:
        fit(column)
    for ax in axes[:-1].flat:
        ax.set_xlabel("")
        ax.tick_params(labelbottom=False)


def _decades(last: int) -> list[int]:
    return [0, *(10**power for power in range(int(math.log10(max(last, 1))) + 1))]


def _short(step: int) -> str:
    for size, letter in ((10**6, "M"), (10**3, "k")):
        if step >= size:
            return f"{step / size:.3g}{letter}"
    return str(step)
