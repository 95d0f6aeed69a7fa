"""Figures of untrained blocks under a common bias: of their inputs and outputs, of attention, and
over a stack.
"""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import SymLogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from anisoscope.plot import panel_axes, style
from anisoscope.sources.untrained.untrained_theory import keys_of_rows

NAMES = {"pre": "pre-LN", "post": "post-LN", "raw": "raw rows", "normed": "layer-normed rows"}
RELATIVE = "bias norm / input norm"
ROWS = ("norm_order", "mask", "embedding")  # of panels: a row for each combination
DEVIATIONS = {
    "score_std": "all scores",
    "score_std_head": "scores within heads",
    "score_std_within": "scores within rows",
}
WEIGHTS = {
    "attention_max": "largest attention of a row",
    "attention_min": "smallest attention of a row",
}
SHARPNESS = ("deviation of scores", "attention entropy (nat)", "attention / uniform attention")
BIASED = {"score_std": "deviation of all scores", "score_std_within": "deviation within rows"}
TARGETS = {"input": "input", "queries": "queries", "keys": "keys", "both": "queries and keys"}
SIZES = (3, 7, 5, 3)  # rings in rings: the deviations of two targets are often the same
LOOKS = {
    target: look | {"markersize": size}
    for (target, look), size in zip(style.inks(TARGETS).items(), SIZES, strict=True)
}
COLUMNS = {
    "cosine_out": "mean cosine out",
    "norm_out": "mean norm out",
    "score_std_within": "deviation in rows",
    "attention_entropy": "entropy (nat)",
}


def cosine(results: xr.Dataset) -> Figure | None:
    """How alike are the rows that leave a block, as a common bias makes those that enter it alike?
    (6a)
    """
    if "input" not in results.target:
        return None
    rows = list(kinds(results.sel(target="input"), "mask", "embedding"))
    blocks = results.block.values
    figure = style.new(style.PAGE, 0.5 + 2.2 * len(rows))
    axes = figure.subplots(len(rows), 1 + results.norm_order.size, squeeze=False)
    colours = panel_axes.block_colours(len(blocks))
    for row, (text, table) in zip(axes, rows, strict=True):
        alike = table.isel(norm_order=0)  # the input is the same for both
        norms = alike.relative_norm.values
        closed_form(row[0], norms, alike, "cosine_in", color="0.3", label="closed form")
        look = {"color": style.OKABE_ITO[0], "marker": "o", "markersize": 3, "linestyle": "none"}
        measured(row[0], norms, alike, "cosine_in", label="measured", **look)
        row[0].set(ylabel=style.words(results.cosine_in), title=f"input, {text}")
        bias_axis(row[0], norms, RELATIVE)
        row[0].legend(loc="upper left")
        for ax, (order, kind) in zip(row[1:], kinds(table, "norm_order"), strict=True):
            ax.plot([0, 1], [0, 1], color="0.7", linewidth=0.8, zorder=1)
            for block in blocks:
                color = style.OKABE_ITO[1] if len(blocks) == 1 else colours.to_rgba(block)
                after, before = kind.sel(block=block), values_of(kind, "cosine_in", "mean")
                measured(ax, before, after, "cosine_out", color=color, marker="o", markersize=3)
            ax.set(
                title=f"{order}, {text}",
                xlabel=style.words(results.cosine_in),
                ylabel=style.words(results.cosine_out),
            )
            lowest = float(np.nanmin([0.0, *values_of(kind, "cosine_out", "low").ravel()]))
            ax.set(xlim=(-0.03, 1.03), ylim=(lowest - 0.03, 1.03), aspect="auto")
    if len(blocks) > 1:
        panel_axes.patch_bar(figure, colours, axes, "block")
    depth = "an untrained block" if len(blocks) == 1 else f"1 to {len(blocks)} untrained blocks"
    figure.suptitle(f"Mean cosine before and after {depth}, as a common bias grows")
    caption(
        figure,
        results,
        f"Mean cosine between the rows that enter and that leave {depth}; grey: unchanged.",
    )
    return figure


