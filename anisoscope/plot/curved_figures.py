"""A linear probe's gradient on curved manifolds: measured beside what theory predicts, the law and
where it fails.
"""

import itertools

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from anisoscope.plot import panel_axes, style
from anisoscope.subspaces.curved.curved_theory import SLOPES, TARGETS

SIDES = {"tangent": style.OKABE_ITO[0], "normal": style.OKABE_ITO[1]}
CASES = {TARGETS[0]: ("error by direction", "o"), TARGETS[1]: ("constant error", "s")}
WEIGHTED = {"none": ("as drawn", "o"), "types": ("each type once", "^")}
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


def build(results: xr.Dataset) -> Figure:
    """Norms over the spread for each manifold; below, the counter-example, sampling by frequency,
    and slopes.
    """
    manifolds, columns = results.manifold.values, max(results.sizes["manifold"], 3)
    figure = style.new(style.PAGE, 5.2)
    strip, axes = style.below_a_strip(figure, 2, columns, 1.8)
    for ax, manifold in zip(axes[0], manifolds, strict=False):
        _norms(ax, results.sel(manifold=manifold, target=TARGETS[0]))
    ends = np.array([ax.get_ylim() for ax in axes[0, : len(manifolds)]])
    for ax in axes[0, : len(manifolds)]:
        ax.set_ylim(ends.min(), ends.max())
    for ax in (*axes[0, len(manifolds) :], *axes[1, 3:]):
        ax.set_axis_off()
    axes[0, 0].set_ylabel("norm of the gradient")
    strip.legend(*style.entries(axes[0]), loc="center", ncols=4)
    most = float(results.curvature.max())
    _share(axes[1, 0], results.isel(manifold=0).sel(curvature=most))
    _bias(axes[1, 1], results.isel(manifold=0).sel(curvature=most))
    _slopes(axes[1, 2], results)
    figure.suptitle("Tangent and normal gradient of a linear probe on curved manifolds")
    made = f"Bars: {results['normal_norm'].attrs['interval']}; {results.attrs['description']}. {RECONSTRUCTED}"
    style.small_print(figure, [made])
    figure.set_label(f"{SHOWN}\n\n{made}")
    return figure


def _line(ax: Axes, x: np.ndarray, values: xr.DataArray, **look: str) -> None:
    """Predicted as a line, measured as marks, the interval as a bar."""
    mean, low, high, predicted = (
        values.sel(statistic=one).values for one in ("mean", "low", "high", "predicted")
    )
    label, marker = look.pop("label", None), look.pop("marker")
    ax.plot(x, predicted, linewidth=1.0, **look)
    error = np.nan_to_num(np.stack([mean - low, high - mean]))
    ax.errorbar(
        x, mean, error, linestyle="none", marker=marker, markersize=3.5, label=label, **look
    )


def _norms(ax: Axes, table: xr.Dataset) -> None:
    marks = dict(zip(table.curvature.values, itertools.cycle("osD^"), strict=False))
    for (side, color), (curvature, marker) in itertools.product(SIDES.items(), marks.items()):
        label = f"{side}, curvature {curvature:g}"
        values = table[f"{side}_norm"].sel(curvature=curvature)
        _line(ax, table.spread.values, values, color=color, marker=marker, label=label)
    panel_axes.logarithmic(ax.xaxis, ax.yaxis)
    ax.set(xlabel="spread t", title=str(table.manifold.values))


def _share(ax: Axes, table: xr.Dataset) -> None:
    for (target, (label, marker)), color in zip(CASES.items(), style.OKABE_ITO[2:], strict=False):
        values = table["normal_share"].sel(target=target)
        _line(ax, table.spread.values, values, color=color, marker=marker, label=label)
    _finish(ax, table, "spread t", "by spread", 100, "lower right")


def _bias(ax: Axes, table: xr.Dataset) -> None:
    for (weighting, (label, marker)), color in zip(
        WEIGHTED.items(), (*style.OKABE_ITO[1:2], "0.3"), strict=True
    ):
        values = table["biased_normal_share"].sel(weighting=weighting)
        _line(ax, 1 + table.bias.values, values, color=color, marker=marker, label=label)
    _finish(ax, table, "1 + b, b the bias", "by frequency", 3, "lower left")


def _finish(ax: Axes, table: xr.Dataset, below: str, by: str, room: float, corner: str) -> None:
    """Axes of a panel of shares, with `room` times the range of its values below them for the
    key.
    """
    which = f"{table.manifold.values} {float(table.curvature):g}"
    panel_axes.logarithmic(ax.xaxis, ax.yaxis)
    ax.set(xlabel=below, title=f"normal share of the energy\n{by} ({which})")
    ax.set_ylim(bottom=ax.get_ylim()[0] / room)
    ax.legend(loc=corner)


def _slopes(ax: Axes, results: xr.Dataset) -> None:
    """A mark for each manifold and curvature, with its interval."""
    names = [name for name in SLOPES if name.endswith("norm")]
    cells = list(itertools.product(results.manifold.values, results.curvature.values))
    for place, (manifold, curvature) in enumerate(cells):
        for name in names:
            values = results[f"slope_{name}"].sel(manifold=manifold, curvature=curvature)
            excess = values.sel(statistic=["mean", "low", "high"]).values - SLOPES[name]
            error = np.nan_to_num(np.abs(excess[1:, None] - excess[0]))
            color = SIDES[name.removesuffix("_norm")]
            shift = -0.12 if name == names[0] else 0.12
            ax.errorbar(
                excess[0], place + shift, xerr=error, color=color, marker="o", markersize=3.5
            )
    ax.axvline(0, color="0.6", linewidth=0.7, zorder=1)
    ax.set_yticks(range(len(cells)), [f"{manifold} {curvature:g}" for manifold, curvature in cells])
    ax.invert_yaxis()
    ax.xaxis.set_major_locator(MaxNLocator(4))
    ax.set(xlabel="slope less predicted", title="slopes\n(tangent 1, normal 2)")
