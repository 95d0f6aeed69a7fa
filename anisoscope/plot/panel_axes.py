"""Axes and color bars shared by figures: training steps, blocks, layers, and limits."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, SymLogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator, StrMethodFormatter

from anisoscope.plot import style

RELATIVE_DEPTH = "relative depth (0 = embedding)"
LAYER_LABEL = "layer (0 = embedding)"
SHORT_AXIS = 30  # ratio of its ends: a shorter log axis has numbers between decades


def fit_limits(axes: Iterable[Axes], zero: bool = False) -> None:
    """Set the limits that panels share; a band is cut beyond twice the span of the lines.

    Zero is included if requested or if the lines come close to it: as the lower edge, or as a line
    where values reach it.
    """
    axes = list(axes)
    lines = _line_y_values(axes)
    if not lines.size:
        for ax in axes:
            ax.set_ylim(0, 1)  # there are no values
        return
    least, most = lines.min(), lines.max()
    span = (most - least) or abs(most) or 1.0
    low = max(min(ax.dataLim.y0 for ax in axes), least - 2 * span)
    high = min(max(ax.dataLim.y1 for ax in axes), most + 2 * span)
    if zero := zero or least < most / 2 or most <= 0:
        low, high = min(low, 0.0), max(high, 0.0)
    edge, margin = zero and low == 0 < least, 0.05 * ((high - low) or span)
    for ax in axes:
        ax.set_ylim(0 if edge else low - margin, high + margin)
        if zero and not edge:
            ax.axhline(0, color="0.6", linewidth=0.7, zorder=1)


def fit_logarithmic(axes: Sequence[Axes]) -> None:
    """Set shared logarithmic limits; the lines decide, since a band may reach down to 0."""
    values = _line_y_values(axes)
    values = values[values > 0]
    for ax in axes if values.size else ():
        ax.set(yscale="log", ylim=(values.min() / 1.3, values.max() * 1.3))
        ax.yaxis.set_minor_locator(NullLocator())
        number_decades(ax.yaxis)


def _line_y_values(axes: Iterable[Axes]) -> np.ndarray:
    """Collect the finite heights of lines; those of `axvline` are shares of the panel."""
    lines = [(line, ax.transData) for ax in axes for line in ax.lines]
    values = [
        np.ravel(line.get_ydata()).astype(float)
        for line, data in lines
        if line.get_transform().contains_branch_seperately(data)[1]
    ]
    heights = np.concatenate([np.empty(0), *values])
    return heights[np.isfinite(heights)]


def rank_axis(ax: Axes, ranks: np.ndarray) -> None:
    """Show ranks of neighbors on a log axis."""
    ax.set_xscale("log", base=2)
    ax.set_xticks(ranks, [str(rank) for rank in ranks])
    ax.set_xlabel("rank k of the neighbor")


def name_axis(ax: Axes, name: str, labels: Sequence[str]) -> None:
    """Label an axis in words, or layers by name; with many labels, every second or third."""
    every = np.arange(0, len(labels), -(-len(labels) // 12))
    ax.set_xticks(every, [str(labels[place]).replace(" ", "\n") for place in every])
    ax.set_xlabel(name)


def mark_empty(ax: Axes, reason: str) -> None:
    """Write in an empty panel why it has no curve."""
    if not ax.lines:
        look = {"transform": ax.transAxes, "color": "0.4", "fontsize": style.SMALL_FONT}
        ax.text(0.5, 0.5, reason, ha="center", **look)
        ax.grid(visible=False)
        ax.set(xticks=[], yticks=[])
        ax.spines[["left", "bottom"]].set_visible(False)


def logarithmic(*axes: Axis) -> None:
    """Make axes logarithmic, with plain numbers at the decades."""
    for axis in axes:
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        number_decades(axis)


def number_decades(axis: Axis) -> None:
    """Write the numbers of a log axis in plain text (style.RC), of a short axis more of them."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1,) if high > SHORT_AXIS * low else (1, 2, 3, 5)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def step_axis(ax: Axes, last: int) -> None:
    """Show training steps on a log axis that also has room for step 0."""
    ax.set_xscale("symlog", linthresh=1, linscale=0.5)
    ax.set_xlim(-0.25, max(last, 1) * 1.3)
    ticks = _decades(last)
    ax.set_xticks(ticks, [_short(tick) for tick in ticks])
    ax.set_xticks([], minor=True)
    ax.set_xlabel("training step")


def step_colors(last: int) -> ScalarMappable:
    """Map training steps to colors, on the scale of `step_axis`."""
    scale = SymLogNorm(linthresh=1, linscale=0.5, vmin=0, vmax=max(last, 1), base=10)
    return ScalarMappable(scale, style.depth_colormap())


def step_bar(figure: Figure, colors: ScalarMappable, axes: np.ndarray) -> None:
    """Add a color bar with the last step, without a decade that would touch it."""
    last = int(colors.norm.vmax)
    ticks = [*(tick for tick in _decades(last) if 3 * tick <= last), last]
    add_color_bar(figure, colors, axes, "training step", ticks, [_short(tick) for tick in ticks])


def patch_colors(count: int, first: int = 0) -> ScalarMappable:
    """Map layers (from 0) or blocks (from 1) to colors, one flat patch each."""
    edges = np.arange(count + 1) + first - 0.5
    return ScalarMappable(BoundaryNorm(edges, 256), style.depth_colormap())


def patch_bar(
    figure: Figure, colors: ScalarMappable, axes: np.ndarray, words: str = LAYER_LABEL
) -> None:
    """Add a color bar of layers or blocks by number; of many only some."""
    patches = (colors.norm.boundaries[:-1] + 0.5).astype(int).tolist()
    ticks = patches[:: math.ceil(len(patches) / 8)]
    add_color_bar(figure, colors, axes, words, ticks, [str(tick) for tick in ticks])


def add_color_bar(
    figure: Figure,
    colors: ScalarMappable,
    axes: np.ndarray,
    words: str,
    ticks: Sequence[float],
    names: list[str],
) -> None:
    """Add a color bar to the right of all these panels, spanning their height."""
    look = {"aspect": 16 * len(axes), "fraction": 0.05, "pad": 0.02}
    added = figure.colorbar(colors, ax=axes, label=words, **look)
    added.set_ticks(ticks, labels=names)
    added.minorticks_off()
    added.outline.set_visible(False)


def _decades(last: int) -> list[int]:
    return [0, *(10**power for power in range(int(math.log10(max(last, 1))) + 1))]


def _short(step: int) -> str:
    for size, letter in ((10**6, "M"), (10**3, "k")):
        if step >= size:
            return f"{step / size:.3g}{letter}"
    return str(step)