def norm(results: xr.Dataset) -> Figure | None:
    """How long are the rows that leave a block, and from which bias on are they shorter than those
    that enter? (6b)
    """
    if "input" not in results.target:
        return None
    rows = list(kinds(results.sel(target="input"), "mask", "embedding"))
    blocks = results.block.values
    figure = style.new(style.PAGE, 0.5 + 2.5 * len(rows))
    axes = figure.subplots(len(rows), results.norm_order.size, squeeze=False)
    colours = panel_axes.block_colours(len(blocks))
    for row, (text, table) in zip(axes, rows, strict=True):
        for ax, (order, kind) in zip(row, kinds(table, "norm_order"), strict=True):
            norms = values_of(kind, "norm_in", "mean")
            ends = [norms.min() * 0.8, norms.max() * 1.25]
            ax.plot(ends, ends, color="0.7", linewidth=0.8, zorder=1, label="unchanged")
            for block in blocks:
                color = style.OKABE_ITO[1] if len(blocks) == 1 else colours.to_rgba(block)
                measured(
                    ax,
                    norms,
                    kind.sel(block=block),
                    "norm_out",
                    color=color,
                    marker="o",
                    markersize=3,
                )
            _fixed_point(ax, kind.isel(block=0))
            panel_axes.logarithmic(ax.xaxis, ax.yaxis)
            ax.set(title=f"{order}, {text}".replace("\n", " "))
            ax.set(xlabel=style.words(results.norm_in), ylabel=style.words(results.norm_out))
            ax.legend(loc="upper left")
    if len(blocks) > 1:
        panel_axes.patch_bar(figure, colours, axes, "block")
    depth = (
        "an untrained block"
        if len(blocks) == 1
        else f"1 to {len(blocks)} untrained blocks (star: after one)"
    )
    figure.suptitle(f"Mean norm before and after {depth}, as a common bias grows")
    caption(
        figure,
        results,
        f"Mean norm of the rows that enter and that leave {depth}; grey: unchanged.",
    )
    return figure


def _fixed_point(ax: Axes, after: xr.Dataset) -> None:
    """A star where the lines cross. Nearly parallel ones cross anywhere, if at all: seeds must
    agree on a place.
    """
    point, low, high = (
        float(values_of(after, "fixed_point", end)) for end in ("mean", "low", "high")
    )
    if np.isnan(point):
        ax.plot([], [], linestyle="none", label="no fixed point of all seeds")
    elif low <= 0:
        ax.plot([], [], linestyle="none", label="no fixed point that seeds agree on")
    else:
        spread = f" ± {high - point:.1g}" if high - point >= 0.005 * point else ""
        look = {"marker": "*", "markersize": 10, "color": "black", "linestyle": "none"}
        ax.plot(point, point, label=f"fixed point {point:.3g}{spread}", **look)


def sharpness(results: xr.Dataset) -> Figure | None:
    """Does a common bias of the input sharpen the attention of an untrained block? Measured, and in
    closed form.
    """
    if "input" not in results.target:
        return None
    rows = list(kinds(results.sel(target="input").isel(block=0), *ROWS))
    figure = style.new(style.PAGE, 0.9 + 1.7 * len(rows))
    strip, axes = style.below_a_strip(figure, len(rows), 3, 1.7)
    for row, (text, table) in zip(axes, rows, strict=True):
        _deviations(row[0], table)
        _sharpness(row[1:], table, choices_of_rows(results, str(table.mask.values)))
        row[0].set_ylabel(text, fontweight="bold")
        for ax in row:
            bias_axis(ax, table.relative_norm.values, RELATIVE if ax in axes[-1] else "")
    for ax, title in zip(axes[0], SHARPNESS, strict=True):
        ax.set_title(title)
    strip.legend(*style.entries(axes[0]), loc="center", ncols=4)
    figure.suptitle("Sharpness of an untrained block as a common bias of its input grows")
    shown = "Scores and attention of an untrained block whose input rows all have one bias added"
    caption(figure, results, f"{shown}; lines without marks are closed forms.")
    return figure


