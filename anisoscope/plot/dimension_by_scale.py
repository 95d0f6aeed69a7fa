"""Does the intrinsic dimension depend on the scale at which it is looked for? Last checkpoint, beside a null model."""

from collections.abc import Iterable, Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator, ScalarFormatter

from anisoscope.measurement.tables.excess import nulls_in
from anisoscope.plot import rulers, style
from anisoscope.plot.provenance import caption
from anisoscope.plot.run import Run, at_last, bands, holding, interval, layers

COLUMNS = 2
MEASURED = {"linewidth": 0.9}
GAUSSIAN = {"linewidth": 0.8, "linestyle": "--"}


def build(runs: dict[str, Run]) -> Figure | None:
    """A panel per run: the curve of every layer, and of a Gaussian cloud that has the layer's spectrum."""
    runs = holding(runs, "gride")
    if not runs:
        return None
    columns = min(COLUMNS, len(runs))
    rows = -(-len(runs) // columns)
    figure = style.new(style.PAGE if columns > 1 else style.SINGLE, 1.0 + 2.1 * rows)
    strip, grid = style.below_a_strip(figure, rows, columns, 2.1)
    axes = grid.flat[: len(runs)]
    colours = rulers.layer_colours(max(run.results.sizes["layer"] for run in runs.values()))
    for ax, (label, run) in zip(axes, runs.items(), strict=True):
        curves(ax, run.results.isel(step=-1).sel(positions="all"), colours.to_rgba)
        ax.set_title(label)
    limits(axes)
    for ax in axes:
        ax.set_xticks(ranks := run.results.neighbours.values, [str(rank) for rank in ranks])
    for ax in grid.flat[len(runs) :]:
        ax.set_axis_off()
    for ax in grid[:, 0]:
        ax.set_ylabel("intrinsic dimension")
    for ax in axes[-columns:]:
        ax.set_xlabel("neighbour rank k (from $r_{2k}/r_k$)", parse_math=True)
    handles = key([run.results for run in runs.values()])
    strip.legend(handles=handles, loc="center", ncols=len(handles), columnspacing=1.2)
    style.title(figure, f"Dimension by scale{at_last(runs)}, all positions")
    rulers.patch_bar(figure, colours, grid, layers(runs, rulers.LAYER))
    shown = "Dimension by GRIDE from the neighbours k and 2k of each point: a line for each layer."
    caption(figure, runs, shown, bands(runs, "gride"))
    return figure


def key(tables: Iterable[xr.Dataset]) -> list[Line2D]:
    """What the lines are, for a legend."""
    looks = {"measured": MEASURED, "Gaussian cloud, same spectrum": GAUSSIAN}
    if not any("gaussian" in nulls_in(table) for table in tables):
        looks.popitem()
    return [Line2D([], [], color="0.2", label=label, **look) for label, look in looks.items()]


def curves(ax: Axes, last: xr.Dataset, colour: object) -> None:
    """Of every layer the dimensions by rank; dashed of a Gaussian cloud."""
    ranks = last.neighbours.values
    for layer in last.layer.values:
        own, curve = {"color": colour(layer)}, interval(last, "gride", layer=layer)
        style.banded(ax, ranks, *curve, **own, **MEASURED)
        if "gaussian" in nulls_in(last):
            excess, _, _ = interval(last, "gride", null="gaussian", layer=layer)
            ax.plot(ranks, curve[0] - excess, **own, **GAUSSIAN)


def limits(axes: Sequence[Axes]) -> None:
    """One scale for all, on logarithms; the lines decide, since a band may reach down to 0, which has no logarithm."""
    values = np.concatenate([line.get_ydata() for ax in axes for line in ax.lines])
    values = values[np.isfinite(values) & (values > 0)]
    for ax in axes:
        ax.set_xscale("log", base=2)
        if values.size:
            ax.set_yscale("log")
            ax.set_ylim(values.min() / 1.3, values.max() * 1.3)
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.yaxis.set_minor_locator(NullLocator())
            ax.yaxis.set_major_formatter(ScalarFormatter())
