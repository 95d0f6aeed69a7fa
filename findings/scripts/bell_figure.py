"""Draw anisotropy over depth, for findings/scripts/real_models.py."""

import pandas as pd
from matplotlib.figure import Figure

from anisoscope.plot import style
from findings.scripts.shared_tables import COLORS, NAMES, SIDES, draw_line

WIDEST_BAND = 0.5  # a wider interval is no band: its line is dashed
ENDS = {"bell_blocks": "block 1", "bell_with_embedding": "the embedding"}
TITLE = "Anisotropy peaks inside decoders, and in an encoder of speech"
NOTE = (
    "Bands: 95 % intervals over windows, or over five seeds of models trained here (4 layers); dashed where "
    f"an interval is wider than {WIDEST_BAND}. Text: enwik8; for Whisper, speech."
)
PANELS = {"decoder": "pretrained decoders", "encoder": "encoders, and the decoder trained here"}


def draw(frame: pd.DataFrame) -> Figure:
    """Draw pretrained decoders beside encoders and the project's own models, on both positions."""
    figure = style.new_figure(style.PAGE_WIDTH, 4.8)
    axes = figure.subplots(len(SIDES), len(PANELS), sharex=True, sharey=True)
    own_decoder = frame.model.str.startswith("our decoder")
    frame = frame.assign(panel=frame.kind.where(~own_decoder, "encoder"))
    for row, (side, words) in zip(axes, SIDES.items(), strict=True):
        for ax, panel in zip(row, PANELS, strict=True):
            shown = frame[(frame.positions == side) & (frame.panel == panel)]
            for model, own in shown.groupby("model", sort=False):
                look = {"color": COLORS[model], "linewidth": 1.6}
                ax.plot(own.depth, own["mean"], "--", label=NAMES[model], **look)
                wide = own.high - own.low > WIDEST_BAND
                parts = own[["mean", "low", "high"]].mask(wide)
                draw_line(ax, own[["depth"]].join(parts), "depth", **look)
            ax.set(ylim=(0, 1.02), xlim=(0, 1))
            style.label_ends(ax)
        row[0].set_ylabel(f"anisotropy,\n{words}")
    for ax, title in zip(axes[0], PANELS.values(), strict=True):
        ax.set_title(title)
    for ax in axes[-1]:
        ax.set_xlabel("relative depth (0 = embedding)")
    style.add_footer(figure, [NOTE])
    return figure
