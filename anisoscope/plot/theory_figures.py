"""Compare with theory: untrained blocks with a common bias, and a probe on curved manifolds."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anisoscope.plot import panel_axes, style
from anisoscope.plot.run_tables import INTERVAL
from anisoscope.sources.untrained_tables import keys_of_rows
from anisoscope.subspaces.curved_program import TARGETS

NAMES = {"pre": "pre-LN", "post": "post-LN", "raw": "raw rows", "normed": "layer-normed rows"}
RELATIVE = "bias norm /\ninput norm"
THEORY_ROWS = ("norm_order", "mask", "embedding")  # a row of panels for each combination
BIASED_ROWS = {"input": "input", "queries": "queries", "keys": "keys", "both": "queries and keys"}
RING_SIZES = (3, 7, 5, 3)  # nested rings, since two targets often have the same deviation
AGAINST_BIAS = {  # against the norm of the bias
    "cosine_in": "mean cosine in",
    "score_std": "SD of all scores",
    "score_std_within": "SD within rows",
    "attention_entropy": "entropy (nat)",
    "attention_max": "largest weight / uniform",
}
LOGARITHMIC = ("score_std", "score_std_within", "attention_max")

SIDES = {"tangent": style.OKABE_ITO[0], "normal": style.OKABE_ITO[1]}
LINES = {
    "target": {TARGETS[0]: "error by direction", TARGETS[1]: "constant error"},
    "weighting": {"none": "as drawn", "types": "each type once"},
}
THEORY_COLORS = ("0.3", style.OKABE_ITO[1])
THEORY_RECONSTRUCTED = (
    "Lines: predicted; that norms follow t and t² is a reconstruction after Bernas et al. 2026."
)
CURVED_TITLE = (
    "Gradient of a linear probe on points of known manifolds about a base point. Marks: measured, mean over seeds. "
    "Lines: predicted, to leading order; that norms follow t and t² is a reconstruction after Bernas et al. 2026. "
    "Below, left: a constant error has no tangent part, by symmetry; this counter-example is the project's own. Right: "
    "types drawn by frequency, exp(-b |u|²/2), which cuts the spread by sqrt(1 + b) and hides curvature; to count each "
    "type once brings back only what was drawn at all."
)


def in_and_out(name: str, results: xr.Dataset) -> Figure | None:
    """Draw mean cosine or norm after each block against that of the biased inputs."""
    if "input" not in results.target:
        return None
    rows = [*_combinations(results.sel(target="input"), "mask", "embedding")]
    blocks = results.block.values
    colors = panel_axes.patch_colors(len(blocks), first=1)
    figure = style.new_figure(style.PAGE_WIDTH, 0.5 + 2.3 * len(rows))
    axes = figure.subplots(len(rows), results.norm_order.size, squeeze=False)
    for row, (label, table) in zip(axes, rows, strict=True):
        for ax, (order, kind) in zip(row, _combinations(table, "norm_order"), strict=True):
            x = kind[f"{name}_in"].sel(statistic="mean").values
            ends = [0, 1] if name == "cosine" else [x.min() * 0.8, x.max() * 1.25]
            ax.plot(ends, ends, color="0.7", linewidth=0.8, zorder=1, label="unchanged")
            for block in blocks:
                color = colors.to_rgba(block) if len(blocks) > 1 else style.OKABE_ITO[1]
                look = {"color": color, "marker": "o", "markersize": 3}
                _measured(ax, x, kind.sel(block=block), f"{name}_out", **look)
            if name == "norm":
                _mark_fixed_point(ax, kind.isel(block=0))
                panel_axes.logarithmic(ax.xaxis, ax.yaxis)
            ax.set_title(f"{order}, {label}".replace("\n", " "), fontsize=style.SMALL_FONT)
            ax.set(xlabel=style.variable_label(results[f"{name}_in"]))
            ax.set(ylabel=style.variable_label(results[f"{name}_out"]))
            ax.legend(loc="upper left")
    if len(blocks) > 1:
        panel_axes.patch_bar(figure, colors, axes, "block")
    depth = f"1 to {len(blocks)} untrained blocks" if len(blocks) > 1 else "an untrained block"
    title = f"Mean {name} before and after {depth}, as a common bias grows"
    star = "; star: the fixed point of one block" * (name == "norm")
    shown = f"Mean {name} of the rows that enter and that leave {depth}; gray: unchanged{star}."
    return _finish(figure, results, title, shown)


def _mark_fixed_point(ax: Axes, after: xr.Dataset) -> None:
    """Draw a star where the lines cross, if seeds agree: nearly parallel lines cross anywhere."""
    point, low, high = (float(after.fixed_point.sel(statistic=end)) for end in INTERVAL)
    if np.isnan(point) or low <= 0:
        which = "of all seeds" if np.isnan(point) else "that seeds agree on"
        ax.plot([], [], linestyle="none", label=f"no fixed point {which}")
        return
    spread = f" ± {high - point:.1g}" if high - point >= 0.005 * point else ""
    look = {"marker": "*", "markersize": 10, "color": "black", "linestyle": "none"}
    ax.plot(point, point, label=f"fixed point {point:.3g}{spread}", **look)


def draw_sharpness(results: xr.Dataset) -> Figure:
    """Draw how a bias on input, queries, keys or both changes the scores and the attention."""
    rows = [*_combinations(results.isel(block=0), *THEORY_ROWS)]
    figure = style.new_figure(style.PAGE_WIDTH, 0.9 + 1.6 * len(rows))
    axes = figure.subplots(len(rows), len(AGAINST_BIAS), squeeze=False)
    for row, (text, table) in zip(axes, rows, strict=True):
        norms, keys = table.relative_norm.values, _keys_with_choice(results, table)
        weight = (1 / keys).mean()
        for (target, look), size in zip(
            style.run_styles(BIASED_ROWS).items(), RING_SIZES, strict=True
        ):
            if target not in table.target:
                continue
            look = look | {"markersize": size, "markerfacecolor": "none", "linestyle": "none"}
            kind = table.sel(target=target)
            for ax, name in zip(row, AGAINST_BIAS, strict=True):
                own = kind / weight if name == "attention_max" else kind
                _measured(ax, norms, own, name, **look, label=f"bias on {BIASED_ROWS[target]}")
                if "predicted" in own[name].statistic:
                    closed = own[name].sel(statistic="predicted")
                    ax.plot(norms, closed, color=look["color"], linewidth=0.9)
        for ax, name in zip(row, AGAINST_BIAS, strict=True):
            even = {"attention_entropy": np.log(keys).mean(), "attention_max": 1.0}.get(name)
            if even:
                ax.axhline(even, color="0.5", linestyle="--", label="uniform attention")
            if name in LOGARITHMIC:
                panel_axes.logarithmic(ax.yaxis)
            elif even:
                ax.set_ylim(0, even * 1.08)
            _bias_axis(ax, norms, RELATIVE if row is axes[-1] else "")
        row[0].set_ylabel(text, fontweight="bold")
    for ax, title in zip(axes[0], AGAINST_BIAS.values(), strict=True):
        style.panel_title(ax, title, 1.1)
    axes[0, 0].plot([], [], color="0.3", linewidth=0.9, label="closed form")
    style.legend(axes[:1])
    title = "An untrained block as a common bias grows"
    shown = "The same bias on the input of an untrained block, its queries, its keys, or on both"
    return _finish(figure, results, title, f"{shown}; lines without marks are closed forms.")


def _combinations(results: xr.Dataset, *dims: str) -> Iterator[tuple[str, xr.Dataset]]:
    """Yield the name and table of every combination of these dimensions' labels."""
    for labels in itertools.product(*(results[dim].values.tolist() for dim in dims)):
        name = ",\n".join(NAMES.get(label, label) for label in labels)
        yield name, results.sel(dict(zip(dims, labels, strict=True)))


