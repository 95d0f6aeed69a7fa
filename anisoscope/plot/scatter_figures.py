"""A quantity against another at the last checkpoint, a point for each layer or head.

Correlations are listed in correlations.csv, corrected for their number.
"""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anisoscope.analysis import correlations
from anisoscope.plot import panel_axes, style
from anisoscope.plot.run_tables import (
    POSITIONS,
    Run,
    at_last,
    caption,
    describe_bands,
    interval,
    label_variable,
    layers_label,
    runs_with,
    shared_positions,
)

CAUTION = (
    "Correlations with intervals and corrected p-values are listed in correlations.csv. They treat the points as "
    "independent draws, which those of one network are not."
)
COLUMNS, BLOCKS = 5, 4  # checkpoints, and blocks of a single run, in figures of projections
LEAST = 1.3  # inches of a row
LEGEND_ROW = 0.16  # inches
PAIR = ("drift", "mean_cosine")


def cosine_against_drift(runs: dict[str, Run]) -> Figure | None:
    """Draw a row for each set of positions: mean cosine over depth, and against drift."""
    if not (known := runs_with(runs, *PAIR)):
        return None
    return _draw_rows([(POSITIONS[side], side, runs) for side in shared_positions(known)])


def cosine_and_drift(models: dict[str, Run]) -> Figure | None:
    """Draw a row for each modality: mean cosine over depth, and against drift (Inherent)."""
    members: dict[str, dict[str, Run]] = {}
    for label, run in runs_with(models, *PAIR).items():
        members.setdefault(run.modality, {})[label] = run
    return _draw_rows([(modality, "all", own) for modality, own in members.items()])


def _draw_rows(rows: list[tuple[str, str, dict[str, Run]]]) -> Figure | None:
    """Draw rows of a title, a set of positions, and runs by label; a point for each layer."""
    if not rows:
        return None
    heights = [max(LEAST, 0.5 + LEGEND_ROW * len(own)) for _, _, own in rows]
    figure = style.new_figure(style.PAGE, 0.9 + sum(heights))
    shared = {"sharex": "col", "sharey": True, "squeeze": False, "height_ratios": heights}
    axes = figure.subplots(len(rows), 2, **shared)
    every = {label: run for _, _, own in rows for label, run in runs_with(own, *PAIR).items()}
    for (depth, drift), (title, side, members) in zip(axes, rows, strict=True):
        looks, own = style.run_styles(members), runs_with(members, *PAIR)
        for label, run in own.items():
            last = run.results.isel(step=-1).sel(positions=side)
            cosine = interval(last, "mean_cosine")
            style.plot_with_interval(depth, last.depth.values, *cosine, label=label, **looks[label])
            layer_points(drift, last, looks[label], label)
        depth.set_title(title)
        text = label_variable(every, "mean_cosine")
        depth.set_ylabel(style.wrap(text, LEAST - 0.3, style.RC["font.size"]))
        drift.set_title(_format_correlation(own, side), fontsize=style.SMALL)
        style.legend([depth, drift])
    axes[-1, 0].set_xlabel(layers_label(every, panel_axes.DEPTH))
    axes[-1, 1].set(xscale="log", xlabel=label_variable(every, "drift"))
    panel_axes.number_decades(axes[-1, 1].xaxis)
    panel_axes.fit_limits(axes.flat, zero=True)
    style.title(figure, f"Mean cosine over depth and against drift{at_last(every)}")
    shown = (
        "Left, mean cosine of pairs in each layer. Right, the same against the norm of the mean vector: a point for "
        "each layer, hollow the first. ρ is Spearman's rank correlation."
    )
    tables = [run.results for run in every.values()]
    bands = describe_bands(tables, *PAIR, what="bands and bars")
    caption(figure, every, f"{shown} {CAUTION}", bands)
    return figure


def layer_points(ax: Axes, table: xr.Dataset, look: dict[str, Any], label: str) -> None:
    """Draw mean cosine against drift, a point for each layer with intervals, the first hollow."""
    drift, cosine = interval(table, "drift"), interval(table, "mean_cosine")
    style.error_bars(ax, drift, cosine, ecolor=look["color"], elinewidth=0.8, fmt="none")
    ax.plot(drift[0][1:], cosine[0][1:], linestyle="none", label=label, **look)
    ax.plot(drift[0][:1], cosine[0][:1], linestyle="none", **look, markerfacecolor="white")


def _format_correlation(runs: dict[str, Run], side: str) -> str:
    """Write the rank correlation of all points, and the mean of those within models."""
    place = {"positions": side, "statistic": "mean"}
    last = [run.results.isel(step=[-1]).sel(place) for run in runs.values()]
    pooled = correlations.correlate_tables(last, PAIR)
    within = correlations.within_runs([correlations.correlate_tables([x], PAIR) for x in last])
    if np.isnan(pooled.spearman):
        return "too few points to correlate"
    text = f"all points: {_format_rho(pooled)}"
    return text + f"\nwithin models: {_format_rho(within)}" * bool(within.n > 1)


