"""A linear probe's gradient on curved manifolds: measured against theory, the law and its limit."""

import itertools

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from anisoscope.plot import panel_axes, style
from anisoscope.subspaces.curved_theory import SLOPES, TARGETS

SIDES = {"tangent": style.OKABE_ITO[0], "normal": style.OKABE_ITO[1]}
SHARES = {TARGETS[0]: "error by direction", TARGETS[1]: "constant error"}
WEIGHTED = {"none": "as drawn", "types": "each type once"}
RECONSTRUCTED = (
    "Lines: predicted; that norms follow t and t² is a reconstruction after Bernas et al. 2026."
)
SHOWN = (
    "Gradient of a linear probe on points of known manifolds about a base point. Marks: measured, mean over seeds. "
    "Lines: predicted, to leading order. Above: norms follow t and t², a reconstruction after Bernas et al. 2026. "
    "Below, left: where the error is constant, the tangent part vanishes by symmetry: all of the gradient is normal "
    "at every spread; this counter-example is the project's own. Middle: types drawn by frequency, exp(-b |u|²/2), "
    "which cuts the spread by sqrt(1 + b) and hides curvature; to count each type once brings back only what was drawn "
    "at all. Right: slopes of ln norm on ln t, with their intervals."
)


def curved_manifolds(results: xr.Dataset) -> Figure:
    """Draw norms over the spread; below, the counter-example, sampling by frequency, and slopes."""
    manifolds, columns = results.manifold.values, max(results.sizes["manifold"], 3)
    figure = style.new_figure(style.PAGE, 5.2)
    strip, axes = style.grid_below_legend(figure, 2, columns, 1.8)
    for ax, manifold in zip(axes[0], manifolds, strict=False):
        _draw_norms(ax, results.sel(manifold=manifold, target=TARGETS[0]))
    ends = np.array([ax.get_ylim() for ax in axes[0, : len(manifolds)]])
    for ax in axes[0, : len(manifolds)]:
        ax.set_ylim(ends.min(), ends.max())
    for ax in (*axes[0, len(manifolds) :], *axes[1, 3:]):
        ax.set_axis_off()
    axes[0, 0].set_ylabel("norm of the gradient")
    strip.legend(*style.legend_entries(axes[0]), loc="center", ncols=4)
    first = results.isel(manifold=0).sel(curvature=float(results.curvature.max()))
    share, bias, slopes = axes[1, :3]
    for (target, label), marker, color in zip(
        SHARES.items(), "os", style.OKABE_ITO[2:4], strict=True
    ):
        values = first["normal_share"].sel(target=target)
        _draw(share, first.spread.values, values, color, marker, label)
    for (weighting, label), marker, color in zip(
        WEIGHTED.items(), "o^", (style.OKABE_ITO[1], "0.3"), strict=True
    ):
        values = first["biased_normal_share"].sel(weighting=weighting)
        _draw(bias, 1 + first.bias.values, values, color, marker, label)
    surface = f"{first.manifold.values} {float(first.curvature):g}"
    for ax, below, by, room, corner in (
        (share, "spread t", "by spread", 100, "lower right"),
        (bias, "1 + b, b the bias", "by frequency", 3, "lower left"),
    ):
        panel_axes.logarithmic(ax.xaxis, ax.yaxis)
        ax.set(xlabel=below, title=f"normal share of the energy\n{by} ({surface})")
        ax.set_ylim(bottom=ax.get_ylim()[0] / room)  # for the legend
        ax.legend(loc=corner)
    _draw_slopes(slopes, results)
    made = f"Bars: {results['normal_norm'].attrs['interval']}; {results.attrs['description']}. {RECONSTRUCTED}"
    title = "Tangent and normal gradient of a linear probe on curved manifolds"
    return style.finish(figure, title, [made], SHOWN)


def _draw(
    ax: Axes, x: np.ndarray, values: xr.DataArray, color: str, marker: str, label: str
) -> None:
    """Draw predicted values as a line, and measured values as marks with interval bars."""
    ends = ("mean", "low", "high", "predicted")
    mean, low, high, predicted = (values.sel(statistic=end).values for end in ends)
    ax.plot(x, predicted, linewidth=1.0, color=color)
    error = np.nan_to_num(np.stack([mean - low, high - mean]))
    look = {"linestyle": "none", "marker": marker, "markersize": 3.5, "color": color}
    ax.errorbar(x, mean, error, label=label, **look)


def _draw_norms(ax: Axes, table: xr.Dataset) -> None:
    marks = dict(zip(table.curvature.values, itertools.cycle("osD^"), strict=False))
    for (side, color), (curvature, marker) in itertools.product(SIDES.items(), marks.items()):
        values = table[f"{side}_norm"].sel(curvature=curvature)
        _draw(ax, table.spread.values, values, color, marker, f"{side}, curvature {curvature:g}")
    panel_axes.logarithmic(ax.xaxis, ax.yaxis)
    ax.set(xlabel="spread t", title=str(table.manifold.values))


def _draw_slopes(ax: Axes, results: xr.Dataset) -> None:
    """Draw a mark for each manifold and curvature, with its interval."""
    cells = list(itertools.product(results.manifold.values, results.curvature.values))
    for place, (manifold, curvature) in enumerate(cells):
        for (side, color), shift in zip(SIDES.items(), (-0.12, 0.12), strict=True):
            values = results[f"slope_{side}_norm"].sel(manifold=manifold, curvature=curvature)
            excess = values.sel(statistic=["mean", "low", "high"]).values - SLOPES[f"{side}_norm"]
            error = np.nan_to_num(np.abs(excess[1:, None] - excess[0]))
            look = {"color": color, "marker": "o", "markersize": 3.5}
            ax.errorbar(excess[0], place + shift, xerr=error, **look)
    ax.axvline(0, color="0.6", linewidth=0.7, zorder=1)
    ax.set_yticks(range(len(cells)), [f"{manifold} {curvature:g}" for manifold, curvature in cells])
    ax.invert_yaxis()
    ax.xaxis.set_major_locator(MaxNLocator(4))
    ax.set(xlabel="slope minus predicted", title="slopes\n(tangent 1, normal 2)")
