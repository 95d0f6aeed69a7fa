"""Figures of a training: loss and geometry from the log, signs of a sink from tables."""

import dataclasses
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from anisoscope.measurement.families.attention_family import SINK_FROM
from anisoscope.plot import panel_axes, style
from anisoscope.plot.footer import caption
from anisoscope.plot.render import render
from anisoscope.plot.run_tables import ENDS, Run
from anisoscope.plot.specs import SINKS, WATCHED_NAMES, Spec
from anisoscope.training.objective import OBJECTIVES
from anisoscope.training.watch import BLOCKS

WITHOUT_FIRST = "_without_first_token"
SINK_SIGNS = {  # variable -> long name, quantity, dimension over which the largest is taken
    "norm_ratio": ("largest norm over the median", "norm_ratio", "layer"),
    "attention_first_token": (
        *("weight on the first token, largest head", "attention_first_token", "block"),
    ),
    "sink_heads": ("share of sink heads, largest block", "sink_heads", "block"),
    "anisotropy": ("anisotropy, largest block", "anisotropy", "layer"),
    f"anisotropy{WITHOUT_FIRST}": (
        *("anisotropy without the first token, largest block", "anisotropy", "layer"),
    ),
}


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
    steps = xr.Dataset(variables, {"step": sorted(lines)}, run.results.attrs)
    return _without_interval(steps.assign_coords(layer=range(steps.sizes["layer"])))


def _without_interval(means: xr.Dataset) -> xr.Dataset:
    """Add NaN as the ends of an unknown interval."""
    known = xr.DataArray([True, False, False], {"statistic": list(ENDS)})
    with xr.set_options(keep_attrs=True):
        return means.where(known)


def attention_sinks(runs: dict[str, Run]) -> Figure | None:
    """Draw the signs of a sink over training, each at its largest: a line for each run."""
    needed = {quantity for _, quantity, _ in SINK_SIGNS.values()}
    tables = {
        label: sink_table(run.results) if needed <= {*run.results} else xr.Dataset()
        for label, run in runs.items()
    }
    if all(table.sizes.get("step", 1) == 1 for table in tables.values()):
        return None
    several = any("seeds" in table.attrs for table in tables.values())
    note = "Of several seeds: the mean, of weights on the first token the largest." * several
    spec = dataclasses.replace(SINKS, note=note)
    return render(spec, {label: Run(table, []) for label, table in tables.items()})


def sink_table(results: xr.Dataset) -> xr.Dataset:
    """Take the largest of each sign over layers, blocks or heads; NaN if any value is NaN."""
    signs = {}
    for name, (long_name, quantity, dim) in SINK_SIGNS.items():
        side = "without_first_token" if name.endswith(WITHOUT_FIRST) else "all"
        values = results[quantity].sel(statistic="mean", positions=side, drop=True)
        values = values.isel({dim: slice(int(dim == "layer"), None)})  # without the embedding
        over = [other for other in values.dims if other != "step"]
        signs[name] = values.max(over, skipna=False).assign_attrs(long_name=long_name, units="1")
    signs["sink_from"] = xr.full_like(signs["anisotropy"], SINK_FROM)
    if "validation_bits" in results:
        about = {"long_name": "validation bits per character", "units": "1"}
        signs["validation_bits"] = results["validation_bits"].drop_attrs().assign_attrs(about)
    table = xr.Dataset(signs).drop_vars("null", errors="ignore").assign_attrs(results.attrs)
    return _without_interval(table)
