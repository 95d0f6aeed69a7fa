"""Draw what changes with size: findings/figures/ladder_size.png and ladder_bits.png.

    .venv/bin/python -m findings.scripts.ladder_figures

The tables are those of findings/scripts/ladder_tables.py, with all positions. Parameters are in state.csv.
"""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anisoscope.experiments.scale_ladder import SHAPES
from anisoscope.plot import panel_axes, style
from findings.claims.claim_entries import CLAIMS
from findings.scripts.shared_tables import RESULTS, save_figure

FOLDER = RESULTS / "scale_ladder"
COLORS = {  # condition and position encoding
    ("decoder", "learned"): style.COLORS[0],
    ("decoder", "rotary"): style.COLORS[1],
    ("encoder", "learned"): "0.6",
    ("encoder", "rotary"): "0.3",
}
IN_TITLE = ("drift_growth", "relative_drift", "bell_blocks")  # panels that titles speak of: bold
MARKERS = {"learned": "o", "rotary": "s"}
RUNS = {  # panels of the last checkpoint: column, and another one, drawn hollow
    "test loss (bits per character)": ("test_bits", None),
    "growth of anisotropy": ("growth", None),
    "bell of anisotropy": ("bell_blocks", "bell_with_embedding"),
    "growth of drift (log2 units)": ("drift_growth", None),
    "sharpening of attention (nats)": ("entropy_decrease", None),
    "expansion of dimension (log2)": ("expansion", "compression"),
}
STEPS = {  # panels over the loss, decoders: column, and a null model drawn dashed
    "anisotropy": ("anisotropy", None),
    "bell of anisotropy": ("bell_blocks", None),
    "deviation of anisotropy": ("std_over_layers", None),
    "relative drift": ("relative_drift", None),
    "attention entropy (nats)": ("attention_entropy", None),
    "dimension (TwoNN)": ("dimension", "dimension_null"),
}


SIZE_NOTE = (
    "Last checkpoint, all positions. Points: seeds, one of 2M and 7M; lines: means. Hollow and "
    "dotted: the bell with the embedding as first end, and compression of the dimension. Black, "
    "dotted: the smallest bell of interest. A bell from block 1 needs 3 blocks."
)
BITS_NOTE = (
    "Decoders with learned positions. Each point is a checkpoint, a mean over seeds; training goes "
    "to the right. Dashed: Gaussian "
    "clouds of the same covariance. Deviation: over blocks. The first steps, above "
    "{most:g} bits, are not shown."
)
MOST = 5.0  # bits per character: what frequencies of characters alone give


def draw_sizes(runs: pd.DataFrame) -> Figure:
    """Draw the last checkpoint of every run over its parameters."""
    figure = style.new_figure(style.PAGE_WIDTH, 4.4)
    axes = figure.subplots(2, 3, sharex=True)
    for ax, (title, (column, other)) in zip(axes.flat, RUNS.items(), strict=True):
        for (kind, encoding), own in runs.groupby(["condition", "position_encoding"]):
            look: dict[str, Any] = {"color": COLORS[kind, encoding], "markersize": 3}
            marker = MARKERS[encoding]
            draw_means(ax, own, column, "-", marker, label=f"{kind}, {encoding} positions", **look)
            if other:
                draw_means(ax, own, other, ":", marker, markerfacecolor="none", **look)
        if column == "bell_blocks":
            smallest = CLAIMS["decoder_bell"].smallest
            ax.axhline(smallest, color="0.3", linewidth=0.9, linestyle=":")
        ax.set_title(title, fontweight="bold" if column in IN_TITLE else "normal")
    sizes = runs.groupby("size").parameters.first()
    for ax in axes[-1]:
        ax.set(xscale="log", xlabel="parameters")
        ax.set_xticks(sizes, sizes.index.str.upper().str.replace("K", "k"))
        ax.minorticks_off()
    axes[0, 0].legend()
    return figure


def draw_means(
    ax: Axes, own: pd.DataFrame, column: str, line: str, marker: str, **look: Any
) -> None:
    """Draw a point for each seed, and a line through the means."""
    mean, label = own.groupby("parameters")[column].mean(), look.pop("label", None)
    ax.plot(own.parameters, own[column], marker, **look)
    ax.plot(mean.index, mean, line, color=look["color"], label=label)


def draw_bits(steps: pd.DataFrame) -> Figure:
    """Draw the decoders with learned positions over the loss of each checkpoint."""
    own = steps[(steps.condition == "decoder") & (steps.position_encoding == "learned")]
    own = own[own.validation_bits < MOST]
    sizes = [size for size in SHAPES if size in {*own["size"]}]
    colors = panel_axes.patch_colors(len(sizes))
    figure = style.new_figure(style.PAGE_WIDTH, 4.4)
    axes = figure.subplots(2, 3, sharex=True)
    for ax, (title, (column, null)) in zip(axes.flat, STEPS.items(), strict=True):
        for at, size in enumerate(sizes):
            mean = own[own["size"] == size].groupby("step").mean(numeric_only=True)
            look = {"color": colors.to_rgba(at), "markersize": 2.5}
            ax.plot(mean.validation_bits, mean[column], "o-", label=size.replace("m", "M"), **look)
            if null:
                ax.plot(mean.validation_bits, mean[null], "--", linewidth=0.9, **look)
        ax.set_title(title, fontweight="bold" if column in IN_TITLE else "normal")
    axes[0, 0].invert_xaxis()
    for ax in axes[-1]:
        ax.set_xlabel("validation loss (bits)")
    handles, labels = style.legend_entries([axes[0, 0]])
    figure.legend(handles, labels, title="parameters", loc="outside center right")
    return figure


def main() -> None:
    state = pd.read_csv(FOLDER / "state.csv")[["size", "position_encoding", "parameters"]]
    runs = pd.read_csv(FOLDER / "runs.csv").merge(state)
    steps = pd.read_csv(FOLDER / "steps.csv")
    with style.context():
        title = "Larger decoders drift farther, and none has a bell"
        save_figure(draw_sizes(runs), "ladder_size", title, SIZE_NOTE)
        title = (
            "At equal loss, from 220k parameters on, larger decoders drift farther; none has a bell"
        )
        save_figure(draw_bits(steps), "ladder_bits", title, BITS_NOTE.format(most=MOST))


if __name__ == "__main__":
    main()
