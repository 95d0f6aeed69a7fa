"""Draw what one vector does to a decoder: docs/figures/one_vector.png (prediction beside
measurement, over the window and over the clamp) and massive_by_layer.png (every decoder).

    .venv/bin/python -m dev.one_vector
"""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from anisoscope.plot import style
from dev.real_models import FIGURES, RESULTS

TABLE = RESULTS / "real_models" / "massive.csv"
CUTS = (12000, 6000, 2500, 1200, 600, 200)  # the largest coordinate that is left, after the run
LAYERS, DEEP = (12, 20, 28), 16  # of SmolLM2: in the table of windows, and of the doses
MODEL = "SmolLM2-135M-Instruct"
LINES = {
    "anisotropy": ("all vectors", "-"),
    "low": ("forced by the first token alone (closed form)", ":"),
    "without_first_token": ("without the first token", "--"),
    "without_first_token_and_massive": ("without the first token and other massive vectors", "-."),
}


def bounds(squared_ratio: float, rest: float, length: Any) -> tuple[Any, Any]:
    """Bound the anisotropy of a cloud in which one vector of `length` is massive.

    Let a share f of the points be one vector, at the distance r from the mean of the rest, in units
    of the rest's root mean square distance from it. The covariance is (1 - f) C + f (1 - f) d d^T,
    C that of the rest and d from its mean to the vector. So anisotropy lies between
    f r² / (1 + f r²) and (a + f r²) / (1 + f r²), where a is that of the rest. The lower bound is
    reached where the rest has no scatter along d, the upper one where d is its first direction.
    """
    scatter = squared_ratio / length
    return scatter / (1 + scatter), (rest + scatter) / (1 + scatter)


def draw_prediction(massive: pd.DataFrame) -> Figure:
    """Draw anisotropy over window length and over the clamp, measured and predicted."""
    own = massive[
        (massive.model == MODEL) & (massive.text == "enwik8") & (massive["first"] == "text")
    ]
    own = own.set_index("layer")
    windows = pd.read_csv(TABLE.with_name("bell_by_window.csv"))
    clamped = pd.read_csv(TABLE.with_name("clamped.csv"))
    figure = style.new_figure(style.PAGE, 2.9)
    left, right = figure.subplots(1, 2, sharey=True)
    length = np.geomspace(32, 1024, 60)
    for layer, color in zip(LAYERS, style.COLORS, strict=False):
        low, high = bounds(own.squared_ratio[layer], own.without_first_token[layer], length)
        left.fill_between(length, low, high, color=color, alpha=0.35, linewidth=0)
        left.plot(length, low, color=color, linewidth=0.8)
        rows = windows[windows.layer == layer]
        mean = rows["anisotropy, mean"]
        error = [mean - rows["anisotropy, low"], rows["anisotropy, high"] - mean]
        left.errorbar(
            rows.window, mean, error, fmt="o", color=color, label=f"layer {layer}, measured"
        )
    left.set_xscale("log", base=2)
    left.set_xlabel("tokens of a window")
    left.set_ylabel("anisotropy")
    left.set_title("bands: predicted from the first token at 256 tokens")
    dose = clamped[(clamped.layer == DEEP) & np.isfinite(clamped.clamp)]
    cut = [own[f"cut_{most}"][DEEP] for most in CUTS]
    right.plot(CUTS, cut, "s--", color=style.COLORS[1], label="cut after the run")
    right.plot(
        dose.clamp, dose.anisotropy, "o-", color=style.COLORS[0], label="clamped while it runs"
    )
    right.axhline(own.anisotropy[DEEP], color="0.4", linewidth=0.8)
    right.axhline(own.without_first_token[DEEP], color="0.4", linewidth=0.8, linestyle=":")
    right.text(200, own.anisotropy[DEEP] - 0.05, "as it is", color="0.3", fontsize=style.SMALL)
    right.text(
        200,
        own.without_first_token[DEEP] + 0.02,
        "without the first token",
        color="0.3",
        fontsize=style.SMALL,
    )
    right.set_xscale("log")
    right.set_xlabel("largest coordinate that is left")
    right.set_title(f"layer {DEEP}, windows of 256 tokens")
    left.set_ylim(0, 1.02)
    left.legend(loc="lower left")
    right.legend(loc="lower right", bbox_to_anchor=(1, 0.12))
    style.title(figure, f"One vector makes the anisotropy of {MODEL}")
    return figure


def draw_layers(massive: pd.DataFrame) -> Figure:
    """Draw every decoder's anisotropy by layer, with and without its massive vectors."""
    own = massive[(massive.text == "enwik8") & (massive["first"] == massive.trained_with)]
    names = own.model.unique()
    figure = style.new_figure(style.PAGE, 2.8)
    panels = figure.subplots(1, len(names), sharey=True)
    for ax, name in zip(panels, names, strict=True):
        rows = own[own.model == name]
        for color, (column, (label, line)) in zip(style.COLORS, LINES.items(), strict=False):
            ax.plot(rows.layer, rows[column], line, color=color, label=label)
        ax.set_title(name)
        ax.set_xlabel("layer (0 = embedding)")
    panels[0].set_ylim(0, 1.02)
    panels[0].set_ylabel("anisotropy")
    figure.legend(*style.legend_entries(panels), loc="outside lower center", ncols=2)
    style.title(figure, "Which vectors make a decoder's bell")
    return figure


if __name__ == "__main__":
    table = pd.read_csv(TABLE)
    with style.context():
        draw_prediction(table).savefig(FIGURES / "one_vector.png", dpi=150)
        draw_layers(table).savefig(FIGURES / "massive_by_layer.png", dpi=150)
