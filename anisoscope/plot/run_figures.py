"""Figures of runs that no spec says: logs, gradients in subspaces, similarity of layers."""

import dataclasses
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from anisoscope.config.run_config import OBJECTIVE_LABELS, WATCHED_BLOCKS
from anisoscope.metrics.quantity import PERMUTED
from anisoscope.plot import panel_axes, style
from anisoscope.plot.render import render
from anisoscope.plot.run_tables import (
    INTERVAL,
    POSITION_LABELS,
    Run,
    at_last,
    caption,
    layers_label,
    runs_with,
)
from anisoscope.plot.specs import TANGENT_ENERGY, WATCHED_NAMES, Spec
from anisoscope.results.frame import excess_of, nulls_in


def training_curve(runs: dict[str, Run]) -> Figure | None:
    """Draw bits per character of training batches and validation, separately for each objective."""
    looks, runs = style.run_styles(runs), {label: run for label, run in runs.items() if run.log}
    if not runs:
        return None
    objective = {label: run.results.attrs["objective"] for label, run in runs.items()}
    kinds = [kind for kind in OBJECTIVE_LABELS if kind in objective.values()]
    figure = style.new_figure(style.PAGE_WIDTH * (0.65 if len(kinds) == 1 else 1), 2.6)
    axes = figure.subplots(1, len(kinds), squeeze=False)[0]
    for ax, kind in zip(axes, kinds, strict=True):
        last, frequencies = 0, set()
        for label in (label for label in runs if objective[label] == kind):
            log, color = runs[label].log, looks[label]["color"]
            ax.plot(*log_curve(log, "train"), color=color, linewidth=0.6, alpha=0.7)
            marks = {"markersize": 3, "linestyle": "none", "label": label}
            ax.plot(*log_curve(log, "valid"), **looks[label] | marks)
            last = max([last, *(line["step"] for line in log)])
            bits = [line["context_free_bits"] for line in log if "context_free_bits" in line]
            frequencies |= {round(value, 3) for value in bits[-1:]}
        for level in frequencies:
            look = {"color": "0.4", "linewidth": 0.8, "linestyle": ":"}
            ax.axhline(level, label="without context", **look)
        panel_axes.step_axis(ax, last)
        ax.set(title=f"predicting {OBJECTIVE_LABELS[kind]}", ylabel="bits per predicted character")
    style.legend(axes)
    style.title(figure, "Bits per predicted character while training")
    read = (
        "Lines: training batches; marks: validation; "
        "dotted: what frequencies of characters alone give."
    )
    warning = " Bits of the two objectives are not comparable." * (len(kinds) > 1)
    caption(figure, runs, "Loss while training.", read + warning)
    return figure


def log_curve(log: list[dict[str, Any]], kind: str) -> tuple[list[int], list[float]]:
    """Return steps and bits of lines of this kind; for a repeated step the later line counts."""
    bits = {line["step"]: line["bits_per_character"] for line in log if line["kind"] == kind}
    return sorted(bits), [bits[step] for step in sorted(bits)]


def draw_watched(spec: Spec, runs: dict[str, Run]) -> Figure | None:
    """Draw the logged geometry: a row for each run, a column per quantity, a line per layer."""
    tables = {label: table for label, run in runs.items() if (table := watch_table(run))}
    return render(spec, {label: Run(table, []) for label, table in tables.items()})


def watch_table(run: Run) -> xr.Dataset | None:
    """Convert the logged geometry to the form of results.nc, without intervals.

    Blocks are layers from 1. The step is that of the parameters before the logged update.
    """
    lines = {line["step"] - 1: line for line in run.log if line["kind"] == "watch"}
    if not lines:
        return None
    variables = {}
    for name, (long_name, units) in WATCHED_NAMES.items():
        values = np.array([lines[step][name] for step in sorted(lines)], float)
        if name in WATCHED_BLOCKS:
            values = np.pad(values, ((0, 0), (1, 0)), constant_values=np.nan)
        attributes = {"long_name": long_name, "units": units}
        variables[name] = xr.DataArray(values, dims=("step", "layer"), attrs=attributes)
    means = xr.Dataset(variables, {"step": sorted(lines)}, run.results.attrs)
    means = means.assign_coords(layer=range(means.sizes["layer"]))
    with xr.set_options(keep_attrs=True):  # NaN are the ends of an unknown interval
        return means.where(xr.DataArray([True, False, False], {"statistic": list(INTERVAL)}))


MOST_PANELS = 5  # panels side by side
SUBSPACE, RAW_ROWS = "semi-NMF", "raw"  # what is drawn; the table has the rest


def tangent_energy(runs: dict[str, Run]) -> Figure | None:
    """Draw energy and variance in subspaces of the runs with tangents.nc: the largest rank.

    Curves are over training steps with a panel for each layer; for models with a single checkpoint
    they are over layers.
    """
    tables, facts = {}, {}
    for label, run in runs.items():
        if run.tangents is not None:
            table = run.tangents.sel(kind=SUBSPACE, rows=RAW_ROWS).isel(rank=-1)
            early = table["energy"].sel(fit="early").notnull().any()
            tables[label] = table.sel(fit="early" if early else "here")
            fitted = f"at steps {table.early_steps[1:-1]}" if early else "at the checkpoint itself"
            fact = f"rank {int(table['rank'])} of {table.width}, fitted {fitted}"
            facts[f"{fact}; positions: {table.positions}; windows: {table.windows}"] = None
    if not tables:
        return None
    spec, note = TANGENT_ENERGY, f"Subspaces: {SUBSPACE}, {' or '.join(facts)}."
    if all(table.sizes["step"] == 1 for table in tables.values()):
        spec = dataclasses.replace(spec, x="layer", columns="")
    else:  # some layers, the first and the last among them
        layers = max((table.layer.values for table in tables.values()), key=len)
        places = np.linspace(0, len(layers) - 1, min(MOST_PANELS, len(layers))).round().astype(int)
        tables = {
            label: table.sel(layer=table.layer.isin(layers[places]))
            for label, table in tables.items()
        }
    spec = dataclasses.replace(spec, note=f"{note} {spec.note}")
    return render(spec, {label: Run(table, []) for label, table in tables.items()})