def _bias_axis(ax: Axes, norms: np.ndarray, label: str) -> None:
    """Show relative norms of the bias on a log axis that also has room for 0."""
    positive = norms[norms > 0] if norms.any() else np.ones(1)
    ends = positive.min(), positive.max()
    ax.set_xscale("symlog", linthresh=ends[0], linscale=1)
    ax.set_xlim(-0.3 * ends[0], ends[1] * 1.6)
    ax.set_xticks(np.unique([norms.min(), *ends]))
    ax.set_xticks([], minor=True)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_xlabel(label)


def _measured(ax: Axes, x: np.ndarray, results: xr.Dataset, name: str, **look: Any) -> None:
    """Draw the mean over seeds with its interval as a band; a single seed has none."""
    ends = (results[name].sel(statistic=end).values for end in INTERVAL)
    style.plot_with_interval(ax, x, *ends, **look)


def _finish(figure: Figure, results: xr.Dataset, title: str, shown: str) -> Figure:
    made = f"Bands: {results['cosine_in'].attrs['interval']}; {results.attrs['description']}."
    return style.finish(figure, title, [made], shown)


def _keys_with_choice(results: xr.Dataset, table: xr.Dataset) -> np.ndarray:
    """Count the keys visible to each row that has several."""
    context = json.loads(results.attrs["config"])["context"]
    keys_T = keys_of_rows(str(table.mask.values), context)
    return keys_T[keys_T > 1]


