"""Figures from the log of a training: the loss, and what was watched, dense in time."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from anisoscope.plot import panel_axes, style
from anisoscope.plot.footer import caption
from anisoscope.plot.render import Spec, render
from anisoscope.plot.run_tables import ENDS, Run
from anisoscope.plot.specs import WORDS
from anisoscope.training.objective import OBJECTIVES
from anisoscope.training.watch import BLOCKS


def build(runs: dict[str, Run]) -> Figure | None:
    """Bits per character of training batches and of validation, objectives apart."""
    looks, runs = style.inks(runs), {label: run for label, run in runs.items() if run.log}
    if not runs:
        return None
    kinds = [
        kind
        for kind in OBJECTIVES
        if any(run.results.attrs["objective"] == kind for run in runs.values())
    ]
    figure = style.new(style.PAGE * (0.65 if len(kinds) == 1 else 1), 2.6)
    axes = figure.subplots(1, len(kinds), squeeze=False)[0]
    for ax, kind in zip(axes, kinds, strict=True):
        last, free_levels = 0, set()
        for label, run in runs.items():
            if run.results.attrs["objective"] != kind:
                continue
            color, marker = looks[label]["color"], looks[label]["marker"]
            steps, bits = curve(run.log, "train")
            ax.plot(steps, bits, color=color, linewidth=0.6, alpha=0.7)
            marked, measured = curve(run.log, "valid")
            ax.plot(
                marked,
                measured,
                color=color,
                marker=marker,
                markersize=3,
                linestyle="none",
                label=label,
            )
            if free := [
                line["context_free_bits"] for line in run.log if "context_free_bits" in line
            ]:
                free_levels.add(round(free[-1], 3))
            last = max(last, *steps, *marked)
        for level in free_levels:
            ax.axhline(level, color="0.4", linewidth=0.8, linestyle=":", label="without context")
        panel_axes.step_axis(ax, last)
        ax.set(title=f"predicting {OBJECTIVES[kind].label}", ylabel="bits per predicted character")
    style.legend(axes)
    style.title(figure, "Bits per predicted character while training")
    read = "Lines: training batches; marks: validation; dotted: what frequencies of characters alone give."
    apart = ["Bits of the two objectives are not comparable."] * (len(kinds) > 1)
    caption(figure, runs, "Loss while training.", " ".join([read, *apart]))
    return figure


def curve(log: list[dict[str, Any]], kind: str) -> tuple[list[int], list[float]]:
    """Steps and bits per character of one kind of line; of a step that was run twice the later line
    counts.
    """
    bits = {line["step"]: line["bits_per_character"] for line in log if line["kind"] == kind}
    return sorted(bits), [bits[step] for step in sorted(bits)]


def watched(spec: Spec, runs: dict[str, Run]) -> Figure | None:
    """A row per run that was watched, a column per quantity, a line per layer or block."""
    tables = {label: table for label, run in runs.items() if (table := watch_table(run))}
    return render(spec, {label: Run(table, []) for label, table in tables.items()})


def watch_table(run: Run) -> xr.Dataset | None:
    """What was watched, in the form of results.nc; blocks are layers from 1, and intervals none.

    The step is that of the parameters, before the update that a line of the log is of.
    """
    lines = {line["step"] - 1: line for line in run.log if line["kind"] == "watch"}
    if not lines:
        return None
    steps, variables = sorted(lines), {}
    for name, (long_name, units) in WORDS.items():
        values = np.array([lines[step][name] for step in steps], float)
        if name in BLOCKS:
            values = np.pad(values, ((0, 0), (1, 0)), constant_values=np.nan)
        ends = np.stack([values, *[np.full_like(values, np.nan)] * 2])[None]
        about = {"long_name": long_name, "units": units}
        variables[name] = ("positions", "statistic", "step", "layer"), ends, about
    labels = {"positions": ["all"], "statistic": list(ENDS), "step": steps}
    layers = next(iter(variables.values()))[1].shape[-1]
    return xr.Dataset(variables, labels | {"layer": np.arange(layers)}, run.results.attrs)
