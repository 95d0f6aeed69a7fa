"""Draw quantities over training, and over depth at each checkpoint, in texts with homophones.

    .venv/bin/python -m findings.scripts.phases_figure    # findings/figures/phases*.png

It reads curves.csv and layers.csv of findings/tables/symbol_frequencies (findings/claims/phases.py).
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anisoscope.plot import panel_axes, style
from findings.claims.phases import TABLES
from findings.scripts.shared_tables import save_figure

TEXTS = {
    "many_natural": "101 symbols,\nnatural frequencies",
    "many_flattened": "250 symbols,\nflattened frequencies",
    "few_natural": "28 symbols,\nnatural frequencies",
    "few_flattened": "60 symbols,\nflattened frequencies",
}
PANELS = {  # column, and what is subtracted from it for the null model
    "RankMe": ("rankme_centered", None),
    "effective rank": ("effective_rank", None),
    "gain (bits per character)": ("gain", None),
    "exponent (α-ReQ)": ("alpha_req", None),
    "anisotropy": ("anisotropy", None),
    "dimension (TwoNN)": ("twonn", "twonn_excess"),
}
NOTE = (
    "Decoders of 0.2 million parameters, width 64, AdamW, rotary positions; means over 4 blocks. Thin: seeds; "
    "thick: their mean. Gain: over the frequencies of characters."
)
TITLES = {  # by the verdict on the claim that skewed frequencies make the collapse
    "reproduced": "Flattened frequencies lessen the collapse of the effective rank",
    "contradicted": "Flattened frequencies do not take away the collapse of the effective rank",
}
UNDECIDED = "The effective rank collapses and grows again; whether skew makes it is not decided"
BY_LAYER = ("rankme_centered", "anisotropy", "alpha_req", "twonn")
DEPTH_TEXT, DEPTH_STEPS = "many_natural", (0, 32, 64, 128, 512, 1000, 3000)
DEPTH_NOTE = "Decoders of 0.2 million parameters; means over seeds. Layer 0: the embedding. Dashed: untrained."


def draw(curves: pd.DataFrame) -> Figure:
    figure = style.new_figure(style.PAGE_WIDTH, 4.2)
    axes = figure.subplots(2, 3, sharex=True)
    for ax, (title, (column, excess)) in zip(axes.flat, PANELS.items(), strict=True):
        for (name, words), color in zip(TEXTS.items(), style.COLORS, strict=False):
            own = curves[curves.text == name]
            if len(own):
                draw_text(ax, own, column, color, words)
                if excess:
                    null = own.assign(null=own[column] - own[excess]).groupby("step")["null"].mean()
                    look = {"linewidth": 0.9, "label": "Gaussian cloud,\nsame spectrum"}
                    ax.plot(null.index, null, "--", color=color, **look)
        panel_axes.step_axis(ax, int(curves["step"].max()))
        if column == "twonn":
            panel_axes.logarithmic(ax.yaxis)
        ax.set_title(title, fontweight="bold" if column == "effective_rank" else "normal")
    for ax in axes[0]:
        ax.set_xlabel("")
    style.legend(axes)
    return figure


def draw_text(ax: Axes, own: pd.DataFrame, column: str, color: str, words: str) -> None:
    """Draw a line for each seed, and their mean."""
    for _, run in own.groupby("seed"):
        ax.plot(run.step, run[column], color=color, linewidth=0.5, alpha=0.6)
    mean = own.groupby("step")[column].mean()
    ax.plot(mean.index, mean, color=color, label=words)


def draw_depth(layers: pd.DataFrame) -> Figure:
    """Draw four quantities over layers, a line for each checkpoint, the mean of the seeds."""
    figure = style.new_figure(style.PAGE_WIDTH, 2.6)
    axes = figure.subplots(1, 4, sharex=True)
    steps = sorted(layers["step"].unique())
    colors = style.depth_colormap()(np.linspace(0, 1, len(steps)))
    titles = {column: title for title, (column, _) in PANELS.items()}
    for ax, column in zip(axes, BY_LAYER, strict=True):
        for step, color in zip(steps, colors, strict=True):
            mean = layers[layers.step == step].groupby("layer")[column].mean()
            dashed = "--" if step == 0 else "-"
            ax.plot(mean.index, mean, dashed, color=color, label=f"step {step:,}", linewidth=1)
        ax.set(title=titles[column], xlabel="layer")
    style.legend(axes)
    return figure


def main() -> None:
    curves = pd.read_csv(TABLES / "curves.csv")
    counts = curves.groupby(["text", "step"])["seed"].transform("count")
    whole = curves.groupby("text")["seed"].transform("nunique")
    with style.context():
        claims = pd.read_csv(TABLES / "contrasts.csv").set_index(["phase", "claim"])
        title = TITLES.get(claims.verdict["collapse", "skew"], UNDECIDED)
        save_figure(draw(curves[counts == whole]), "phases", title, NOTE)
        layers = pd.read_csv(TABLES / "layers.csv").query(
            "text == @DEPTH_TEXT and step in @DEPTH_STEPS"
        )
        title = "Training changes every layer, and the last blocks most (text of 101 symbols)"
        save_figure(draw_depth(layers), "phases_depth", title, DEPTH_NOTE)


if __name__ == "__main__":
    main()