def curved_manifolds(results: xr.Dataset) -> Figure:
    """Draw norms over the spread; below, the counter-example and sampling by frequency."""
    manifolds = results.manifold.values
    figure = style.new_figure(style.PAGE_WIDTH, 5.2)
    axes = figure.subplots(2, max(len(manifolds), 2))
    norms, (share, bias, *others) = axes[0, : len(manifolds)], axes[1]
    for ax in (*axes[0, len(manifolds) :], *others):
        ax.set_axis_off()
    marks = dict(zip(results.curvature.values, itertools.cycle("osD^"), strict=False))
    for ax, manifold in zip(norms, manifolds, strict=True):
        table = results.sel(manifold=manifold, target=TARGETS[0])
        for (side, color), (curvature, marker) in itertools.product(SIDES.items(), marks.items()):
            values = table[f"{side}_norm"].sel(curvature=curvature)
            label = f"{side}, curvature {curvature:g}"
            _draw(ax, table.spread.values, values, color, marker, label)
        ax.set(xlabel="spread t", title=manifold)
    panel_axes.fit_logarithmic(norms)
    axes[0, 0].set_ylabel("norm of the gradient")
    style.legend(axes[:1])
    first = results.isel(manifold=0).sel(curvature=float(results.curvature.max()))
    surface = f"{first.manifold.values} {float(first.curvature):g}"
    for ax, x, name, by, below in (
        (share, first.spread.values, "normal_share", "target", "spread t"),
        (bias, 1 + first.bias.values, "biased_normal_share", "weighting", "1 + b, b the bias"),
    ):
        for (at, label), marker, color in zip(LINES[by].items(), "so", THEORY_COLORS, strict=True):
            _draw(ax, x, first[name].sel({by: at}), color, marker, label)
        panel_axes.logarithmic(ax.xaxis, ax.yaxis)
        ax.set(xlabel=below, title=f"normal share of\nthe energy ({surface})")
        ax.legend()
    for ax in norms:
        panel_axes.logarithmic(ax.xaxis)
    made = f"Bars: {results['normal_norm'].attrs['interval']}; {results.attrs['description']}. {THEORY_RECONSTRUCTED}"
    title = "Tangent and normal gradient of a linear probe on curved manifolds"
    return style.finish(figure, title, [made], CURVED_TITLE)


def _draw(
    ax: Axes, x: np.ndarray, values: xr.DataArray, color: str, marker: str, label: str
) -> None:
    """Draw predicted values as a line, and measured values as marks with interval bars."""
    ends = ("mean", "low", "high", "predicted")
    mean, low, high, predicted = (values.sel(statistic=end).values for end in ends)
    ax.plot(x, predicted, linewidth=1.0, color=color)
    look = {"linestyle": "none", "marker": marker, "markersize": 3.5, "color": color}
    style.error_bars(ax, (x, x, x), (mean, low, high), label=label, **look)
