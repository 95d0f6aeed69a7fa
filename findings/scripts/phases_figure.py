"""Draw findings/figures/phases.png: quantities over training, in texts with homophones.

    .venv/bin/python -m findings.scripts.phases_figure

It reads findings/tables/symbol_frequencies/curves.csv (findings/claims/phases.py).
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anisoscope.plot import style
from findings.claims.phases import TABLES
from findings.scripts.shared_tables import save_figure

TEXTS = {
    "many_natural": "101 symbols, natural",
    "many_flattened": "250 symbols, flattened",
    "few_natural": "28 symbols, natural",
    "few_flattened": "60 symbols, flattened",
}
PANELS = {  # column, and what is subtracted from it for the null model
    "RankMe": ("rankme_centered", None),
    "effective rank": ("effective_rank", None),
    "gain over unigram (bits)": ("gain", None),
    "exponent of the spectrum (α-ReQ)": ("alpha_req", None),
    "anisotropy": ("anisotropy", None),
    "dimension (TwoNN)": ("twonn", "twonn_excess"),
}
NOTE = (
    "Decoders of 0.2 million parameters, width 64, AdamW, rotary positions; means over 4 blocks. Thin: seeds; thick: "
    "their mean. Dashed: Gaussian cloud of the same spectrum. Step 0 is drawn at one half."
)


def draw(curves: pd.DataFrame) -> Figure:
    figure = style.new_figure(style.PAGE, 4.2)
    axes = figure.subplots(2, 3, sharex=True)
    for ax, (title, (column, excess)) in zip(axes.flat, PANELS.items(), strict=True):
        for (name, words), color in zip(TEXTS.items(), style.COLORS, strict=False):
            own = curves[curves.text == name]
            if len(own):
                draw_text(ax, own, column, color, words)
                if excess:
                    null = own.assign(null=own[column] - own[excess]).groupby("step")["null"].mean()
                    ax.plot(np.maximum(null.index, 0.5), null, "--", color=color, linewidth=0.9)
        ax.set(title=title, xscale="log")
    for ax in axes[-1]:
        ax.set_xlabel("step")
    style.legend(axes)
    return figure


def draw_text(ax: Axes, own: pd.DataFrame, column: str, color: str, words: str) -> None:
    """Draw a line for each seed, and their mean."""
    for _, run in own.groupby("seed"):
        ax.plot(np.maximum(run.step, 0.5), run[column], color=color, linewidth=0.5, alpha=0.6)
    mean = own.groupby("step")[column].mean()
    ax.plot(np.maximum(mean.index, 0.5), mean, color=color, label=words)


def main() -> None:
    curves = pd.read_csv(TABLES / "curves.csv")
    counts = curves.groupby(["text", "step"])["seed"].transform("count")
    whole = curves.groupby("text")["seed"].transform("nunique")
    with style.context():
        title = "Training on texts with natural and with flattened frequencies"
        save_figure(draw(curves[counts == whole]), "phases", title, NOTE)


if __name__ == "__main__":
    main()
