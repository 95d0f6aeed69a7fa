"""Does the intrinsic dimension depend on the scale at which it is looked for? Last checkpoint, beside a null model."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, ScalarFormatter

from figures import scales, style
from figures.provenance import footer
from figures.run import NULLS, Run, bands, holding, interval, nulls


def build(runs: dict[str, Run]) -> Figure | None:
    runs = holding(runs, "gride", "plateau")
    if not runs:
        return None
    gaussian = any("gaussian" in nulls(run.results) for run in runs.values())
    figure = style.new(style.PAGE, 0.8 + 1.8 * len(runs))
    axes = figure.subplots(len(runs), 1 + gaussian, sharex=True, sharey=True, squeeze=False)
    colours = scales.layer_colours(max(run.results.sizes["layer"] for run in runs.values()))
    for row, (label, run) in zip(axes, runs.items(), strict=True):
        last = run.results.isel(step=-1).sel(positions="all")
        ranks = last.neighbours.values
        for layer in last.layer.values:
            look, curve = {"color": colours.to_rgba(layer), "linewidth": 0.9}, interval(last, "gride", layer=layer)
            style.banded(row[0], ranks, *curve, **look)
            least, most = (last[f"plateau_{end}"].sel(layer=layer).item() for end in ("first", "last"))
            on = (ranks >= least) & (ranks <= most)
            row[0].plot(ranks[on], curve[0][on], **look | {"linewidth": 3})
            if "gaussian" in nulls(last):
                excess, _, _ = interval(last, "gride", less="gaussian", layer=layer)
                row[1].plot(ranks, curve[0] - excess, **look | {"linestyle": "--"})
        row[0].set_title(verdict(last))
        row[0].set_ylabel(f"{label}\nintrinsic dimension")
        if gaussian:
            row[1].set_title(NULLS["gaussian"].replace("\n", " "))
    numbers = any(np.isfinite(line.get_ydata()).any() for ax in axes.flat for line in ax.lines)
    for ax in axes.flat:
        ax.set_xscale("log", base=2)
        ax.set_xticks(ranks, [str(rank) for rank in ranks])
        if numbers:  # nothing has no logarithm
            _dimensions(ax)
    for ax in axes[-1]:
        ax.set_xlabel("neighbour rank k (from $r_{2k}/r_k$)")
    style.title(figure, "Dimension by scale, last checkpoint, all positions", bands(runs, "gride"))
    scales.layer_bar(figure, colours, axes)
    footer(figure, runs)
    return figure


def verdict(last: xr.Dataset) -> str:
    found = int(np.isfinite(last["plateau_first"].values).sum())
    words = f"plateau (thick) in {found} of {last.sizes['layer']} layers" if found else "no plateau in any layer"
    return f"measured: {words}"


def _dimensions(ax: Axes) -> None:
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(ScalarFormatter())
