"""Figure of the signs of an attention sink while training, where each is largest: a line per
run.
"""

from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from anisoscope.measurement.families.attention_family import SINK_FROM
from anisoscope.plot import panel_axes, style
from anisoscope.plot.experiment_figures import Compared
from anisoscope.plot.footer import caption
from anisoscope.plot.run_tables import Run, last_step

SINKS = {  # read where they are largest, of which dimension from which place on
    "norm_ratio": ("layer", 1),
    "attention_first": ("block", 0),
    "sink_heads": ("block", 0),
    "anisotropy": ("layer", 1),
}


class Panel(NamedTuple):
    title: str
    quantity: str
    positions: str = "all"


PANELS = (
    Panel("largest norm over\nthe median", "norm_ratio"),
    Panel("weight on token 0,\nlargest of all heads", "attention_first"),
    Panel("share of heads with a\nsink, largest of all blocks", "sink_heads"),
    Panel("anisotropy, largest\nof all blocks", "anisotropy"),
    Panel("anisotropy without\ntoken 0, largest", "anisotropy", "without_first"),
    Panel("validation bits\nper character", "validation_bits"),
)


def build(compared: Compared) -> Figure | None:
    """Has any run a sink, when does it form, and does anisotropy come with it?"""
    runs = {
        label: run
        for label, run in compared.runs.items()
        if all(name in run.results for name in SINKS)
    }
    if not runs or all(run.results.sizes["step"] == 1 for run in runs.values()):
        return None
    panels = [
        panel for panel in PANELS if any(panel.quantity in run.results for run in runs.values())
    ]
    looks, figure = style.inks(compared.runs), style.new(style.PAGE, 4.2)
    axes = figure.subplots(2, -(-len(panels) // 2), sharex=True, squeeze=False)
    for ax, panel in zip(axes.flat, panels, strict=False):
        for label, run in runs.items():
            if panel.quantity in run.results:
                look = {"markersize": 2.5, "linewidth": 1.1} | looks[label]
                ax.plot(run.results.step.values, largest(run, panel), label=label, **look)
        if panel.quantity == "attention_first":
            ax.axhline(
                SINK_FROM, color="0.4", linewidth=0.9, linestyle="--", label="a sink: above this"
            )
        if panel.quantity in ("attention_first", "sink_heads"):
            ax.set_ylim(-0.02, max(0.35, 1.1 * ax.dataLim.y1))
        ax.set_title(panel.title, fontsize=style.SMALL)
        panel_axes.step_axis(ax, last_step(runs))
    anisotropies = [
        ax for ax, panel in zip(axes.flat, panels, strict=False) if panel.quantity == "anisotropy"
    ]
    panel_axes.fit(anisotropies, zero=True)
    for ax in axes.flat[len(panels) :]:
        ax.set_axis_off()
    for ax in axes[:-1].flat:
        ax.set_xlabel("")
    style.title(figure, "Signs of an attention sink while training")
    style.legend(axes)
    shown = (
        "Largest over layers, blocks or heads at each checkpoint; "
        "a head has a sink where its mean weight on token 0"
    )
    # heads of two seeds are apart in a table, all else is their mean
    several = any("seeds" in run.results.attrs for run in runs.values())
    read = "Of several seeds: the mean, of weights on token 0 the largest." if several else ""
    caption(
        figure, runs, f"{shown} token 0 exceeds {SINK_FROM:g}. The embedding is no block.", read
    )
    return figure


def largest(run: Run, panel: Panel) -> np.ndarray:
    values = run.results[panel.quantity]
    if panel.quantity not in SINKS:
        return values.values
    dim, first = SINKS[panel.quantity]
    values = values.sel(statistic="mean", positions=panel.positions).isel({dim: slice(first, None)})
    return values.max([name for name in values.dims if name != "step"], skipna=False).values
