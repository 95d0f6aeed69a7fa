"""Draw anisotropy over depth and both definitions of a bell, for findings/scripts/real_models.py."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anisoscope.plot import style
from findings.claims.claim_entries import CLAIMS
from findings.scripts.shared_tables import COLORS, NAMES, SIDES, draw_line

WIDEST_BAND = 0.5  # a wider interval is no band: its line is dashed
ENDS = {"bell_blocks": "block 1", "bell_with_embedding": "the embedding"}
TITLE = "Anisotropy over depth, and the bell by two definitions"
NOTE = (
    "Bands: 95 % intervals over windows, or over five seeds; dashed where an interval is wider "
    f"than {WIDEST_BAND}. Gray: encoders. Dotted: the smallest bell of interest."
)


def draw(frame: pd.DataFrame, bell: pd.DataFrame) -> Figure:
    """Draw profiles, decoders in color and encoders in gray, beside both definitions of a bell."""
    decoders = {*frame.model[frame.kind == "decoder"]}
    colors = {model: COLORS[model] if model in decoders else "0.6" for model in NAMES}
    figure = style.new_figure(style.PAGE, 5.2)
    axes = figure.subplots(len(SIDES), 2, sharex="col", width_ratios=(5, 2))
    for (profile, dots), (side, words) in zip(axes, SIDES.items(), strict=True):
        for model, own in frame[frame.positions == side].groupby("model", sort=False):
            look = {"color": colors[model], "linewidth": 1.6 if model in decoders else 1}
            profile.plot(own.depth, own["mean"], "--", label=NAMES[model], **look)
            wide = own.high - own.low > WIDEST_BAND
            parts = own[["mean", "low", "high"]].mask(wide)
            draw_line(profile, own[["depth"]].join(parts), "depth", **look)
        profile.set(ylim=(0, 1.02), ylabel=f"anisotropy, {words}", xlim=(0, 1))
        style.label_ends(profile)
        draw_bells(dots, bell[bell.positions == side].set_index("model"), colors)
    axes[-1, 0].set_xlabel("relative depth (0 = embedding)")
    axes[-1, 1].set_xlabel("bell: middle minus\nthe higher end")
    axes[0, 1].legend(loc="lower center", bbox_to_anchor=(0.3, 1), title="first end")
    style.add_footer(figure, [NOTE])
    return figure


def draw_bells(ax: Axes, bell: pd.DataFrame, colors: dict[str, str]) -> None:
    """Draw a row for each model: a dot for each definition, joined by a line."""
    for y, model in enumerate(reversed(NAMES)):
        color, last = colors[model], y == len(NAMES) - 1
        ax.plot(bell.loc[model, [*ENDS]], [y, y], color=color, linewidth=0.8)
        for (name, label), size, face in zip(ENDS.items(), (3, 6), (color, "none"), strict=True):
            look = {"color": color, "markerfacecolor": face, "markersize": size}
            ax.plot(bell.loc[model, name], y, "o", label=label if last else "", **look)
    ax.axvline(CLAIMS["decoder_bell"].smallest, color="0.3", linewidth=0.9, linestyle=":")
    ax.set_yticks(range(len(NAMES)), reversed(NAMES.values()))
    ax.set(ylim=(-0.6, len(NAMES) - 0.4), xlim=(-0.15, 1))
    ax.grid(axis="y", visible=False)
