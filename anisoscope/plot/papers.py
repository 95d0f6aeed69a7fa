"""Figures of two papers, of many pretrained models: depth and training by kind, cosine and drift by
modality.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from anisoscope.analysis import correlations
from anisoscope.plot import panel_axes, style
from anisoscope.plot.footer import caption
from anisoscope.plot.render import render
from anisoscope.plot.run_tables import (
    POSITIONS,
    Run,
    at_last,
    bands,
    holding,
    interval,
    layers,
    positions,
    same,
    words,
)
from anisoscope.plot.specs import LARGEST, SPECS

KINDS = {"encoder": "encoders", "decoder": "decoders"}
LEAST = 1.3  # inches of a row
LONG = 30  # times its lower end: a log axis that needs decades alone
OF_NAME = 0.16  # inches of a name in a legend
CAUTION = (
    "Correlations with 95 % intervals, and p corrected after Holm. All layers together are taken for independent "
    "draws, which those of one model are not; within models, the interval is over models. Which of them the paper "
    "pooled is not known here: a reconstruction."
)


class Model(NamedTuple):
    run: Run
    modality: str  # one of pretrained.models.MODALITIES
    kind: str  # encoder or decoder


def anisotropy_over_depth(models: dict[str, Model]) -> Figure | None:
    """Encoders beside decoders, a line for each model: a bell, or flat? (Shape of Learning, 1)"""
    runs = holding({label: one.run for label, one in models.items()}, "anisotropy")
    if not runs:
        return None
    looks = style.inks(runs)
    kinds = [kind for kind in KINDS if any(models[label].kind == kind for label in runs)]
    sides = [side for side in positions(runs, "anisotropy") if side != "without_special"]
    height = max(2.2 * len(sides), OF_NAME * (len(runs) + len(kinds) + 1))
    figure = style.new(style.PAGE, 0.5 + height)
    axes = figure.subplots(len(sides), len(kinds), sharex=True, sharey=True, squeeze=False)
    for row, side in zip(axes, sides, strict=True):
        for ax, kind in zip(row, kinds, strict=True):
            for label in (label for label in runs if models[label].kind == kind):
                last = runs[label].results.isel(step=-1).sel(positions=side)
                curve = interval(last, "anisotropy")
                style.banded(ax, last.depth.values, *curve, label=label, **looks[label])
            ax.set_title(KINDS[kind] + f", {POSITIONS[side]}" * (len(sides) > 1))
        row[0].set_ylabel(LARGEST)
    for ax in axes[-1]:
        ax.set_xlabel(layers(runs, panel_axes.DEPTH))
    panel_axes.fit(axes.flat, zero=True)
    style.title(figure, f"Anisotropy over depth{at_last(runs)}")
    handles, names = [], []
    for ax, kind in zip(axes[0], kinds, strict=True):
        own, called = style.entries([ax])
        handles, names = (
            [*handles, Line2D([], [], linestyle="none"), *own],
            [*names, KINDS[kind], *called],
        )
    figure.legend(handles, names, loc="outside right upper")
    shown = "Share of the largest eigenvalue in the variance of each layer's vectors: a line for each model."
    caption(figure, runs, shown, bands(runs, "anisotropy"), same(runs, sides))
    return figure


def of_training(
    build: Callable[[dict[str, Run]], Figure | None],
) -> Callable[[dict[str, Model]], Figure | None]:
    """The same of the models that have several revisions."""
    return lambda models: build(
        {label: one.run for label, one in models.items() if one.run.results.sizes["step"] > 1}
    )


def cosine_and_drift(models: dict[str, Model]) -> Figure | None:
    """A row for each modality: mean cosine over depth, and against the norm of the mean vector
    (Inherent).
    """
    runs = holding({label: one.run for label, one in models.items()}, "mean_cosine", "drift")
    if not runs:
        return None
    kinds = list(dict.fromkeys(models[label].modality for label in runs))
    members = {kind: [label for label in runs if models[label].modality == kind] for kind in kinds}
    tables = {label: run.results for label, run in runs.items()}
    table = correlations.by_modality(tables, {label: models[label].modality for label in runs})
    heights = [max(LEAST, 0.5 + OF_NAME * len(own)) for own in members.values()]
    figure = style.new(style.PAGE, 0.9 + sum(heights))
    axes = figure.subplots(
        len(kinds), 2, sharex="col", sharey=True, squeeze=False, height_ratios=heights
    )
    for row, (kind, own) in zip(axes, members.items(), strict=True):
        _of_modality(row, {label: runs[label] for label in own})
        row[0].set_title(kind)
        row[0].set_ylabel(
            style.wrap(words(runs, "mean_cosine"), LEAST - 0.3, style.RC["font.size"])
        )
        row[1].set_title(_correlated(table, kind), fontsize=style.SMALL)
        style.legend(row)
    axes[-1, 0].set_xlabel(layers(runs, panel_axes.DEPTH))
    axes[-1, 1].set_xlabel(words(runs, "drift"))
    _decades(axes[-1, 1])
    panel_axes.fit(axes.flat, zero=True)
    style.title(figure, f"Mean cosine over depth and against drift{at_last(runs)}, all positions")
    shown = (
        "Left, mean cosine of pairs in each layer. Right, the same against the norm of the mean vector: a point for "
        "each layer, hollow the first. ρ is Spearman's rank correlation."
    )
    caption(
        figure,
        runs,
        shown,
        bands(runs, "drift", "mean_cosine", what="bands and bars"),
        _lines(table),
    )
    return figure


def _of_modality(row: np.ndarray, runs: dict[str, Run]) -> None:
    depth, against = row
    for (label, run), look in zip(runs.items(), style.inks(runs).values(), strict=True):
        last = run.results.isel(step=-1).sel(positions="all")
        (drift, *across), (cosine, *upright) = (
            interval(last, "drift"),
            interval(last, "mean_cosine"),
        )
        style.banded(depth, last.depth.values, cosine, *upright, label=label, **look)
        bars = {"ecolor": look["color"], "elinewidth": 0.8, "fmt": "none"}
        against.errorbar(drift, cosine, np.abs(upright - cosine), np.abs(across - drift), **bars)
        against.plot(drift[1:], cosine[1:], linestyle="none", **look)
        against.plot(drift[:1], cosine[:1], linestyle="none", **look, markerfacecolor="white")
    against.set_xscale("log")


def _decades(ax: Axes) -> None:
    """A log axis whose numbers have room; of a short one there are numbers between decades."""
    low, high = ax.get_xlim()
    ax.xaxis.set_major_locator(LogLocator(subs=(1,) if high > LONG * low else (1, 2, 5)))
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())


def _correlated(table: pd.DataFrame, kind: str) -> str:
    """Rank correlation of all points, and the mean of those within models."""
    own = table[(table.modality == kind) & (table.positions == "all")].set_index("over")
    pooled, within = own.loc[correlations.POOLED], own.loc[correlations.WITHIN]
    if np.isnan(pooled.spearman):
        return "too few points to correlate"
    said = f"all points: {correlations.value(pooled, 'spearman')}"
    return said + (
        f"\nwithin models: {correlations.value(within, 'spearman')}" if within.n > 1 else ""
    )


def _lines(table: pd.DataFrame) -> list[str]:
    """Of every modality and set of positions, for the caption."""
    lines = [CAUTION]
    for _, row in table[table.over != "layers"].iterrows():
        if row.over == correlations.POOLED:
            said = f"all layers of {row.models} models, {correlations.words(row)}"
        elif row.over == correlations.MODELS:
            said = f"a point for each model, {correlations.words(row)}"
        else:
            said = f"within models, mean of {row.n:.0f}, {correlations.both(row)}" if row.n else ""
        lines += [f"{row.modality}, {POSITIONS[row.positions]}: {said}."] * bool(said)
    return lines


# Of each paper: the file's name and what draws it.
FIGURES: dict[str, dict[str, Callable[[dict[str, Model]], Figure | None]]] = {
    "shape_of_learning": {
        "anisotropy_over_depth": anisotropy_over_depth,
        "dimension_over_training": of_training(partial(render, SPECS["dimension_over_training"])),
        "anisotropy_by_checkpoint": of_training(partial(render, SPECS["anisotropy_by_checkpoint"])),
    },
    "inherent": {"cosine_and_drift": cosine_and_drift},
}
