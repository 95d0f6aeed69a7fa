"""One quantity against another at the last checkpoint: do the layers, or the heads, that have much
of one have much of the other? Correlations stand in the caption, since many are looked at side by
side."""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from anisoscope.analysis import correlations
from anisoscope.plot import panel_axes, style
from anisoscope.plot.footer import caption
from anisoscope.plot.run_tables import (
    POSITIONS,
    Run,
    at_last,
    bands,
    embedded,
    holding,
    interval,
    positions,
    same,
    words,
)

SHARPNESS = ("attention_entropy", "attention_max", "score_std_within", "attention_first")
OF_KIND = "of this kind in correlations.csv"
CAUTION = (
    "Correlations, with 95 % intervals and p corrected after Holm for {}. They "
    "take the points for independent draws, which those of one network are not."
)


def cosine_against_drift(runs: dict[str, Run]) -> Figure | None:
    """A point per layer (Anisotropy Is Inherent to Self-Attention)."""
    looks, every, runs = style.inks(runs), runs, holding(runs, "mean_cosine", "drift")
    if not runs:
        return None
    sides, first = (
        positions(runs, "mean_cosine", "drift"),
        "embedding" if embedded(runs) else "first layer",
    )
    figure = style.new(style.PAGE if len(sides) > 1 else style.SINGLE, 2.8)
    axes = figure.subplots(1, len(sides), sharex=True, sharey=True, squeeze=False)[0]
    for ax, side in zip(axes, sides, strict=True):
        for label, run in runs.items():
            last = run.results.isel(step=-1).sel(positions=side)
            (drift, *across), (cosine, *upright) = (
                interval(last, "drift"),
                interval(last, "mean_cosine"),
            )
            ax.plot(drift, cosine, label=label, linestyle="none", **looks[label])
            bars = {"ecolor": looks[label]["color"], "elinewidth": 0.8, "fmt": "none"}
            ax.errorbar(drift, cosine, np.abs(upright - cosine), np.abs(across - drift), **bars)
            hollow = {
                "color": looks[label]["color"],
                "marker": looks[label]["marker"],
                "markerfacecolor": "white",
            }
            ax.plot(drift[:1], cosine[:1], linestyle="none", **hollow)
        ax.plot([], [], "o", color="0.3", markerfacecolor="white", label=first)
        ax.set(title=POSITIONS[side] if len(sides) > 1 else "", xlabel=words(runs, "drift"))
    axes[0].set_ylabel(words(runs, "mean_cosine"))
    style.title(figure, f"Mean cosine against drift{at_last(runs)}")
    style.legend(axes)
    lines = [line for side in sides for line in correlated(runs, ("mean_cosine",), side, every)]
    shown = f"A point for each layer; hollow: the {first}."
    further = [*same(runs, sides), *lines]
    caption(figure, runs, shown, bands(runs, "drift", "mean_cosine", what="bars"), further)
    return figure


def sharpness_against_alignment(runs: dict[str, Run]) -> Figure | None:
    """Are the heads whose queries and keys drift together the sharp ones? A point per head of every
    seed.
    """
    every, runs = runs, holding(runs, "query_key_alignment", *SHARPNESS)
    if not runs:
        return None
    figure = style.new(style.PAGE, 1.0 + 1.5 * len(runs))
    axes = figure.subplots(len(runs), len(SHARPNESS), sharex=True, sharey="col", squeeze=False)
    colours = panel_axes.block_colours(max(run.results.sizes["block"] for run in runs.values()))
    for row, (label, run) in zip(axes, runs.items(), strict=True):
        last = every_head(run.results)
        for ax, name in zip(row, SHARPNESS, strict=True):
            for block in last.block.values:
                (x, *across), (y, *upright) = (
                    interval(last, of, block=block) for of in ("query_key_alignment", name)
                )
                bars = {
                    "elinewidth": 0.6,
                    "fmt": "o",
                    "markersize": 2.5,
                    "color": colours.to_rgba(block),
                }
                ax.errorbar(x, y, np.abs(upright - y), np.abs(across - x), **bars)
        row[0].set_ylabel(f"{label}\n{count(run.results)}")
    for ax, name in zip(axes[0], SHARPNESS, strict=True):
        ax.set_title(style.wrap(words(runs, name), 1.4, style.SMALL), fontsize=style.SMALL)
    axes[0, 0].set(xlim=(-1.1, 1.1), xticks=(-1, 0, 1))  # all that a cosine can be
    for ax in axes[-1]:
        ax.set_xlabel(
            style.wrap(words(runs, "query_key_alignment"), 1.3, style.SMALL), fontsize=style.SMALL
        )
    style.title(figure, f"Sharpness against alignment of each head{at_last(runs)}, all positions")
    panel_axes.patch_bar(figure, colours, axes, "block")
    shown = (
        "A point for each head: how sharp is it, and how far do its queries and keys drift one way?"
    )
    bars = bands(runs, "query_key_alignment", *SHARPNESS, what="bars")
    caption(figure, runs, shown, bars, correlated(runs, SHARPNESS, "all", every))
    return figure


def correlated(
    runs: dict[str, Run], names: tuple[str, ...], side: str, every: dict[str, Run]
) -> list[str]:
    """A line for each run and quantity: its correlation at the last checkpoint, p as in
    correlations.csv of all.
    """
    (x,) = {x for x, y in correlations.PAIRS if y in names}
    kind = [x, *(y for one, y in correlations.PAIRS if one == x)]
    last = {label: int(run.results.step[-1]) for label, run in runs.items()}
    tables = {}
    for label, run in holding(every, x).items():
        held = run.results[[name for name in kind if name in run.results]]
        tables[label] = held.sel(
            step=held.step.isin([*last.values()]), positions=held.positions == side
        )
    table = correlations.correlations(tables)
    table = table[table.over.isin(["layers", "heads"])].set_index(["run", "step", "y"])
    rows = {
        (label, name): table.loc[(label, last[label], name)] for label in runs for name in names
    }
    tests = {row.tests for row in rows.values()}
    notes = {key: f" (of {row.tests})" * (len(tests) > 1) for key, row in rows.items()}
    about = CAUTION.format(
        f"the {max(tests)} {OF_KIND}" if len(tests) == 1 else f"as many {OF_KIND} as each line says"
    )
    lines = [
        f"{key[0]}, {words(runs, key[1])}{notes[key]}: {correlations.words(row)}"
        for key, row in rows.items()
    ]
    return [f"{POSITIONS[side].capitalize()}. {about}", *lines]


def every_head(results: xr.Dataset) -> xr.Dataset:
    """Of the last checkpoint, all positions: every head, those of further seeds beside those of the
    first.
    """
    last = results[["query_key_alignment", *SHARPNESS]].isel(step=-1).sel(positions="all")
    return (
        last.stack(any_head=("seed", "head"), create_index=False) if "seed" in last.dims else last
    )


def count(results: xr.Dataset) -> str:
    own, runs = results.sizes["block"] * results.sizes["head"], results.sizes.get("seed", 1)
    return f"{own} heads" + f" × {runs} runs" * (runs > 1)
