"""Mean cosine before and after untrained blocks under a common bias (Anisotropy Is Inherent to Self-Attention, 6a)."""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from figures import style
from figures.untrained.panels import RELATIVE, bias_axis, footer, kinds, measured


def build(results: xr.Dataset) -> Figure | None:
    if "input" not in results.target:
        return None
    rows = list(kinds(results.sel(target="input"), "mask", "embedding"))
    orders = results.norm_order.size
    blocks = results.block.values
    figure = style.new(style.PAGE, 0.5 + 2.2 * len(rows))
    axes = figure.subplots(len(rows), 1 + orders, squeeze=False)
    colours = style.block_colours(len(blocks))
    for row, (words, table) in zip(axes, rows, strict=True):
        alike = table.isel(norm_order=0)  # the input is the same for both
        norms = alike.relative_norm.values
        row[0].plot(norms, alike.cosine_in_predicted.values, color="0.3", linewidth=0.9, label="closed form")
        look = {"color": style.OKABE_ITO[0], "marker": "o", "markersize": 3, "linestyle": "none"}
        measured(row[0], norms, alike, "cosine_in", label="measured", **look)
        row[0].set(ylabel="mean cosine in", title=f"input, {words}")
        bias_axis(row[0], norms, RELATIVE)
        row[0].legend(loc="lower right")
        for ax, (order, kind) in zip(row[1:], kinds(table, "norm_order"), strict=True):
            ax.plot([0, 1], [0, 1], color="0.7", linewidth=0.8, zorder=1)
            for block in blocks:
                color = style.OKABE_ITO[1] if len(blocks) == 1 else colours.to_rgba(block)
                after = kind.sel(block=block)
                measured(ax, kind.cosine_in_mean.values, after, "cosine_out", color=color, marker="o", markersize=3)
            ax.set(title=f"{order}, {words}", xlabel="mean cosine in", ylabel="mean cosine out")
            lowest = min(0.0, float(np.nanmin(kind.cosine_out_low.fillna(0))))
            ax.set(xlim=(-0.03, 1.03), ylim=(lowest - 0.03, 1.03), aspect="auto")
    if len(blocks) > 1:
        style.block_bar(figure, colours, axes)
    depth = "an untrained block" if len(blocks) == 1 else f"1 to {len(blocks)} untrained blocks"
    figure.suptitle(f"Mean cosine before and after {depth}, as a common bias grows")
    footer(figure, results)
    return figure
