"""Figures of untrained blocks with a common bias: inputs and outputs, attention, stacks."""

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
from anisoscope.plot.run_tables import ENDS
from anisoscope.sources.untrained_theory import keys_of_rows

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
STACK = {
    "cosine_out": "mean cosine out",
    "norm_out": "mean norm out",
    "score_std_within": "deviation in rows",
    "attention_entropy": "entropy (nat)",
}
DOT = {"marker": "o", "markersize": 3}
CLOSED_FORMS = "lines without marks are closed forms."


def cosine(results: xr.Dataset) -> Figure | None:
    """Draw the mean cosine of a block's outputs against that of its biased inputs (6a)."""
    if "input" not in results.target:
        return None
    rows = [*combinations(results.sel(target="input"), "mask", "embedding")]
    figure = style.new_figure(style.PAGE, 0.5 + 2.2 * len(rows))
    axes = figure.subplots(len(rows), 1 + results.norm_order.size, squeeze=False)
    inputs, outputs = (style.variable_label(results[f"cosine_{end}"]) for end in ("in", "out"))
    for (first, *others), (name, table) in zip(axes, rows, strict=True):
        alike = table.isel(norm_order=0)  # the input is the same for both
        norms = alike.relative_norm.values
        closed_form(first, norms, alike, "cosine_in", color="0.3", label="closed form")
        look = {"color": style.OKABE_ITO[0], "linestyle": "none", "label": "measured"} | DOT
        measured(first, norms, alike, "cosine_in", **look)
        first.set(ylabel=inputs, title=f"input, {name}")
        bias_axis(first, norms, RELATIVE)
        first.legend(loc="upper left")
        for ax, (order, kind) in zip(others, combinations(table, "norm_order"), strict=True):
            ax.plot([0, 1], [0, 1], color="0.7", linewidth=0.8, zorder=1)
            block_curves(ax, kind, values_of(kind, "cosine_in", "mean"), "cosine_out")
            lowest = float(np.nanmin([0.0, *values_of(kind, "cosine_out", "low").ravel()]))
            ax.set(title=f"{order}, {name}", xlabel=inputs, ylabel=outputs)
            ax.set(xlim=(-0.03, 1.03), ylim=(lowest - 0.03, 1.03), aspect="auto")
    depth = block_bar(figure, results, axes)
    title = f"Mean cosine before and after {depth}, as a common bias grows"
    shown = f"Mean cosine between the rows that enter and that leave {depth}; gray: unchanged."
    return finish(figure, results, title, shown)


def norm(results: xr.Dataset) -> Figure | None:
    """Draw the norm of a block's outputs against that of its biased inputs (6b)."""
    if "input" not in results.target:
        return None
    rows = [*combinations(results.sel(target="input"), "mask", "embedding")]
    figure = style.new_figure(style.PAGE, 0.5 + 2.5 * len(rows))
    axes = figure.subplots(len(rows), results.norm_order.size, squeeze=False)
    for row, (name, table) in zip(axes, rows, strict=True):
        for ax, (order, kind) in zip(row, combinations(table, "norm_order"), strict=True):
            norms = values_of(kind, "norm_in", "mean")
            ends = [norms.min() * 0.8, norms.max() * 1.25]
            ax.plot(ends, ends, color="0.7", linewidth=0.8, zorder=1, label="unchanged")
            block_curves(ax, kind, norms, "norm_out")
            _mark_fixed_point(ax, kind.isel(block=0))
            panel_axes.logarithmic(ax.xaxis, ax.yaxis)
            ax.set_title(f"{order}, {name}".replace("\n", " "))
            ax.set_xlabel(style.variable_label(results.norm_in))
            ax.set_ylabel(style.variable_label(results.norm_out))
            ax.legend(loc="upper left")
    depth = block_bar(figure, results, axes)
    title = f"Mean norm before and after {depth}, as a common bias grows"
    shown = f"Mean norm of the rows that enter and that leave {depth}; gray: unchanged; star: after one."
    return finish(figure, results, title, shown)


def _mark_fixed_point(ax: Axes, after: xr.Dataset) -> None:
    """Draw a star where the lines cross, if seeds agree: nearly parallel lines cross anywhere."""
    point, low, high = (float(values_of(after, "fixed_point", end)) for end in ENDS)
    if np.isnan(point) or low <= 0:
        which = "of all seeds" if np.isnan(point) else "that seeds agree on"
        ax.plot([], [], linestyle="none", label=f"no fixed point {which}")
        return
    spread = f" ± {high - point:.1g}" if high - point >= 0.005 * point else ""
    look = {"marker": "*", "markersize": 10, "color": "black", "linestyle": "none"}
    ax.plot(point, point, label=f"fixed point {point:.3g}{spread}", **look)


