"""The same bias on the input, on queries, on keys, or on both: which of them sharpens attention?"""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from figures import style
from figures.untrained.panels import below_a_strip, bias_axis, footer, keys_of_rows, kinds, measured

COLUMNS = {"score_std": "deviation of all scores", "score_std_within": "deviation within rows"}
TARGETS = {"input": "input", "queries": "queries", "keys": "keys", "both": "queries and keys"}
SIZES = (3, 7, 5, 3)  # rings in rings: the deviations of two targets are often the same
LOOKS = {
    target: look | {"markersize": size} for (target, look), size in zip(style.inks(TARGETS).items(), SIZES, strict=True)
}


def build(results: xr.Dataset) -> Figure | None:
    if results.sizes["target"] == 1:
        return None
    rows = list(kinds(results.isel(block=0), "norm_order", "mask", "embedding"))
    figure = style.new(style.PAGE, 0.9 + 1.6 * len(rows))
    strip, axes = below_a_strip(figure, len(rows), 3, 1.6)
    for row, (words, table) in zip(axes, rows, strict=True):
        norms = table.relative_norm.values
        for target in table.target.values.tolist():
            look = LOOKS[target] | {"markerfacecolor": "none"}
            kind = table.sel(target=target)
            for ax, name in zip(row, COLUMNS, strict=False):
                ax.plot(norms, kind[f"{name}_predicted"].values, color=look["color"], linewidth=0.9)
                measured(ax, norms, kind, name, linestyle="none", label=f"bias on {TARGETS[target]}", **look)
            measured(row[2], norms, kind, "attention_entropy", **look)
        row[2].axhline(
            even := np.log(keys_of_rows(results, str(table.mask.values))).mean(), color="0.5", linestyle="--"
        )
        row[2].set_ylim(0, even * 1.08)
        row[0].set_ylabel(words, fontweight="bold")
        for ax in row:
            bias_axis(ax, norms, "relative norm of the bias" if ax in axes[-1] else "")
        for ax in row[:2]:
            ax.set_yscale("log")
    for ax, title in zip(axes[0], (*COLUMNS.values(), "attention entropy (nat)"), strict=True):
        ax.set_title(title)
    axes[0, 0].plot([], [], color="0.3", linewidth=0.9, label="closed form")
    strip.legend(*axes[0, 0].get_legend_handles_labels(), loc="center", ncols=5)
    figure.suptitle("An untrained block with a bias on its input, or on queries and keys alone")
    footer(figure, results)
    return figure
