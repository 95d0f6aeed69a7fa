"""Draw the effect of a single vector on a decoder.

It draws findings/figures/one_vector.png (prediction and measurement over the window), doses.png (over
the clamp) and massive_by_layer.png (every decoder).

    .venv/bin/python -m findings.scripts.one_vector
"""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anisoscope.plot import style
from findings.scripts.shared_tables import FIGURES, NAMES, RESULTS

TABLE = RESULTS / "real_models" / "massive.csv"
CUTS = (12000, 6000, 2500, 1200, 600, 200)  # the largest coordinate that is left, after the run
LONGEST = 100_000  # tokens that the prediction is drawn for
MODEL, LAYERS = "SmolLM2-135M-Instruct", (12, 20, 28)  # of the table of windows
CUT, CLAMPED = "cut after the run", "clamped in the run"
MARKS = {
    "anisotropy": ("unchanged model", "--"),
    "without_first_token": ("without the first token", ":"),
}
LINES = {
    "anisotropy": ("all vectors", "-"),
    "low": ("forced by the first token alone (closed form)", ":"),
    "without_first_token": ("without the first token", "--"),
    "without_first_token_and_coordinate": ("without it and the largest coordinate", "-"),
}


def bounds(squared_ratio: float, rest: float, length: Any) -> tuple[Any, Any]:
    """Bound the anisotropy of a cloud in which one vector of `length` is massive.

    A share f of the points is one vector, at r times the rest's root mean square distance from its
    mean. The covariance is (1 - f) C + f (1 - f) d d^T, C that of the rest and d from its mean to
    the vector. So anisotropy lies between f r² / (1 + f r²), reached where the rest has no scatter
    along d, and (a + f r²) / (1 + f r²), where a is that of the rest and d its first direction.
    """
    scatter = squared_ratio / length
    return scatter / (1 + scatter), (rest + scatter) / (1 + scatter)


def draw_prediction(massive: pd.DataFrame) -> Figure:
    """Draw anisotropy over window length, measured and predicted."""
    own = massive[massive.model == MODEL].set_index("layer")
    windows = pd.read_csv(TABLE.with_name("bell_by_window.csv"))
    figure = style.new_figure(style.SINGLE_WIDTH, 2.9)
    ax = figure.subplots()
    length = np.geomspace(32, LONGEST, 100)
    for layer, color in zip(LAYERS, style.COLORS, strict=False):
        low, high = bounds(own.squared_ratio[layer], own.without_first_token[layer], length)
        ax.fill_between(length, low, high, color=color, alpha=0.35, linewidth=0.8)
        rows = windows[windows.layer == layer]
        ends = [rows[f"anisotropy, {end}"] for end in ("low", "high")]
        ax.vlines(rows.window, *ends, color=color)
        ax.plot(rows.window, rows["anisotropy, mean"], "o", color=color, label=f"layer {layer}")
    ax.legend(loc="lower left")
    ax.set(xscale="log", xlabel="tokens of a window", ylabel="anisotropy", ylim=(0, 1.02))
    label_ticks(ax, (32, 256, 2048, 16384, LONGEST))
    ax.set_title("points: measured; bands: predicted from windows of 256")
    style.title(figure, f"One vector makes the anisotropy of {NAMES[MODEL]}")
    return figure


def label_ticks(ax: Axes, ticks: tuple[int, ...]) -> None:
    ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    ax.minorticks_off()


def draw_doses(massive: pd.DataFrame) -> Figure:
    """Draw anisotropy and sinks of each decoder over the largest coordinate that is left."""
    clamped = pd.read_csv(TABLE.with_name("clamped.csv"))
    names = [name for name in NAMES if name in {*clamped.model}]
    figure = style.new_figure(style.PAGE_WIDTH, 4.2)
    panels = figure.subplots(2, len(names), sharey="row", sharex=True, squeeze=False)
    for (top, bottom), name in zip(panels.T, names, strict=True):
        run = clamped[clamped.model == name]
        middle = run.layer.max() // 2
        own = massive[(massive.model == name) & (massive.layer == middle)].iloc[0]
        top.plot(
            CUTS, own[[f"cut_{most}" for most in CUTS]], "s--", color=style.COLORS[1], label=CUT
        )
        dose = run[(run.layer == middle) & np.isfinite(run.clamp)].sort_values("clamp")
        top.plot(dose.clamp, dose.anisotropy, "o-", color=style.COLORS[0], label=CLAMPED)
        for column, (words, line) in MARKS.items():
            top.axhline(own[column], color="0.4", linewidth=0.9, linestyle=line, label=words)
        sinks = run.groupby("clamp").sinks.mean()
        bottom.plot(sinks.index[:-1], sinks.iloc[:-1], "o-", color=style.COLORS[0])
        bottom.axhline(sinks.iloc[-1], color="0.4", linewidth=0.9, linestyle="--")
        top.set_title(f"{NAMES[name]}, layer {middle}")
        bottom.set(xscale="log", xlabel="largest coordinate allowed")
        label_ticks(bottom, (200, 1200, 6000))
    panels[0, 0].set(ylabel="anisotropy", ylim=(0, 1.02))
    panels[1, 0].set(ylabel="share of heads with a sink", ylim=(0, 1.02))
    figure.legend(*style.legend_entries(panels[0]), loc="outside lower center", ncols=4)
    style.title(figure, "Limiting the largest coordinates lowers the bell and thins out sinks")
    return figure


def draw_layers(massive: pd.DataFrame) -> Figure:
    """Draw every decoder's anisotropy by layer, with and without the first token and a coordinate."""
    names = [name for name in NAMES if name in {*massive.model}]
    figure = style.new_figure(style.PAGE_WIDTH, 2.8)
    panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for ax, name in zip(panels, names, strict=True):
        rows = massive[massive.model == name]
        for color, (column, (label, line)) in zip(style.COLORS, LINES.items(), strict=False):
            ax.plot(rows.layer, rows[column], line, color=color, label=label)
        ax.set_title(NAMES[name])
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.set_xlabel("layer (0 = embedding)")
    panels[0].set_ylim(0, 1.02)
    panels[0].set_ylabel("anisotropy")
    figure.legend(*style.legend_entries(panels), loc="outside lower center", ncols=2)
    style.title(
        figure,
        "The first token makes most of the bells in enwik8, and a coordinate makes Gemma's",
    )
    return figure


if __name__ == "__main__":
    table = pd.read_csv(TABLE).query("text == 'enwik8' and as_trained")
    with style.context():
        draw_prediction(table).savefig(FIGURES / "one_vector.png", dpi=150)
        draw_doses(table).savefig(FIGURES / "doses.png", dpi=150)
        draw_layers(table).savefig(FIGURES / "massive_by_layer.png", dpi=150)
