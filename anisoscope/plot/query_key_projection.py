"""Do queries and keys of a head drift from 0, and which way? (Anisotropy Is Inherent to
Self-Attention)
"""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from anisoscope.plot import style
from anisoscope.plot.footer import caption
from anisoscope.plot.run_tables import Run, holding

COLUMNS, ROWS, BLOCKS = 5, 6, 4
HEIGHT = 1.4  # inches of a row
WORDS = {"query": "queries", "key": "keys"}
LOOKS = {
    "query": {"color": style.OKABE_ITO[0], "marker": "o"},
    "key": {"color": style.OKABE_ITO[1], "marker": "^"},
}


def build(runs: dict[str, Run]) -> Figure | None:
    """A column per checkpoint; a row, of one plane and scale, per block of one run or per run with
    its middle block.
    """
    runs = holding(runs, *(f"{kind}_projection" for kind in LOOKS))
    if not runs:
        return None
    places = [
        (label, block) for label, run in runs.items() for block in shown_blocks(run, len(runs))
    ]
    single = all(run.results.sizes["step"] == 1 for run in runs.values())
    rows = places[: COLUMNS if single else ROWS]
    heads = {label: int(runs[label].results.query_projection.attrs["head"]) for label, _ in rows}
    one_head = len(set(heads.values())) == 1
    figure = style.new(style.PAGE, 0.9 + HEIGHT * (1 if single else len(rows)))
    grid = figure.add_gridspec(1, len(rows)) if single else figure.add_gridspec(len(rows), COLUMNS)
    above = None
    for row, (label, block) in enumerate(rows):
        table = runs[label].results.sel(block=block)
        known = np.isfinite(table.projection_kept.values)
        steps = shown_steps(table.step.values[known | ~known.any()])
        cells = [(0, row)] if single else [(row, column) for column in range(len(steps))]
        axes = [figure.add_subplot(grid[cell]) for cell in cells]
        for ax, step in zip(axes, steps, strict=True):
            scatter(ax, table.sel(step=step))
            ax.set_title("" if steps == above else f"step {step:,}")
        frame(axes, table.sel(step=steps))
        one, two = (
            f"axis {axis} ({percent(share)})"
            for axis, share in enumerate(table.projection_share.values, 1)
        )
        name = f"block {block}" if len(runs) == 1 else f"{label}, block {block}"
        name += "" if one_head else f", head {heads[label]}"
        axes[0].set_xlabel(one, fontsize=style.SMALL)
        if single:
            axes[0].set_title(style.wrap(name, HEIGHT, style.SMALL), fontsize=style.SMALL)
            axes[0].set_ylabel(two, fontsize=style.SMALL)
        else:
            axes[0].set_ylabel(
                f"{style.wrap(name, HEIGHT, style.SMALL)}\n{two}", fontsize=style.SMALL
            )
        if row == (len(rows) - 1 if single else 0):
            style.legend(np.array(axes))
            axes[-1].get_legend().set_title("large: their mean")
            for handle in axes[-1].get_legend().legend_handles:
                handle.set(sizes=[12], alpha=1)
        above = steps
    which = f"head {heads[label]}" if one_head else "one head each"
    words = f"Queries and keys of {which} on the axes of their common SVD"
    omitted = f", {len(rows)} of {len(places)} runs" if len(rows) < len(places) else ""
    style.title(figure, f"{words}{omitted}")
    shares = "Percentages are shares of the squared lengths: of an axis over all steps, in the corner of both at that"
    caption(
        figure,
        runs,
        "Queries and keys at several checkpoints, in one plane for each row.",
        f"{shares} step.",
    )
    return figure


def percent(share: float) -> str:
    return f"{100 * share:.0f} %" if np.isfinite(share) else "–"


def shown_blocks(run: Run, runs: int) -> list[int]:
    """Spread from the first to the last; of several runs the middle one."""
    blocks = run.results.block.values
    if runs > 1:
        return [int(blocks[len(blocks) // 2])]
    return blocks[np.unique(np.linspace(0, len(blocks) - 1, BLOCKS).round().astype(int))].tolist()


def shown_steps(steps: np.ndarray) -> list[int]:
    """The first, the last, and those between that are nearest to even steps of log(1 + step)."""
    places = np.log1p(steps)
    wanted = np.linspace(places[0], places[-1], COLUMNS)
    return steps[np.unique(np.abs(places - wanted[:, None]).argmin(axis=1))].tolist()


def scatter(ax: Axes, table: xr.Dataset) -> None:
    """The vectors; their means, each at the end of a line from the origin; how much of them the
    plane shows.
    """
    for zero in (ax.axhline, ax.axvline):
        zero(0, color="0.6", linewidth=0.6, zorder=1)
    clouds = {kind: table[f"{kind}_projection"].values.T for kind in LOOKS}
    for kind, look in LOOKS.items():
        ax.scatter(*clouds[kind], s=2.5, alpha=0.4, linewidths=0, label=WORDS[kind], **look)
    for kind, look in LOOKS.items():
        x, y = clouds[kind].mean(axis=1)
        ax.plot([0, x], [0, y], color=look["color"], linewidth=1)
        ax.plot(
            x,
            y,
            markersize=4,
            markeredgecolor="white",
            markeredgewidth=0.5,
            linestyle="none",
            **look,
        )
    kept = percent(float(table.projection_kept))
    ax.text(
        0.98, 0.02, kept, transform=ax.transAxes, ha="right", va="bottom", fontsize=6, color="0.4"
    )


def frame(axes: list[Axes], table: xr.Dataset) -> None:
    """The same square around all points and the origin, in all panels of a row."""
    points = np.concatenate(
        [table[f"{kind}_projection"].values.reshape(-1, 2) for kind in LOOKS] + [np.zeros((1, 2))]
    )
    low, high = np.nanmin(points, axis=0), np.nanmax(points, axis=0)
    # without numbers there is no scale
    middle, reach = (low + high) / 2, 0.54 * max(high - low) or 1.0
    for ax in axes:
        ax.set(
            xlim=(middle[0] - reach, middle[0] + reach),
            ylim=(middle[1] - reach, middle[1] + reach),
            aspect="equal",
        )
        ax.tick_params(labelleft=ax is axes[0])
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(MaxNLocator(3))
