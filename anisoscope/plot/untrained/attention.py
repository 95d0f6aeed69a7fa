"""What a common bias makes of the attention of an untrained block: of its input, or of queries and keys alone."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anisoscope.plot import rulers, style
from anisoscope.plot.untrained.panels import (
    RELATIVE,
    bias_axis,
    caption,
    choices_of_rows,
    closed_form,
    kinds,
    measured,
    values_of,
)

ROWS = ("norm_order", "mask", "embedding")  # of panels: a row for each combination
DEVIATIONS = {
    "score_std": "all scores",
    "score_std_head": "scores within heads",
    "score_std_within": "scores within rows",
}
WEIGHTS = {"attention_max": "largest attention of a row", "attention_min": "smallest attention of a row"}
SHARPNESS = ("deviation of scores", "attention entropy (nat)", "attention / uniform attention")

BIASED = {"score_std": "deviation of all scores", "score_std_within": "deviation within rows"}
TARGETS = {"input": "input", "queries": "queries", "keys": "keys", "both": "queries and keys"}
SIZES = (3, 7, 5, 3)  # rings in rings: the deviations of two targets are often the same
LOOKS = {
    target: look | {"markersize": size} for (target, look), size in zip(style.inks(TARGETS).items(), SIZES, strict=True)
}


def sharpness(results: xr.Dataset) -> Figure | None:
    """Does a common bias of the input sharpen the attention of an untrained block? Measured, and in closed form."""
    if "input" not in results.target:
        return None
    rows = list(kinds(results.sel(target="input").isel(block=0), *ROWS))
    figure = style.new(style.PAGE, 0.9 + 1.7 * len(rows))
    strip, axes = style.below_a_strip(figure, len(rows), 3, 1.7)
    for row, (words, table) in zip(axes, rows, strict=True):
        _deviations(row[0], table)
        _sharpness(row[1:], table, choices_of_rows(results, str(table.mask.values)))
        row[0].set_ylabel(words, fontweight="bold")
        for ax in row:
            bias_axis(ax, table.relative_norm.values, RELATIVE if ax in axes[-1] else "")
    for ax, title in zip(axes[0], SHARPNESS, strict=True):
        ax.set_title(title)
    strip.legend(*style.entries(axes[0]), loc="center", ncols=4)
    figure.suptitle("Sharpness of an untrained block as a common bias of its input grows")
    shown = (
        "Scores and attention of an untrained block whose input rows all have one bias added; lines without marks are"
    )
    caption(figure, results, f"{shown} closed forms.")
    return figure


def _deviations(ax: Axes, table: xr.Dataset) -> None:
    norms = table.relative_norm.values
    for (name, label), color, marker in zip(DEVIATIONS.items(), style.OKABE_ITO, style.MARKERS, strict=False):
        closed_form(ax, norms, table, name, color=color)
        look = {"color": color, "marker": marker, "linestyle": "none", "markersize": 3}
        measured(ax, norms, table, name, label=label, **look)
    ax.plot([], [], color="0.3", linewidth=0.9, label="closed form")
    rulers.logarithmic(ax.yaxis)


def _sharpness(panels: np.ndarray, table: xr.Dataset, keys: np.ndarray) -> None:
    norms, entropy, weight = table.relative_norm.values, np.log(keys).mean(), (1 / keys).mean()
    for ax, even in zip(panels, (entropy, 1.0), strict=True):
        ax.axhline(even, color="0.5", linewidth=0.8, linestyle="--", label="uniform attention")
    look = {"color": style.OKABE_ITO[3], "marker": "o", "markersize": 3}
    measured(panels[0], norms, table, "attention_entropy", label="mean entropy of rows", **look)
    panels[0].set_ylim(0, entropy * 1.08)
    for (name, label), color, marker in zip(WEIGHTS.items(), style.OKABE_ITO[4:], "v^", strict=False):
        look = {"color": color, "marker": marker, "markersize": 3}
        measured(panels[1], norms, table / weight, name, label=label, **look)
    if float(values_of(table, "attention_max", "mean").max()) > 3 * weight:
        rulers.logarithmic(panels[1].yaxis)
        panels[1].set_ylim(bottom=1e-4)


def targets(results: xr.Dataset) -> Figure | None:
    """The same bias on the input, on queries, on keys, or on both: which of them sharpens attention?"""
    if results.sizes["target"] == 1:
        return None
    rows = list(kinds(results.isel(block=0), *ROWS))
    figure = style.new(style.PAGE, 0.9 + 1.6 * len(rows))
    strip, axes = style.below_a_strip(figure, len(rows), 3, 1.6)
    for row, (words, table) in zip(axes, rows, strict=True):
        norms = table.relative_norm.values
        for target in table.target.values.tolist():
            look = LOOKS[target] | {"markerfacecolor": "none"}
            kind = table.sel(target=target)
            for ax, name in zip(row, BIASED, strict=False):
                closed_form(ax, norms, kind, name, color=look["color"])
                measured(ax, norms, kind, name, linestyle="none", label=f"bias on {TARGETS[target]}", **look)
            measured(row[2], norms, kind, "attention_entropy", **look)
        even = np.log(choices_of_rows(results, str(table.mask.values))).mean()
        row[2].axhline(even, color="0.5", linestyle="--")
        row[2].set_ylim(0, even * 1.08)
        row[0].set_ylabel(words, fontweight="bold")
        for ax in row:
            bias_axis(ax, norms, "relative norm of the bias" if ax in axes[-1] else "")
        for ax in row[:2]:
            rulers.logarithmic(ax.yaxis)
    for ax, title in zip(axes[0], (*BIASED.values(), "attention entropy (nat)"), strict=True):
        ax.set_title(title)
    axes[0, 0].plot([], [], color="0.3", linewidth=0.9, label="closed form")
    strip.legend(*style.entries(axes[0, :1]), loc="center", ncols=5)
    figure.suptitle("An untrained block with a bias on its input, or on queries and keys alone")
    shown = (
        "The same bias on the input of an untrained block, on its queries, on its keys, or on both; lines without marks"
    )
    caption(figure, results, f"{shown} are closed forms.")
    return figure