def _deviations(ax: Axes, table: xr.Dataset) -> None:
    norms = table.relative_norm.values
    for (name, label), color, marker in zip(
        DEVIATIONS.items(), style.OKABE_ITO, style.MARKERS, strict=False
    ):
        closed_form(ax, norms, table, name, color=color)
        look = {"color": color, "marker": marker, "linestyle": "none", "markersize": 3}
        measured(ax, norms, table, name, label=label, **look)
    ax.plot([], [], color="0.3", linewidth=0.9, label="closed form")
    panel_axes.logarithmic(ax.yaxis)


def _sharpness(panels: np.ndarray, table: xr.Dataset, keys: np.ndarray) -> None:
    norms, entropy, weight = table.relative_norm.values, np.log(keys).mean(), (1 / keys).mean()
    for ax, even in zip(panels, (entropy, 1.0), strict=True):
        ax.axhline(even, color="0.5", linewidth=0.8, linestyle="--", label="uniform attention")
    look = {"color": style.OKABE_ITO[3], "marker": "o", "markersize": 3}
    measured(panels[0], norms, table, "attention_entropy", label="mean entropy of rows", **look)
    panels[0].set_ylim(0, entropy * 1.08)
    for (name, label), color, marker in zip(
        WEIGHTS.items(), style.OKABE_ITO[4:], "v^", strict=False
    ):
        look = {"color": color, "marker": marker, "markersize": 3}
        measured(panels[1], norms, table / weight, name, label=label, **look)
    if float(values_of(table, "attention_max", "mean").max()) > 3 * weight:
        panel_axes.logarithmic(panels[1].yaxis)
        panels[1].set_ylim(bottom=1e-4)


def targets(results: xr.Dataset) -> Figure | None:
    """The same bias on the input, on queries, on keys, or on both: which of them sharpens
    attention?
    """
    if results.sizes["target"] == 1:
        return None
    rows = list(kinds(results.isel(block=0), *ROWS))
    figure = style.new(style.PAGE, 0.9 + 1.6 * len(rows))
    strip, axes = style.below_a_strip(figure, len(rows), 3, 1.6)
    for row, (text, table) in zip(axes, rows, strict=True):
        norms = table.relative_norm.values
        for target in table.target.values.tolist():
            look = LOOKS[target] | {"markerfacecolor": "none"}
            kind = table.sel(target=target)
            for ax, name in zip(row, BIASED, strict=False):
                closed_form(ax, norms, kind, name, color=look["color"])
                measured(
                    ax,
                    norms,
                    kind,
                    name,
                    linestyle="none",
                    label=f"bias on {TARGETS[target]}",
                    **look,
                )
            measured(row[2], norms, kind, "attention_entropy", **look)
        even = np.log(choices_of_rows(results, str(table.mask.values))).mean()
        row[2].axhline(even, color="0.5", linestyle="--")
        row[2].set_ylim(0, even * 1.08)
        row[0].set_ylabel(text, fontweight="bold")
        for ax in row:
            bias_axis(ax, norms, "relative norm of the bias" if ax in axes[-1] else "")
        for ax in row[:2]:
            panel_axes.logarithmic(ax.yaxis)
    for ax, title in zip(axes[0], (*BIASED.values(), "attention entropy (nat)"), strict=True):
        ax.set_title(title)
    axes[0, 0].plot([], [], color="0.3", linewidth=0.9, label="closed form")
    strip.legend(*style.entries(axes[0, :1]), loc="center", ncols=5)
    figure.suptitle("An untrained block with a bias on its input, or on queries and keys alone")
    shown = (
        "The same bias on the input of an untrained block, on its queries, on its keys, or on both"
    )
    caption(figure, results, f"{shown}; lines without marks are closed forms.")
    return figure


