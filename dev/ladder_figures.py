"""Draw what changes with size: docs/figures/ladder_size.png and ladder_bits.png.

    .venv/bin/python -m dev.ladder_figures

The tables are those of dev/ladder_tables.py, with all positions. Parameters are in state.csv.
"""

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from anisoscope.analysis.claims.claim_entries import CLAIMS
from anisoscope.plot import panel_axes, style
from dev.shared_tables import RESULTS

FOLDER = RESULTS / "scale_ladder"
KINDS = {"decoder": style.COLORS[0], "encoder": "0.55"}
ENCODINGS = {"learned": ("-", "o"), "rotary": ("--", "s")}
RUNS = {  # panels of the last checkpoint: columns, and their words where there are two
    "test loss (bits per character)": {"test_bits": ""},
    "growth of anisotropy": {"growth": ""},
    "bell": {"bell_blocks": "from block 1", "bell_with_embedding": "from the embedding"},
    "relative drift": {"relative_drift": ""},
    "decrease of attention entropy": {"entropy_decrease": ""},
    "dimension (TwoNN)": {"dimension": "", "dimension_null": "Gaussian cloud"},
}
STEPS = {  # panels over the loss, decoders: column, and a null model drawn dashed
    "anisotropy": ("anisotropy", None),
    "bell from block 1": ("bell_blocks", None),
    "unevenness over blocks": ("std_over_layers", None),
    "relative drift": ("relative_drift", None),
    "attention entropy (of a uniform one)": ("attention_entropy", None),
    "dimension (TwoNN)": ("dimension", "dimension_null"),
}


def draw_sizes(runs: pd.DataFrame) -> Figure:
    """Draw the last checkpoint of every run over its parameters: a point a seed, a line the mean."""
    figure = style.new_figure(style.PAGE, 4.6)
    for ax, (title, columns) in zip(figure.subplots(2, 3).flat, RUNS.items(), strict=True):
        for (kind, encoding), own in runs.groupby(["condition", "position_encoding"]):
            line, marker = ENCODINGS[encoding]
            for at, (column, words) in enumerate(columns.items()):
                face = "none" if at else KINDS[kind]
                look: dict[str, Any] = {"color": KINDS[kind], "markerfacecolor": face}
                label = words or f"{kind}, {encoding} positions"
                ax.plot(own.parameters, own[column], marker, markersize=3, linestyle="none", **look)
                mean = own.groupby("parameters")[column].mean()
                style_ = ":" if at else line
                ax.plot(mean.index, mean, style_, color=look["color"], label=label)
        ax.set(xscale="log", title=title)
        if title == "bell":
            ax.axhline(CLAIMS["decoder_bell"].smallest, color="0.3", linewidth=0.9, linestyle=":")
    return figure


def draw_bits(steps: pd.DataFrame) -> Figure:
    """Draw decoders of all sizes over the loss of each checkpoint, means over seeds."""
    own = steps[(steps.condition == "decoder") & (steps.position_encoding == "learned")]
    sizes = own["size"].unique()
    colors = panel_axes.patch_colors(len(sizes))
    figure = style.new_figure(style.PAGE, 4.6)
    axes = figure.subplots(2, 3, sharex=True)
    for ax, (title, (column, null)) in zip(axes.flat, STEPS.items(), strict=True):
        for at, size in enumerate(sizes):
            mean = own[own["size"] == size].groupby("step").mean(numeric_only=True)
            color = colors.to_rgba(at)
            ax.plot(mean.validation_bits, mean[column], "o-", markersize=2, color=color, label=size)
            if null:
                ax.plot(mean.validation_bits, mean[null], "--", linewidth=0.9, color=color)
        ax.set(title=title)
    axes[0, 0].invert_xaxis()
    return figure
