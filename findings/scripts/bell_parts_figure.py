"""Draw how high layers are and what makes them so, from findings/tables/massive_vectors.

    .venv/bin/python -m findings.scripts.bell_parts_figure

It draws findings/figures/bell_heights.png (measured and predicted, over layers) and bell_parts.png
(Shapley's shares of the factors, over layers); means over texts, with their range as bands. And
one_token.png: a single text, with 95 % intervals as bands.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from anisoscope.plot import style
from findings.claims.massive_vectors import FIRST_TEXT, REFERENCE, TABLES, height
from findings.scripts.shared_tables import NAMES, save_figure

PARTS = {  # factor -> (words, color, width of the line)
    "first": ("the first token", style.COLORS[0], 2.2),
    "coordinates": ("the largest coordinate", style.COLORS[1], 2.2),
    "mean": ("the mean", style.COLORS[2], 1.4),
    "gain": ("the final norm's gain", style.COLORS[3], 1.4),
    "left": ("what is left", "0.45", 1.4),
}


def draw_range(ax: Axes, rows: pd.DataFrame, column: str, **look: object) -> None:
    """Draw the mean over texts by layer, and their range as a band."""
    by_layer = rows.groupby("layer")[column].agg(["mean", "min", "max"])
    ax.fill_between(
        by_layer.index,
        by_layer["min"],
        by_layer["max"],
        color=look["color"],
        alpha=0.2,
        linewidth=0,
    )
    ax.plot(by_layer.index, by_layer["mean"], **look)


def new_panels(frame: pd.DataFrame, tall: float) -> tuple[Figure, dict[str, Axes]]:
    """Return a panel for each model."""
    names = [name for name in NAMES if name in {*frame.model}]
    figure = style.new_figure(style.PAGE_WIDTH, tall)
    panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for ax, name in zip(panels, names, strict=True):
        ax.set_title(NAMES[name])
        ax.xaxis.get_major_locator().set_params(integer=True, nbins=4)
        ax.set_xlabel("layer (0 = embedding)")
    return figure, dict(zip(names, panels, strict=True))


def draw_heights(frame: pd.DataFrame) -> Figure:
    """Draw the anisotropy of the shortest and the longest windows, measured and predicted."""
    figure, panels = new_panels(frame, 3.1)
    known = frame[(frame.text == FIRST_TEXT) & (frame.length == REFERENCE) & (frame.massive > 0)]
    for name, ax in panels.items():
        own, reference = (
            frame[frame.model == name],
            known[(known.model == name) & (known.layer > 0)],
        )
        ends = sorted({own.length.min(), own.length.max()})
        for words, length, color in zip(("shortest", "longest"), ends, style.COLORS, strict=False):
            rows = own[own.length == length]
            draw_range(ax, rows, "anisotropy", color=color, label=f"measured, {words} windows")
            low, high = (height(1 / length, reference.d, rest) for rest in (0, reference.rest))
            dark = 0.5 * np.array(to_rgb(color))
            ax.plot([reference.layer] * 2, [low, high], "_", color=dark, markersize=3, zorder=3)
            ax.vlines(
                reference.layer, low, high, color=dark, linewidth=0.8, zorder=3,
                label=f"predicted from the distance of massive vectors, {words} windows",
            )  # fmt: skip
        draw_range(ax, rows, "rest", color="0.45", label="measured, without massive vectors")
        tokens = " and ".join(f"{length:,}" for length in ends)
        ax.set_title(f"{NAMES[name]}\n{tokens} tokens")
    first = next(iter(panels.values()))
    first.set(ylim=(0, 1.02), ylabel="share of variance\nin one direction")
    measured_first = (each[::2] + each[1::2] for each in style.legend_entries([first]))
    figure.legend(*measured_first, loc="outside lower center", ncols=2)
    return figure


def draw_token(frame: pd.DataFrame) -> Figure:
    """Draw the anisotropy of a text by layer, with and without its massive vectors."""
    figure, panels = new_panels(frame, 2.5)
    lines = {"anisotropy": "all tokens", "rest": "without massive vectors"}
    for name, ax in panels.items():
        own = frame[frame.model == name].sort_values("layer")
        for color, (column, words) in zip(style.COLORS, lines.items(), strict=False):
            values = [own[f"{column}{end}"].to_numpy() for end in ("", "_low", "_high")]
            look = {"color": color, "linewidth": 2, "label": words}
            style.plot_with_interval(ax, own.layer.to_numpy(), *values, **look)
    first = next(iter(panels.values()))
    first.set(ylim=(0, 1.02), ylabel="share of variance\nin one direction")
    figure.legend(*style.legend_entries([first]), loc="outside lower center", ncols=2)
    return figure


def draw_parts(frame: pd.DataFrame) -> Figure:
    """Draw the shares of the factors by layer, with a single coordinate."""
    frame = frame[(frame.start == "about 0") & (frame.coordinates == 1) & (frame.layer != "inner")]
    frame = frame.assign(layer=frame.layer.astype(int), part=frame.share * frame.height)
    figure, panels = new_panels(frame, 2.8)
    for name, ax in panels.items():
        own = frame[frame.model == name]
        for factor, (words, color, width) in PARTS.items():
            draw_range(
                ax, own[own.factor == factor], "part", color=color, linewidth=width, label=words
            )
        ax.axhline(0, color="0.8", linewidth=0.8, zorder=0)
    first = next(iter(panels.values()))
    first.set(ylabel="part of the leading\ndirection's share of\nthe second moment")
    figure.legend(*style.legend_entries([first]), loc="outside lower center", ncols=5)
    return figure


if __name__ == "__main__":
    heights = pd.read_csv(TABLES / "heights.csv")
    shares = pd.read_csv(TABLES / "shares.csv", dtype={"layer": str})
    with style.context():
        title = "The distance of massive vectors matches the height of the bell, but not in Gemma"
        save_figure(draw_heights(heights), "bell_heights", title)
        title = (
            "A hundredth of the vectors holds nearly all variance in most layers of three decoders"
        )
        own = heights[(heights.text == FIRST_TEXT) & (heights.length == REFERENCE)]
        save_figure(draw_token(own), "one_token", title)
        title = "Of the bell's height, the first token makes most in SmolLM2 and Qwen2.5 0.5B, not in Gemma"
        save_figure(draw_parts(shares), "bell_parts", title)
