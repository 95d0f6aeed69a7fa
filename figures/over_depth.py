"""Figures over the depth of a network: anisotropy, what carries it, and what of a value a null model has too."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from figures import scales, style
from figures.provenance import footer
from figures.run import NULLS, POSITIONS, Run, bands, holding, interval, last_step, nulls, positions, words
from panel.families import nulls_of

LARGEST = "\n(largest eigenvalue's share)"
EXCESS = ("anisotropy", "effective_rank", "twonn", "mean_cosine")
HEIGHT = 1.25  # inches of a row of excess


def anisotropy_profile(runs: dict[str, Run]) -> Figure | None:
    """Last checkpoint: a bell for decoders, flat for encoders? (Shape of Learning, 1)"""
    looks, runs = style.inks(runs), holding(runs, "anisotropy")
    if not runs:
        return None
    sides = positions(runs)
    figure = style.new(style.PAGE, 2.6)
    axes = figure.subplots(1, len(sides), sharey=True, squeeze=False)[0]
    for ax, side in zip(axes, sides, strict=True):
        for label, run in runs.items():
            last = run.results.isel(step=-1).sel(positions=side)
            style.banded(ax, last.depth.values, *interval(last, "anisotropy"), label=label, **looks[label])
        ax.set(title=POSITIONS[side], xlabel=scales.DEPTH)
    axes[0].set_ylim(bottom=0)
    axes[0].set_ylabel(words(runs, "anisotropy") + LARGEST)
    style.title(figure, "Anisotropy over depth, last checkpoint", bands(runs, "anisotropy"))
    style.legend(axes)
    footer(figure, runs)
    return figure


def anisotropy_by_checkpoint(runs: dict[str, Run]) -> Figure | None:
    """One curve per checkpoint: does it grow and settle? (Shape of Learning, 3 and 4)"""
    runs = holding(runs, "anisotropy")
    if not runs:
        return None
    sides = positions(runs)
    figure = style.new(style.PAGE, 0.6 + 1.4 * len(runs))
    axes = figure.subplots(len(runs), len(sides), sharey=True, squeeze=False)
    colours = scales.step_colours(last_step(runs))
    for row, (label, run) in zip(axes, runs.items(), strict=True):
        for ax, side in zip(row, sides, strict=True):
            for step in run.results.step.values:
                curve = interval(run.results, "anisotropy", step=step, positions=side)
                style.banded(ax, run.results.layer.values, *curve, color=colours.to_rgba(step), linewidth=1.1)
            ax.set_title(f"{label}, {POSITIONS[side]}")
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    for ax in axes[-1]:
        ax.set_xlabel(scales.LAYER)
    axes[0, 0].set_ylim(bottom=0)
    figure.supylabel(words(runs, "anisotropy") + LARGEST, fontsize=8, multialignment="center")
    style.title(figure, "Anisotropy over layers while training", bands(runs, "anisotropy"))
    scales.step_bar(figure, colours, axes)
    footer(figure, runs)
    return figure


def outlier_coordinates(runs: dict[str, Run]) -> Figure | None:
    """How much of the variance do a few coordinates carry, and how anisotropic is the cloud without them?"""
    looks, runs = style.inks(runs), holding(runs, "coordinate_share", "anisotropy_left_out")
    if not runs:
        return None
    tops = next(iter(runs.values())).results.top.values
    figure = style.new(style.PAGE, 4.0)
    axes = figure.subplots(2, len(tops), sharex=True, sharey="row")
    for label, run in runs.items():
        last = run.results.isel(step=-1).sel(positions="all")
        for top, (share, anisotropy) in zip(tops, axes.T, strict=True):
            in_them, without = (interval(last, name, top=top) for name in ("coordinate_share", "anisotropy_left_out"))
            style.banded(share, last.depth.values, *in_them, label=label, **looks[label])
            style.banded(anisotropy, last.depth.values, *without, **looks[label])
            if "anisotropy" in last:
                whole = {"color": looks[label]["color"], "linewidth": 0.9, "linestyle": ":"}
                anisotropy.plot(last.depth.values, interval(last, "anisotropy")[0], **whole)
    for top, ax in zip(tops, axes[0], strict=True):
        ax.set_title("top coordinate" if top == 1 else f"top {top} coordinates")
    axes[1, len(tops) // 2].set_xlabel(scales.DEPTH)
    for row in axes:
        row[0].set_ylim(bottom=0)
    axes[0, 0].set_ylabel("share of the\nvariance in them")
    axes[1, 0].set_ylabel("anisotropy without them\n(dotted: with them)")
    remark = bands(runs, "coordinate_share", "anisotropy_left_out")
    style.title(figure, "Outlier coordinates, last checkpoint, all positions", remark)
    style.legend(axes)
    footer(figure, runs)
    return figure


def excess_over_nulls(runs: dict[str, Run]) -> Figure | None:
    """What of a value would a featureless cloud, shuffled text or an untrained network have too? Last checkpoint."""
    looks, runs = style.inks(runs), {label: run for label, run in runs.items() if nulls(run.results)}
    names = [name for name in EXCESS if _having(runs, name)]
    if not names:
        return None
    models = [null for null in NULLS if any(null in nulls(run.results) for run in runs.values())]
    figure = style.new(style.PAGE, 0.9 + HEIGHT * len(names))
    axes = figure.subplots(len(names), len(models), sharex=True, sharey="row", squeeze=False)
    for row, name in zip(axes, names, strict=True):
        having = _having(runs, name)
        for ax, null in zip(row, models, strict=True):
            for label, run in having.items():
                if null in nulls(run.results):
                    curve = interval(run.results.isel(step=-1), name, less=null, positions="all")
                    style.banded(ax, run.results.depth.values, *curve, label=label, **looks[label])
            ax.axhline(0, color="0.5", linewidth=0.8, zorder=1)
            if not any(np.isfinite(line.get_ydata()).any() for line in ax.lines[:-1]):
                ax.text(0.5, 0.2, "has none", transform=ax.transAxes, ha="center", color="0.4", fontsize=7)
        row[0].set_ylabel(style.wrap(words(having, name), HEIGHT, 7), fontsize=7)
    for ax, null in zip(axes[0], models, strict=True):
        ax.set_title(NULLS[null])
    axes[-1, len(models) // 2].set_xlabel(scales.DEPTH)
    figure.supylabel("excess over the null model", fontsize=8)
    style.title(figure, "Excess over null models, last checkpoint, all positions", bands(runs, *names))
    style.legend(axes)
    footer(figure, runs)
    return figure


def _having(runs: dict[str, Run], name: str) -> dict[str, Run]:
    """The runs that have this quantity, and a null model that has it."""
    return {label: run for label, run in holding(runs, name).items() if {*nulls_of(name)} & {*nulls(run.results)}}
