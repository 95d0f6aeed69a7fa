"""Does a common bias of the input sharpen the attention of an untrained block? Measured, and in closed form."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures import style
from figures.untrained.panels import RELATIVE, below_a_strip, bias_axis, footer, keys_of_rows, kinds, measured

DEVIATIONS = {
    "score_std": "all scores",
    "score_std_head": "scores within heads",
    "score_std_within": "scores within rows",
}
WEIGHTS = ("attention_max", "attention_min")


def build(results: xr.Dataset) -> Figure | None:
    if "input" not in results.target:
        return None
    rows = list(kinds(results.sel(target="input").isel(block=0), "norm_order", "mask", "embedding"))
    figure = style.new(style.PAGE, 0.9 + 1.7 * len(rows))
    strip, axes = below_a_strip(figure, len(rows), 3, 1.7)
    for row, (words, table) in zip(axes, rows, strict=True):
        norms = table.relative_norm.values
        _deviations(row[0], table)
        _sharpness(row[1:], table, keys_of_rows(results, str(table.mask.values)))
        row[0].set_ylabel(words, fontweight="bold")
        for ax in row:
            bias_axis(ax, norms, RELATIVE if ax in axes[-1] else "")
    for ax, title in zip(
        axes[0], ("deviation of scores", "attention entropy (nat)", "attention / uniform attention"), strict=True
    ):
        ax.set_title(title)
    handles = {label: handle for ax in axes[0] for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    strip.legend(handles.values(), handles.keys(), loc="center", ncols=4)
    figure.suptitle("Sharpness of an untrained block as a common bias of its input grows")
    footer(figure, results)
    return figure


def _deviations(ax: Axes, table: xr.Dataset) -> None:
    norms = table.relative_norm.values
    for (name, label), color, marker in zip(DEVIATIONS.items(), style.OKABE_ITO, style.MARKERS, strict=False):
        ax.plot(norms, table[f"{name}_predicted"].values, color=color, linewidth=0.9)
        look = {"color": color, "marker": marker, "linestyle": "none", "markersize": 3}
        measured(ax, norms, table, name, label=label, **look)
    ax.plot([], [], color="0.3", linewidth=0.9, label="closed form")
    ax.set_yscale("log")


def _sharpness(panels: np.ndarray, table: xr.Dataset, keys: np.ndarray) -> None:
    norms, entropy, weight = table.relative_norm.values, np.log(keys).mean(), (1 / keys).mean()
    for ax, even in zip(panels, (entropy, 1.0), strict=True):
        ax.axhline(even, color="0.5", linewidth=0.8, linestyle="--", label="uniform attention")
    look = {"color": style.OKABE_ITO[3], "marker": "o", "markersize": 3}
    measured(panels[0], norms, table, "attention_entropy", label="mean entropy of rows", **look)
    panels[0].set_ylim(0, entropy * 1.08)
    for name, color, marker in zip(WEIGHTS, style.OKABE_ITO[4:], "v^", strict=False):
        look = {"color": color, "marker": marker, "markersize": 3}
        label = f"{table[name].attrs['long_name']} of a row"
        measured(panels[1], norms, table / weight, name, label=label, **look)
    if float(table.attention_max_mean.max()) > 3 * weight:
        panels[1].set_yscale("log")
        panels[1].set_ylim(bottom=1e-4)
