"""Figures of a training: loss and geometry from the log, gradients in activation subspaces."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from anisoscope.plot import panel_axes, style
from anisoscope.plot.render import render
from anisoscope.plot.run_tables import ENDS, Run, caption
from anisoscope.plot.specs import TANGENT_ENERGY, WATCHED_NAMES, Spec
from anisoscope.training.objective import OBJECTIVES
from anisoscope.training.watch import BLOCKS


def training_curve(runs: dict[str, Run]) -> Figure | None:
    """Draw bits per character of training batches and validation, separately for each objective."""
    looks, runs = style.run_styles(runs), {label: run for label, run in runs.items() if run.log}
    if not runs:
        return None
    objective = {label: run.results.attrs["objective"] for label, run in runs.items()}
    kinds = [kind for kind in OBJECTIVES if kind in objective.values()]
    figure = style.new_figure(style.PAGE * (0.65 if len(kinds) == 1 else 1), 2.6)
    axes = figure.subplots(1, len(kinds), squeeze=False)[0]
    for ax, kind in zip(axes, kinds, strict=True):
        last, frequencies = 0, set()
        for label in (label for label in runs if objective[label] == kind):
            log, color = runs[label].log, looks[label]["color"]
            ax.plot(*log_curve(log, "train"), color=color, linewidth=0.6, alpha=0.7)
            marks = {"markersize": 3, "linestyle": "none", "label": label}
            ax.plot(*log_curve(log, "valid"), **looks[label] | marks)
            last = max(
                [last, *(line["step"] for line in log if line["kind"] in ("train", "valid"))]
            )
            bits = [line["context_free_bits"] for line in log if "context_free_bits" in line]
            frequencies |= {round(value, 3) for value in bits[-1:]}
        for level in frequencies:
            look = {"color": "0.4", "linewidth": 0.8, "linestyle": ":"}
            ax.axhline(level, label="without context", **look)
        panel_axes.step_axis(ax, last)
        ax.set(title=f"predicting {OBJECTIVES[kind].label}", ylabel="bits per predicted character")
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


def watched(spec: Spec, runs: dict[str, Run]) -> Figure | None:
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
        if name in BLOCKS:
            values = np.pad(values, ((0, 0), (1, 0)), constant_values=np.nan)
        about = {"long_name": long_name, "units": units}
        variables[name] = xr.DataArray(values, dims=("step", "layer"), attrs=about)
    means = xr.Dataset(variables, {"step": sorted(lines)}, run.results.attrs)
    means = means.assign_coords(layer=range(means.sizes["layer"]))
    with xr.set_options(keep_attrs=True):  # NaN are the ends of an unknown interval
        return means.where(xr.DataArray([True, False, False], {"statistic": list(ENDS)}))


MOST_PANELS = 5  # panels beside each other
SUBSPACE, ROWS = "semi-NMF", "raw"  # what is drawn; the rest stands in the table
SUBSPACES = {
    "early": "the early activation subspace",
    "here": "the activation subspace fitted at the checkpoint",
}


def tangent_energy(runs: dict[str, Run]) -> Figure | None:
    """Draw energy and variance in subspaces of the runs with tangents.nc: the largest rank.

    Curves are over training steps with a panel for each layer; for models with a single checkpoint
    they are over layers.
    """
    tables, fits = {}, []
    for label, run in runs.items():
        if run.tangents is not None:
            table = run.tangents.sel(kind=SUBSPACE, rows=ROWS).isel(rank=-1)
            fits.append("early" if table["energy"].sel(fit="early").notnull().any() else "here")
            tables[label] = table.sel(fit=fits[-1])
    if not tables:
        return None
    attrs, spec = [table.attrs for table in tables.values()], TANGENT_ENERGY
    if all(table.sizes["step"] == 1 for table in tables.values()):
        spec = dataclasses.replace(spec, x="layer", columns="")
    else:  # some layers, the first and the last among them
        layers = max((table.layer.values for table in tables.values()), key=len)
        places = np.linspace(0, len(layers) - 1, min(MOST_PANELS, len(layers))).round().astype(int)
        tables = {
            label: table.sel(layer=table.layer.isin(layers[places]))
            for label, table in tables.items()
        }
    subspaces = _join(SUBSPACES[fit] for fit in fits)
    ranks = _join(
        f"rank {int(table['rank'])} of {table.attrs['width']}" for table in tables.values()
    )
    positions, windows = (
        _join(str(own[name]) for own in attrs) for name in ("positions", "windows")
    )
    early = _join(steps for own in attrs if (steps := own["early_steps"][1:-1]))
    steps = f"Early: steps {early}." if early else "There are no early subspaces."
    spec = dataclasses.replace(
        spec,
        title=spec.title.format(subspaces),
        shown=spec.shown.format(subspaces),
        note=f"Subspaces: {SUBSPACE}, {ranks}. {spec.note}",
        further=(f"Positions: {positions}; windows: {windows}. {steps}",),
    )
    return render(spec, {label: Run(table, []) for label, table in tables.items()})


def _join(words: Iterable[str]) -> str:
    """Join the different sentences of runs, each once."""
    return " or ".join(dict.fromkeys(words))
