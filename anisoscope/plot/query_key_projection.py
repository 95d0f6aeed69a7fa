"""Projections of a head's queries and keys over training (Inherent to Self-Attention)."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from anisoscope.plot import style
from anisoscope.plot.footer import caption
from anisoscope.plot.run_tables import Run, runs_with

COLUMNS, ROWS, BLOCKS = 5, 6, 4
HEIGHT = 1.4  # inches of a row
NAMES = {"query": "queries", "key": "keys"}
LOOKS = {
    "query": {"color": style.OKABE_ITO[0], "marker": "o"},
    "key": {"color": style.OKABE_ITO[1], "marker": "^"},
}


def query_key_projection(runs: dict[str, Run]) -> Figure | None:
    """Draw a column for each checkpoint, and a row for each block, or for each run's middle block.

    A row shares a plane and a scale. For models with a single checkpoint each row is a panel.
    """
    runs = runs_with(runs, *(f"{kind}_projection" for kind in LOOKS))
    if not runs:
        return None
    places = [(label, block) for label in runs for block in _blocks(runs[label], len(runs))]
    single = all(run.results.sizes["step"] == 1 for run in runs.values())
    rows = places[: COLUMNS if single else ROWS]
    heads = {label: int(runs[label].results.query_projection.attrs["head"]) for label, _ in rows}
    same_head = len(set(heads.values())) == 1
    figure = style.new_figure(style.PAGE, 0.9 + HEIGHT * (1 if single else len(rows)))
    grid = figure.add_gridspec(*(1, len(rows)) if single else (len(rows), COLUMNS))
    steps_above = None
    for row, (label, block) in enumerate(rows):
        table = runs[label].results.sel(block=block)
        known = np.isfinite(table.projection_kept.values)
        steps = _spread_steps(table.step.values[known | ~known.any()])
        cells = [(0, row)] if single else [(row, column) for column in range(len(steps))]
        axes = [figure.add_subplot(grid[cell]) for cell in cells]
        for ax, step in zip(axes, steps, strict=True):
            _scatter(ax, table.sel(step=step))
            ax.set_title("" if steps == steps_above else f"step {step:,}")
        _set_frame(axes, table.sel(step=steps))
        below, left = (
            f"axis {axis} ({_percent(share)})"
            for axis, share in enumerate(table.projection_share.values, 1)
        )
        name = f"block {block}" if len(runs) == 1 else f"{label}, block {block}"
        name = style.wrap(name + f", head {heads[label]}" * (not same_head), HEIGHT, style.SMALL)
        axes[0].set_xlabel(below, fontsize=style.SMALL)
        axes[0].set_ylabel(left if single else f"{name}\n{left}", fontsize=style.SMALL)
        if single:
            axes[0].set_title(name, fontsize=style.SMALL)
        if row == (len(rows) - 1 if single else 0):
            style.legend(axes)
            axes[-1].get_legend().set_title("large: their mean")
            for handle in axes[-1].get_legend().legend_handles:
                handle.set(sizes=[12], alpha=1)
        steps_above = steps
    which = f"head {heads[label]}" if same_head else "one head each"
    omitted = f", {len(rows)} of {len(places)} runs" * (len(rows) < len(places))
    style.title(figure, f"Queries and keys of {which} on the axes of their common SVD{omitted}")
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


def _set_frame(axes: list[Axes], table: xr.Dataset) -> None:
    """Set the same square around all points and the origin in all panels of a row."""
    clouds = [table[f"{kind}_projection"].values.reshape(-1, 2) for kind in LOOKS]
    points = np.concatenate([*clouds, np.zeros((1, 2))])
    low, high = np.nanmin(points, axis=0), np.nanmax(points, axis=0)
    middle, reach = (low + high) / 2, 0.54 * max(high - low) or 1.0
    (left, bottom), (right, top) = middle - reach, middle + reach
    for ax in axes:
        ax.set(xlim=(left, right), ylim=(bottom, top), aspect="equal")
        ax.tick_params(labelleft=ax is axes[0])
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(MaxNLocator(3))