def sharpness(results: xr.Dataset) -> Figure | None:
    """Draw how a common bias of the input sharpens the attention of an untrained block."""
    if "input" not in results.target:
        return None
    rows = [*combinations(results.sel(target="input").isel(block=0), *ROWS)]
    figure = style.new_figure(style.PAGE, 0.9 + 1.7 * len(rows))
    strip, axes = style.grid_below_legend(figure, len(rows), 3, 1.7)
    colors = style.OKABE_ITO
    for (deviations, entropies, weights), (_, table) in zip(axes, rows, strict=True):
        norms = table.relative_norm.values
        for (name, label), color, marker in zip(DEVIATIONS.items(), colors, "os^", strict=False):
            closed_form(deviations, norms, table, name, color=color)
            look = {"color": color, "marker": marker, "linestyle": "none", "markersize": 3}
            measured(deviations, norms, table, name, label=label, **look)
        deviations.plot([], [], color="0.3", linewidth=0.9, label="closed form")
        panel_axes.logarithmic(deviations.yaxis)
        keys = keys_with_choice(results, table)
        entropy, weight = np.log(keys).mean(), (1 / keys).mean()
        for ax, even in ((entropies, entropy), (weights, 1.0)):
            ax.axhline(even, color="0.5", linewidth=0.8, linestyle="--", label="uniform attention")
        look = {"color": colors[3], "label": "mean entropy of rows"} | DOT
        measured(entropies, norms, table, "attention_entropy", **look)
        entropies.set_ylim(0, entropy * 1.08)
        for (name, label), color, marker in zip(WEIGHTS.items(), colors[4:], "v^", strict=False):
            look = {"color": color, "marker": marker, "markersize": 3}
            measured(weights, norms, table / weight, name, label=label, **look)
        if float(values_of(table, "attention_max", "mean").max()) > 3 * weight:
            panel_axes.logarithmic(weights.yaxis)
            weights.set_ylim(bottom=1e-4)
    _name_bias_grid(axes, rows, SHARPNESS, RELATIVE)
    strip.legend(*style.legend_entries(axes[0]), loc="center", ncols=4)
    title = "Sharpness of an untrained block as a common bias of its input grows"
    shown = "Scores and attention of an untrained block whose input rows all have one bias added"
    return finish(figure, results, title, f"{shown}; {CLOSED_FORMS}")


def targets(results: xr.Dataset) -> Figure | None:
    """Draw the effect of the same bias on the input, on queries, on keys, or on both."""
    if results.sizes["target"] == 1:
        return None
    rows = [*combinations(results.isel(block=0), *ROWS)]
    figure = style.new_figure(style.PAGE, 0.9 + 1.6 * len(rows))
    strip, axes = style.grid_below_legend(figure, len(rows), 3, 1.6)
    for row, (_, table) in zip(axes, rows, strict=True):
        norms = table.relative_norm.values
        looks = zip(style.run_styles(TARGETS).items(), SIZES, strict=True)
        for (target, look), size in looks:
            if target not in table.target:
                continue
            kind, look = table.sel(target=target), look | {"markersize": size}
            look["markerfacecolor"] = "none"
            for ax, name in zip(row, BIASED, strict=False):
                closed_form(ax, norms, kind, name, color=look["color"])
                marks = look | {"linestyle": "none", "label": f"bias on {TARGETS[target]}"}
                measured(ax, norms, kind, name, **marks)
            measured(row[2], norms, kind, "attention_entropy", **look)
        even = np.log(keys_with_choice(results, table)).mean()
        row[2].axhline(even, color="0.5", linestyle="--")
        row[2].set_ylim(0, even * 1.08)
        for ax in row[:2]:
            panel_axes.logarithmic(ax.yaxis)
    titles = (*BIASED.values(), "attention entropy (nat)")
    _name_bias_grid(axes, rows, titles, "relative norm of the bias")
    axes[0, 0].plot([], [], color="0.3", linewidth=0.9, label="closed form")
    strip.legend(*style.legend_entries(axes[0, :1]), loc="center", ncols=5)
    title = "An untrained block with a bias on its input, or on queries and keys alone"
    shown = "The same bias on the input of an untrained block, its queries, its keys, or on both"
    return finish(figure, results, title, f"{shown}; {CLOSED_FORMS}")


