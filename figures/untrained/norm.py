"""Mean norm before and after untrained blocks under a common bias (Anisotropy Is Inherent to Self-Attention, 6b)."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures import style
from figures.untrained.panels import footer, kinds, measured, words


def build(results: xr.Dataset) -> Figure | None:
    if "input" not in results.target:
        return None
    rows = list(kinds(results.sel(target="input"), "mask", "embedding"))
    blocks = results.block.values
    figure = style.new(style.PAGE, 0.5 + 2.5 * len(rows))
    axes = figure.subplots(len(rows), results.norm_order.size, squeeze=False)
    colours = style.block_colours(len(blocks))
    for row, (name, table) in zip(axes, rows, strict=True):
        for ax, (order, kind) in zip(row, kinds(table, "norm_order"), strict=True):
            norms = kind.norm_in_mean.values
            ends = [norms.min() * 0.8, norms.max() * 1.25]
            ax.plot(ends, ends, color="0.7", linewidth=0.8, zorder=1, label="unchanged")
            for block in blocks:
                color = style.OKABE_ITO[1] if len(blocks) == 1 else colours.to_rgba(block)
                after = kind.sel(block=block)
                measured(ax, norms, after, "norm_out", color=color, marker="o", markersize=3)
            _fixed_point(ax, kind.isel(block=0))
            ax.set(xscale="log", yscale="log", title=f"{order}, {name}".replace("\n", " "))
            ax.set(xlabel=words(results, "norm_in"), ylabel=words(results, "norm_out"))
            ax.legend(loc="upper left")
    if len(blocks) > 1:
        style.block_bar(figure, colours, axes)
    depth = "an untrained block" if len(blocks) == 1 else f"1 to {len(blocks)} untrained blocks (star: after one)"
    figure.suptitle(f"Mean norm before and after {depth}, as a common bias grows")
    footer(figure, results)
    return figure


def _fixed_point(ax: Axes, after: xr.Dataset) -> None:
    """A star where the lines cross. Nearly parallel ones cross anywhere, if at all: seeds must agree on a place."""
    point, low, high = (float(after[f"fixed_point_{suffix}"]) for suffix in ("mean", "low", "high"))
    if np.isnan(point):
        ax.plot([], [], linestyle="none", label="no fixed point of all seeds")
    elif low <= 0:
        ax.plot([], [], linestyle="none", label="no fixed point that seeds agree on")
    else:
        spread = f" ± {high - point:.1g}" if high - point >= 0.005 * point else ""
        look = {"marker": "*", "markersize": 10, "color": "black", "linestyle": "none"}
        ax.plot(point, point, label=f"fixed point {point:.3g}{spread}", **look)
