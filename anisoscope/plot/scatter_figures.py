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
    POSITION_LABELS,
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
ROW_HEIGHT = 1.3  # inches of a row
LEGEND_ROW = 0.16  # inches
DRIFT_AND_COSINE = ("drift", "mean_cosine")


def cosine_against_drift(runs: dict[str, Run]) -> Figure | None:
    """Draw a row for each set of positions: mean cosine over depth, and against drift."""
    if not (known := runs_with(runs, *DRIFT_AND_COSINE)):
        return None
    return _draw_rows([(POSITION_LABELS[side], side, runs) for side in shared_positions(known)])


def cosine_and_drift(models: dict[str, Run]) -> Figure | None:
    """Draw a row for each modality: mean cosine over depth, and against drift (Inherent)."""
    members: dict[str, dict[str, Run]] = {}
    for label, run in runs_with(models, *DRIFT_AND_COSINE).items():
        members.setdefault(run.modality, {})[label] = run
    return _draw_rows([(modality, "all", own) for modality, own in members.items()])


def _draw_rows(rows: list[tuple[str, str, dict[str, Run]]]) -> Figure | None:
    """Draw rows of a title, a set of positions, and runs by label; a point for each layer."""
    if not rows:
        return None
    heights = [max(ROW_HEIGHT, 0.5 + LEGEND_ROW * len(own)) for _, _, own in rows]
    figure = style.new_figure(style.PAGE_WIDTH, 0.9 + sum(heights))
    shared = {"sharex": "col", "sharey": True, "squeeze": False, "height_ratios": heights}
    axes = figure.subplots(len(rows), 2, **shared)
    every = {
        label: run for _, _, own in rows for label, run in runs_with(own, *DRIFT_AND_COSINE).items()
    }
    for (depth, drift), (title, side, members) in zip(axes, rows, strict=True):
        looks, own = style.run_styles(members), runs_with(members, *DRIFT_AND_COSINE)
        for label, run in own.items():
            last = run.results.isel(step=-1).sel(positions=side)
            cosine = interval(last, "mean_cosine")
            style.plot_with_interval(depth, last.depth.values, *cosine, label=label, **looks[label])
            layer_points(drift, last, looks[label], label)
        depth.set_title(title)
        text = label_variable(every, "mean_cosine")
        depth.set_ylabel(style.wrap(text, ROW_HEIGHT - 0.3, style.RC["font.size"]))
        drift.set_title(_format_correlation(own, side), fontsize=style.SMALL_FONT)
        style.legend([depth, drift])
    axes[-1, 0].set_xlabel(layers_label(every, panel_axes.RELATIVE_DEPTH))
    axes[-1, 1].set(xscale="log", xlabel=label_variable(every, "drift"))
    panel_axes.number_decades(axes[-1, 1].xaxis)
    panel_axes.fit_limits(axes.flat, zero=True)
    style.title(figure, f"Mean cosine over depth and against drift{at_last(every)}")
    shown = (
        "Left, mean cosine of pairs in each layer. Right, the same against the norm of the mean vector: a point for "
        "each layer, hollow the first. ρ is Spearman's rank correlation."
    )
    tables = [run.results for run in every.values()]
    bands = describe_bands(tables, *DRIFT_AND_COSINE, what="bands and bars")
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
    pooled = correlations.correlate_tables(last, DRIFT_AND_COSINE)
    within = correlations.within_runs(
        [correlations.correlate_tables([x], DRIFT_AND_COSINE) for x in last]
    )
    if np.isnan(pooled.spearman):
        return "too few points to correlate"
    text = f"all points: {_format_rho(pooled)}"
    return text + f"\nwithin models: {_format_rho(within)}" * bool(within.n > 1)


def _format_rho(found: correlations.Correlation) -> str:
    low, high = found.spearman_low, found.spearman_high
    text = f"ρ = {found.spearman:.2f}" + f" [{low:.2f}, {high:.2f}]" * bool(low < high)
    return text.replace("-", "\N{MINUS SIGN}")
