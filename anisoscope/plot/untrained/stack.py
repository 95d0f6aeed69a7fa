"""What a stack of untrained blocks makes of a common bias: one line per norm of the bias, over the blocks."""

import numpy as np
import xarray as xr
from matplotlib.cm import ScalarMappable
from matplotlib.colors import SymLogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from anisoscope.plot import rulers, style
from anisoscope.plot.untrained.panels import RELATIVE, caption, choices_of_rows, kinds, measured

COLUMNS = {
    "cosine_out": "mean cosine out",
    "norm_out": "mean norm out",
    "score_std_within": "deviation in rows",
    "attention_entropy": "entropy (nat)",
}


def build(results: xr.Dataset) -> Figure | None:
    if "input" not in results.target or results.sizes["block"] == 1:
        return None
    rows = list(kinds(results.sel(target="input"), "norm_order", "mask", "embedding"))
    norms = results.relative_norm.values
    positive = norms[norms > 0] if (norms > 0).any() else [1.0]
    scale = SymLogNorm(linthresh=min(positive), linscale=0.5, vmin=0, vmax=max(positive), base=10)
    colours = ScalarMappable(scale, style.shades())
    figure = style.new(style.PAGE, 0.8 + 1.45 * len(rows))
    axes = figure.subplots(len(rows), len(COLUMNS), sharex=True, squeeze=False)
    for row, (words, table) in zip(axes, rows, strict=True):
        for ax, name in zip(row, COLUMNS, strict=True):
            for norm in norms:
                chosen = table.sel(relative_norm=norm)
                measured(ax, chosen.block.values, chosen, name, color=colours.to_rgba(norm), linewidth=1.1)
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
            if name in ("norm_out", "score_std_within"):
                rulers.logarithmic(ax.yaxis)
        row[3].set_ylim(0, np.log(choices_of_rows(results, str(table.mask.values))).mean() * 1.08)
        row[0].set_ylabel(words, fontweight="bold")
    for ax, title in zip(axes[0], COLUMNS.values(), strict=True):
        ax.set_title(title)
    for ax in axes[-1]:
        ax.set_xlabel("block")
    bar = figure.colorbar(colours, ax=axes, label=RELATIVE, aspect=60, fraction=0.03, format=rulers.Powers())
    bar.outline.set_visible(False)
    figure.suptitle("A common bias through a stack of untrained blocks")
    caption(
        figure,
        results,
        "Rows with a common bias on their way through a stack of untrained blocks: a line for each norm.",
    )
    return figure