MEASURES = {"cka_unbiased": "linear CKA without bias", "neighbor_overlap": "neighborhood overlap"}
VISIBLE = 0.1  # change of a similarity


def layer_similarity(runs: dict[str, Run]) -> Figure | None:
    """Draw a row of heat maps for each run at the last checkpoint."""
    measures = {f"{name}_layers": text for name, text in MEASURES.items()}
    runs, place = runs_with(runs, *measures), {"positions": "all", "statistic": "mean"}
    if not runs:
        return None
    last = {label: run.results.isel(step=-1).sel(place) for label, run in runs.items()}
    rows = {label: [table[name] for name in measures] for label, table in last.items()}
    words = layers_label(runs, panel_axes.LAYER_LABEL)
    figure = _draw_heat_maps(rows, list(measures.values()), words, words)
    style.title(figure, f"Similarity of layers{at_last(runs)}, all positions")
    shown = "Every layer against every other, at the last checkpoint: how alike are their clouds?"
    null = [_format_permuted(label, table, measures) for label, table in last.items()]
    caption(figure, runs, shown, " ".join(filter(None, null)))
    return figure


def _format_permuted(label: str, last: xr.Dataset, measures: dict[str, str]) -> str:
    """Format the largest similarity of two different layers with permuted windows."""
    parts = []
    for name, text in measures.items() if PERMUTED in nulls_in(last) else ():
        null = (last[name] - excess_of(last, name, PERMUTED)).values
        null = null[~np.eye(len(null), dtype=bool) & np.isfinite(null)]
        if null.size:
            parts.append(f"{text} {null.max():.2f}")
    start = f"{label}, windows of one layer in another order, at most"
    return f"{start}: {', '.join(parts)}." if parts else ""


def model_similarity(table: xr.Dataset) -> Figure:
    """Draw two models against each other, and with permuted windows of the first.

    A row for each measure, repeated without the first token if the map changes: a single massive
    vector can hide all others from CKA.
    """
    attrs, rows, widths = table.attrs, {}, {name: [] for name in MEASURES}
    for name, words in MEASURES.items():
        mean, low, high = (table[name].sel(statistic=end) for end in INTERVAL)
        null = mean - excess_of(table, name, PERMUTED).sel(statistic="mean")
        change = abs(mean.sel(positions="without_first_token") - mean.sel(positions="all")).max()
        for side in ["all", "without_first_token"][: 1 + bool(change > VISIBLE)]:
            maps = [mean.sel(positions=side), null.sel(positions=side)]
            rows[f"{words}\n{POSITION_LABELS[side]}"] = maps
            widths[name].append((high - low).sel(positions=side).max().item() / 2)
    titles = ["the same text", "windows of one\nin another order"]
    first, second = (f"{attrs[place]}: layer" for place in ("first", "second"))
    figure = _draw_heat_maps(rows, titles, first, second)
    sample = f"{attrs['measure.points']:,} points × {attrs['measure.batches']} batches"
    facts = [f"{attrs['corpus']}; {sample}"]
    facts += [f"{attrs[place]}: {attrs[f'{place}_model']}" for place in ("first", "second")]
    known = {name: np.nanmax(own) for name, own in widths.items() if np.isfinite(own).any()}
    reach = ", ".join(f"{MEASURES[name]} {half:.2f}" for name, half in known.items())
    points = attrs.get("points_are", "on the same characters of the same windows")
    shown = (
        f"Every layer of one model against every layer of the other, {points}; layer 0 is the embedding. "
        "Right: the null model, in which the windows of the first are in another order."
    )
    width = f" Largest half-widths of the 95 % intervals, windows resampled: {reach}."
    title = f"Layers of {attrs['first']} and {attrs['second']}"
    return style.finish(figure, title, facts, shown + width * bool(known))


def _draw_heat_maps(
    rows: dict[str, list[xr.DataArray]], titles: list[str], upward: str, across: str
) -> Figure:
    """Draw rows of maps of layers against layers, on one scale from 0 to 1 with its bar."""
    figure = style.new_figure(0.75 * style.PAGE_WIDTH, 0.8 + 2.2 * len(rows))
    axes = figure.subplots(len(rows), len(titles), squeeze=False)
    colors = ScalarMappable(Normalize(0, 1), "viridis")
    for row, (label, maps) in zip(axes, rows.items(), strict=True):
        row[0].set_ylabel(f"{label}\n{upward}")
        for ax, values in zip(row, maps, strict=True):
            look = {"cmap": colors.cmap, "norm": colors.norm, "origin": "lower", "aspect": "auto"}
            ax.imshow(values, **look)
            ax.grid(False)
            for axis in (ax.xaxis, ax.yaxis):
                axis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    for ax, below, title in zip(axes[0], axes[-1], titles, strict=True):
        ax.set_title(title)
        below.set_xlabel(across)
    figure.colorbar(colors, ax=axes, label="similarity (1: the same)", fraction=0.05, pad=0.02)
    return figure