def stack(results: xr.Dataset) -> Figure | None:
    """Draw how a common bias changes in a stack of blocks."""
    if "input" not in results.target or results.sizes["block"] == 1:
        return None
    rows = [*combinations(results.sel(target="input"), *ROWS)]
    norms = results.relative_norm.values
    least, most = _positive_range(norms)
    scale = SymLogNorm(linthresh=least, linscale=0.5, vmin=0, vmax=most, base=10)
    colors = ScalarMappable(scale, style.depth_colormap())
    figure = style.new_figure(style.PAGE, 0.8 + 1.45 * len(rows))
    axes = figure.subplots(len(rows), len(STACK), sharex=True, squeeze=False)
    for row, (text, table) in zip(axes, rows, strict=True):
        for ax, name in zip(row, STACK, strict=True):
            for bias in norms:
                look = {"color": colors.to_rgba(bias), "linewidth": 1.1}
                measured(ax, table.block.values, table.sel(relative_norm=bias), name, **look)
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
            if name in ("norm_out", "score_std_within"):
                panel_axes.logarithmic(ax.yaxis)
        row[3].set_ylim(0, np.log(keys_with_choice(results, table)).mean() * 1.08)
        row[0].set_ylabel(text, fontweight="bold")
    for above, below, title in zip(axes[0], axes[-1], STACK.values(), strict=True):
        above.set_title(title)
        below.set_xlabel("block")
    look = {"aspect": 60, "fraction": 0.03, "format": panel_axes.Powers()}
    figure.colorbar(colors, ax=axes, label=RELATIVE, **look).outline.set_visible(False)
    shown = "Rows with a common bias on their way through untrained blocks: a line for each norm."
    return finish(figure, results, "A common bias through a stack of untrained blocks", shown)


def combinations(results: xr.Dataset, *dims: str) -> Iterator[tuple[str, xr.Dataset]]:
    """Yield the name and table of every combination of these dimensions' labels."""
    for labels in itertools.product(*(results[dim].values.tolist() for dim in dims)):
        name = ",\n".join(NAMES.get(label, label) for label in labels)
        yield name, results.sel(dict(zip(dims, labels, strict=True)))


def block_curves(ax: Axes, table: xr.Dataset, x: np.ndarray, name: str) -> None:
    """Draw the values after each block, in the color of its depth."""
    blocks = table.block.values
    colors = panel_axes.patch_colors(len(blocks), first=1)
    for block in blocks:
        color = style.OKABE_ITO[1] if len(blocks) == 1 else colors.to_rgba(block)
        measured(ax, x, table.sel(block=block), name, color=color, **DOT)


def block_bar(figure: Figure, results: xr.Dataset, axes: np.ndarray) -> str:
    """Add the color bar of several blocks; return their number in words."""
    blocks = results.sizes["block"]
    if blocks == 1:
        return "an untrained block"
    panel_axes.patch_bar(figure, panel_axes.patch_colors(blocks, first=1), axes, "block")
    return f"1 to {blocks} untrained blocks"


def bias_axis(ax: Axes, norms: np.ndarray, label: str) -> None:
    """Show relative norms of the bias on a log axis that also has room for 0."""
    least, most = _positive_range(norms)
    ax.set_xscale("symlog", linthresh=least, linscale=1)
    ax.set_xlim(-0.3 * least, most * 1.6)
    first, last = (round(np.log10(value)) for value in (least, most))
    ticks = {0.0: "0"} if 0 in norms else {}
    for exponent in range(first, last + 1, max(1, (last - first + 1) // 3)):
        ticks[10.0**exponent] = panel_axes.power(exponent)
    ax.set_xticks([*ticks], [*ticks.values()])
    ax.set_xticks([], minor=True)
    ax.set_xlabel(label)


def _positive_range(norms: np.ndarray) -> tuple[float, float]:
    positive = norms[norms > 0]
    return (positive.min(), positive.max()) if positive.size else (1.0, 1.0)


def _name_bias_grid(axes: np.ndarray, rows: list, titles: tuple[str, ...], below: str) -> None:
    for row, (text, table) in zip(axes, rows, strict=True):
        row[0].set_ylabel(text, fontweight="bold")
        for ax in row:
            bias_axis(ax, table.relative_norm.values, below if ax in axes[-1] else "")
    for ax, title in zip(axes[0], titles, strict=True):
        ax.set_title(title)


def values_of(results: xr.Dataset, name: str, statistic: str) -> np.ndarray:
    return results[name].sel(statistic=statistic).values


def measured(ax: Axes, x: np.ndarray, results: xr.Dataset, name: str, **look: Any) -> None:
    """Draw the mean over seeds with its interval as a band; a single seed has none."""
    style.plot_with_interval(ax, x, *(values_of(results, name, end) for end in ENDS), **look)


def closed_form(ax: Axes, x: np.ndarray, results: xr.Dataset, name: str, **look: Any) -> None:
    ax.plot(x, values_of(results, name, "predicted"), linewidth=0.9, **look)


def finish(figure: Figure, results: xr.Dataset, title: str, shown: str) -> Figure:
    made = f"Bands: {results['cosine_in'].attrs['interval']}; {results.attrs['description']}."
    return style.finish(figure, title, [made], shown)


def keys_with_choice(results: xr.Dataset, table: xr.Dataset) -> np.ndarray:
    """Count the keys visible to each row that has several."""
    context = json.loads(results.attrs["config"])["context"]
    keys_T = keys_of_rows(str(table.mask.values), context)
    return keys_T[keys_T > 1]