def _format_rho(found: correlations.Correlation) -> str:
    low, high = found.spearman_low, found.spearman_high
    text = f"ρ = {found.spearman:.2f}" + f" [{low:.2f}, {high:.2f}]" * bool(low < high)
    return text.replace("-", "\N{MINUS SIGN}")


NAMES = {"query": "queries", "key": "keys"}
LOOKS = {
    "query": {"color": style.OKABE_ITO[0], "marker": "o"},
    "key": {"color": style.OKABE_ITO[1], "marker": "^"},
}


def query_key_projection(runs: dict[str, Run]) -> Figure | None:
    """Draw a column for each checkpoint, and a row for each block, or for each run's middle block.

    A row shares a plane and a scale.
    """
    runs = runs_with(runs, *(f"{kind}_projection" for kind in LOOKS))
    if not runs:
        return None
    rows = [(label, block) for label in runs for block in _blocks(runs[label], len(runs))]
    tables = [runs[label].results.sel(block=block) for label, block in rows]
    figure = style.new_figure(style.PAGE, 0.9 + 1.4 * len(rows))
    shared = {"sharex": "row", "sharey": "row", "squeeze": False}
    axes = figure.subplots(len(rows), COLUMNS, **shared)
    for row, (label, block), table in zip(axes, rows, tables, strict=True):
        known = np.isfinite(table.projection_kept.values)
        steps = _spread_steps(table.step.values[known | ~known.any()])
        for ax in row[len(steps) :]:
            ax.set_axis_off()
        for ax, step in zip(row, steps, strict=False):
            _scatter(ax, table.sel(step=step))
            ax.set(title=f"step {step:,}", aspect="equal")
            ax.locator_params(nbins=3)
        below, left = (
            f"axis {axis} ({_percent(share)})"
            for axis, share in enumerate(table.projection_share.values, 1)
        )
        name = f"block {block}, head {table.query_projection.attrs['head']}"
        name = style.wrap(name if len(runs) == 1 else f"{label}, {name}", 1.4, style.SMALL)
        row[0].set_xlabel(below, fontsize=style.SMALL)
        row[0].set_ylabel(f"{name}\n{left}", fontsize=style.SMALL)
    handles, labels = style.legend_entries(axes[0])
    legend = figure.legend(handles, labels, loc="outside right upper", title="large: their mean")
    for handle in legend.legend_handles:
        handle.set(sizes=[12], alpha=1)
    style.title(figure, "Queries and keys on the axes of their common SVD")
    shares = (
        "Percentages are shares of the squared lengths: of an axis over all steps, in the corner of "
        "both at that step."
    )
    caption(figure, runs, "Queries and keys at several checkpoints, a plane for each row.", shares)
    return figure


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if np.isfinite(share) else "–"


def _blocks(run: Run, runs: int) -> list[int]:
    """Choose blocks from the first to the last; with several runs only the middle block."""
    blocks = run.results.block.values
    if runs > 1:
        return [int(blocks[len(blocks) // 2])]
    return blocks[np.unique(np.linspace(0, len(blocks) - 1, BLOCKS).round().astype(int))].tolist()


def _spread_steps(steps: np.ndarray) -> list[int]:
    """Choose the first step, the last, and steps evenly spaced in log(1 + step)."""
    places = np.log1p(steps)
    even = np.linspace(places[0], places[-1], COLUMNS)
    return steps[np.unique(np.abs(places - even[:, None]).argmin(axis=1))].tolist()


def _scatter(ax: Axes, table: xr.Dataset) -> None:
    """Draw the vectors, their means with a line from 0, and the share that the plane shows."""
    for zero in (ax.axhline, ax.axvline):
        zero(0, color="0.6", linewidth=0.6, zorder=1)
    clouds = {kind: table[f"{kind}_projection"].values.T for kind in LOOKS}
    for kind, look in LOOKS.items():
        ax.scatter(*clouds[kind], s=2.5, alpha=0.4, linewidths=0, label=NAMES[kind], **look)
    edge = {"markeredgecolor": "white", "markeredgewidth": 0.5, "linestyle": "none"}
    for kind, look in LOOKS.items():
        x, y = clouds[kind].mean(axis=1)
        ax.plot([0, x], [0, y], color=look["color"], linewidth=1)
        ax.plot(x, y, markersize=4, **edge, **look)
    look = {"ha": "right", "va": "bottom", "fontsize": 6, "color": "0.4"}
    ax.text(0.98, 0.02, _percent(float(table.projection_kept)), transform=ax.transAxes, **look)
