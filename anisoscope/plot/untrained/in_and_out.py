"""Mean cosine and mean norm before and after untrained blocks (Anisotropy Is Inherent to Self-Attention, 6)."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anisoscope.plot import rulers, style
from anisoscope.plot.untrained.panels import (
    RELATIVE,
    bias_axis,
    caption,
    closed_form,
    kinds,
    measured,
    values_of,
    words,
)


def cosine(results: xr.Dataset) -> Figure | None:
    """How alike are the rows that leave a block, as a common bias makes those that enter it alike? (6a)"""
    if "input" not in results.target:
        return None
    rows = list(kinds(results.sel(target="input"), "mask", "embedding"))
    blocks = results.block.values
    figure = style.new(style.PAGE, 0.5 + 2.2 * len(rows))
    axes = figure.subplots(len(rows), 1 + results.norm_order.size, squeeze=False)
    colours = rulers.block_colours(len(blocks))
    for row, (text, table) in zip(axes, rows, strict=True):
        alike = table.isel(norm_order=0)  # the input is the same for both
        norms = alike.relative_norm.values
        closed_form(row[0], norms, alike, "cosine_in", color="0.3", label="closed form")
        look = {"color": style.OKABE_ITO[0], "marker": "o", "markersize": 3, "linestyle": "none"}
        measured(row[0], norms, alike, "cosine_in", label="measured", **look)
        row[0].set(ylabel=words(results, "cosine_in"), title=f"input, {text}")
        bias_axis(row[0], norms, RELATIVE)
        row[0].legend(loc="upper left")
        for ax, (order, kind) in zip(row[1:], kinds(table, "norm_order"), strict=True):
            ax.plot([0, 1], [0, 1], color="0.7", linewidth=0.8, zorder=1)
            for block in blocks:
                color = style.OKABE_ITO[1] if len(blocks) == 1 else colours.to_rgba(block)
                after, before = kind.sel(block=block), values_of(kind, "cosine_in", "mean")
                measured(ax, before, after, "cosine_out", color=color, marker="o", markersize=3)
            ax.set(title=f"{order}, {text}", xlabel=words(results, "cosine_in"), ylabel=words(results, "cosine_out"))
            lowest = float(np.nanmin([0.0, *values_of(kind, "cosine_out", "low").ravel()]))
            ax.set(xlim=(-0.03, 1.03), ylim=(lowest - 0.03, 1.03), aspect="auto")
    if len(blocks) > 1:
        rulers.block_bar(figure, colours, axes)
    depth = "an untrained block" if len(blocks) == 1 else f"1 to {len(blocks)} untrained blocks"
    figure.suptitle(f"Mean cosine before and after {depth}, as a common bias grows")
    caption(figure, results, f"Mean cosine between the rows that enter and that leave {depth}; grey: unchanged.")
    return figure


def norm(results: xr.Dataset) -> Figure | None:
    """How long are the rows that leave a block, and from which bias on are they shorter than those that enter? (6b)"""
    if "input" not in results.target:
        return None
    rows = list(kinds(results.sel(target="input"), "mask", "embedding"))
    blocks = results.block.values
    figure = style.new(style.PAGE, 0.5 + 2.5 * len(rows))
    axes = figure.subplots(len(rows), results.norm_order.size, squeeze=False)
    colours = rulers.block_colours(len(blocks))
    for row, (text, table) in zip(axes, rows, strict=True):
        for ax, (order, kind) in zip(row, kinds(table, "norm_order"), strict=True):
            norms = values_of(kind, "norm_in", "mean")
            ends = [norms.min() * 0.8, norms.max() * 1.25]
            ax.plot(ends, ends, color="0.7", linewidth=0.8, zorder=1, label="unchanged")
            for block in blocks:
                color = style.OKABE_ITO[1] if len(blocks) == 1 else colours.to_rgba(block)
                measured(ax, norms, kind.sel(block=block), "norm_out", color=color, marker="o", markersize=3)
            _fixed_point(ax, kind.isel(block=0))
            rulers.logarithmic(ax.xaxis, ax.yaxis)
            ax.set(title=f"{order}, {text}".replace("\n", " "))
            ax.set(xlabel=words(results, "norm_in"), ylabel=words(results, "norm_out"))
            ax.legend(loc="upper left")
    if len(blocks) > 1:
        rulers.block_bar(figure, colours, axes)
    depth = "an untrained block" if len(blocks) == 1 else f"1 to {len(blocks)} untrained blocks (star: after one)"
    figure.suptitle(f"Mean norm before and after {depth}, as a common bias grows")
    caption(figure, results, f"Mean norm of the rows that enter and that leave {depth}; grey: unchanged.")
    return figure


def _fixed_point(ax: Axes, after: xr.Dataset) -> None:
    """A star where the lines cross. Nearly parallel ones cross anywhere, if at all: seeds must agree on a place."""
    point, low, high = (float(values_of(after, "fixed_point", end)) for end in ("mean", "low", "high"))
    if np.isnan(point):
        ax.plot([], [], linestyle="none", label="no fixed point of all seeds")
    elif low <= 0:
        ax.plot([], [], linestyle="none", label="no fixed point that seeds agree on")
    else:
        spread = f" ± {high - point:.1g}" if high - point >= 0.005 * point else ""
        look = {"marker": "*", "markersize": 10, "color": "black", "linestyle": "none"}
        ax.plot(point, point, label=f"fixed point {point:.3g}{spread}", **look)