def stack(results: xr.Dataset) -> Figure | None:
    if "input" not in results.target or results.sizes["block"] == 1:
        return None
    rows = list(kinds(results.sel(target="input"), "norm_order", "mask", "embedding"))
    norms = results.relative_norm.values
    positive = norms[norms > 0] if (norms > 0).any() else [1.0]
    scale = SymLogNorm(linthresh=min(positive), linscale=0.5, vmin=0, vmax=max(positive), base=10)
    colours = ScalarMappable(scale, style.shades())
    figure = style.new(style.PAGE, 0.8 + 1.45 * len(rows))
    axes = figure.subplots(len(rows), len(COLUMNS), sharex=True, squeeze=False)
    for row, (text, table) in zip(axes, rows, strict=True):
        for ax, name in zip(row, COLUMNS, strict=True):
            for norm in norms:
                chosen = table.sel(relative_norm=norm)
                measured(
                    ax,
                    chosen.block.values,
                    chosen,
                    name,
                    color=colours.to_rgba(norm),
                    linewidth=1.1,
                )
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
            if name in ("norm_out", "score_std_within"):
                panel_axes.logarithmic(ax.yaxis)
        row[3].set_ylim(0, np.log(choices_of_rows(results, str(table.mask.values))).mean() * 1.08)
        row[0].set_ylabel(text, fontweight="bold")
    for ax, title in zip(axes[0], COLUMNS.values(), strict=True):
        ax.set_title(title)
    for ax in axes[-1]:
        ax.set_xlabel("block")
    bar = figure.colorbar(
        colours, ax=axes, label=RELATIVE, aspect=60, fraction=0.03, format=panel_axes.Powers()
    )
    bar.outline.set_visible(False)
    figure.suptitle("A common bias through a stack of untrained blocks")
    shown = "Rows with a common bias on their way through a stack of untrained blocks: a line for each norm."
    caption(figure, results, shown)
    return figure


def kinds(results: xr.Dataset, *dims: str) -> Iterator[tuple[str, xr.Dataset]]:
    """The tables of every combination of these dimensions' labels, and what to call each."""
    for labels in itertools.product(*(results[dim].values.tolist() for dim in dims)):
        chosen = dict(zip(dims, labels, strict=True))
        yield ",\n".join(NAMES.get(label, label) for label in chosen.values()), results.sel(chosen)


def bias_axis(ax: Axes, norms: np.ndarray, label: str = "") -> None:
    """Relative norms of the bias on a log axis that also has room for 0."""
    positive = norms[norms > 0]
    least, most = (positive.min(), positive.max()) if positive.size else (1.0, 1.0)
    ax.set_xscale("symlog", linthresh=least, linscale=1)
    ax.set_xlim(-0.3 * least, most * 1.6)
    first, last = (round(np.log10(value)) for value in (least, most))
    powers = list(range(first, last + 1, max(1, (last - first + 1) // 3)))
    zero = ["0"] * (0 in norms)
    ax.set_xticks(
        [0.0] * len(zero) + [10.0**power for power in powers],
        zero + [panel_axes.power(one) for one in powers],
    )
    ax.set_xticks([], minor=True)
    ax.set_xlabel(label)


def values_of(results: xr.Dataset, name: str, statistic: str) -> np.ndarray:
    return results[name].sel(statistic=statistic).values


def measured(ax: Axes, x: np.ndarray, results: xr.Dataset, name: str, **look: Any) -> None:
    """The mean over seeds, with a band for its interval; one seed has none."""
    style.banded(ax, x, *(values_of(results, name, end) for end in ("mean", "low", "high")), **look)


def closed_form(ax: Axes, x: np.ndarray, results: xr.Dataset, name: str, **look: Any) -> None:
    ax.plot(x, values_of(results, name, "predicted"), linewidth=0.9, **look)


def caption(figure: Figure, results: xr.Dataset, shown: str) -> None:
    """What the figure was made from, on it; beside it, by its label, what it shows too."""
    made = f"Bands: {results['cosine_in'].attrs['interval']}; {results.attrs['description']}."
    style.small_print(figure, [made])
    figure.set_label(f"{shown}\n\n{made}")


def choices_of_rows(results: xr.Dataset, mask: str) -> np.ndarray:
    """How many keys those rows see that see several."""
    keys_T = keys_of_rows(mask, json.loads(results.attrs["config"])["context"])
    return keys_T[keys_T > 1]
