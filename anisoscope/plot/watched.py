"""What was watched while training, dense in time: a row per run, a line per layer or block, of each quantity."""

from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from anisoscope.plot import rulers, style
from anisoscope.plot.provenance import caption
from anisoscope.plot.run import Run
from anisoscope.training.watch import BLOCKS, LAYERS, kept

WORDS = LAYERS | BLOCKS
PANELS = {
    "watched_geometry": ("Geometry", ("anisotropy", "participation_ratio", "mean_cosine", "drift")),
    "watched_attention": ("Norms and attention", ("mean_norm", "attention_first", "gradient_norm")),
}
READ = "Lines: layers, of a batch of the training text, another at each look. Dotted: checkpoints of turning points."


def build(title: str, names: tuple[str, ...], runs: dict[str, Run]) -> Figure | None:
    """Each column has one scale: rows compare. Runs that were not watched are left out."""
    curves = {label: watched(run.log) for label, run in runs.items()}
    runs = {label: run for label, run in runs.items() if curves[label]}
    if not runs:
        return None
    figure, axes = rulers.rows_of_runs([*runs], [style.label(*WORDS[name]) for name in names])
    most = max(np.shape(curves[label][names[0]][1])[1] for label in runs)
    colours = rulers.layer_colours(most)
    last = max(int(curves[label][names[0]][0][-1]) for label in runs)
    for row, (label, run) in zip(axes, runs.items(), strict=True):
        for ax, name in zip(row, names, strict=True):
            steps, values = curves[label][name]
            for place, line in enumerate(values.T, start=int(name in BLOCKS)):
                ax.plot(steps, line, color=colours.to_rgba(place), linewidth=0.8)
            for step in kept(run.log):
                ax.axvline(step, color="0.4", linewidth=0.8, linestyle=":")
            rulers.step_axis(ax, last)
    rulers.fit_columns(axes)
    style.title(figure, f"{title} of training batches, all positions")
    rulers.layer_bar(figure, colours, axes)
    caption(figure, runs, f"{title} while training (training/watch.py).", READ)
    return figure


def watched(log: list[dict[str, Any]]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """{quantity: (steps, values by layer)}; the step is that of the parameters, before the update that a line is of."""
    lines = {line["step"] - 1: line for line in log if line["kind"] == "watch"}
    steps = np.array(sorted(lines))
    return {name: (steps, np.array([lines[step][name] for step in steps])) for name in WORDS} if lines else {}


FIGURES = {name: partial(build, *panels) for name, panels in PANELS.items()}
