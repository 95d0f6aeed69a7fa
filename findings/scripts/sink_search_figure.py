"""Sinks and bells of the search for a sink, from the tables of findings/tables/sink_search.

.venv/bin/python -m findings.scripts.sink_search_figure    # findings/figures/sink_search.png
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from anisoscope.metrics.attention import SINK_FROM
from anisoscope.plot import style
from findings.claims.claim_entries import CLAIMS
from findings.scripts.shared_tables import FIGURES, RESULTS

TABLES = ("tiny", "together", "found")
AGAIN = ["long", "together_deep"]  # of a run that stands in two tables
ENCODERS = ["muon_masked", "rotary_post_norm_masked"]
NAMES = {
    "together_longer": "six times as long",
    "post_norm": "post-LN",
    "muon": "Muon",
    "deep": "12 blocks",
    "deep_rotary": "12 blocks, rotary",
}
ENDS = {"bell_blocks": "first end: block 1", "bell_with_embedding": "first end: the embedding"}


def draw(rows: pd.DataFrame) -> Figure:
    """Draw bell over sink by both definitions of a bell, and the profiles of five runs."""
    figure, bell = style.new_figure(style.PAGE_WIDTH, 3.0), CLAIMS["decoder_bell"].smallest
    axes, looks = figure.subplots(1, 3), style.run_styles(NAMES)
    for ax, (column, words) in zip(axes, ENDS.items(), strict=False):
        others = rows.drop(list(NAMES))
        ax.plot(
            others["largest_attention_first_token"], others[column], "o", color="0.7", markersize=3
        )
        ax.axvline(SINK_FROM, color="0.4", linewidth=0.9, linestyle="--")
        ax.axhline(bell, color="0.4", linewidth=0.9, linestyle="--")
        for run, name in NAMES.items():
            look = looks[run] | {"label": name, "linestyle": "none", "markersize": 5}
            ax.plot(rows.loc[run, "largest_attention_first_token"], rows.loc[run, column], **look)
        sink = rows["largest_attention_first_token"] > SINK_FROM
        both = int((sink & (rows[column] > bell)).sum())
        ax.set_title(
            f"{words}\n{both} of {sink.sum()} with a sink have a bell", fontsize=style.SMALL_FONT
        )
        ax.set(xlim=(-0.02, 0.52), ylim=(-0.36, 0.5), xlabel="attention on the first token")
    axes[0].set_ylabel("bell of anisotropy")
    for run, name in NAMES.items():
        names = [name for name in (f"anisotropy_{layer}" for layer in range(13)) if name in rows]
        profile = rows.loc[run, names].astype(float).dropna()
        axes[2].plot(
            np.linspace(0, 1, len(profile)), profile, markersize=3, label=name, **looks[run]
        )
    axes[2].set(xlabel="relative depth (0 = embedding)", ylabel="anisotropy", ylim=(0, None))
    style.label_ends(axes[2], 0.75)
    axes[2].set_title("anisotropy over depth", fontsize=style.SMALL_FONT)
    about = (
        "one seed each (12 blocks, rotary: two), last checkpoint; 4 blocks and learned positions"
    )
    lines = f"Decoders on characters, {len(rows)} runs, {about} unless named otherwise. Attention: "
    lines += f"mean weight of the head with most. Dashed: {SINK_FROM} of attention, and a bell of "
    lines += f"{bell}. Gray: the other runs."
    style.title(figure, "Sinks and bells come without each other")
    style.add_footer(figure, [lines])
    return figure


if __name__ == "__main__":
    tables = [pd.read_csv(RESULTS / "sink_search" / f"{name}.csv") for name in TABLES]
    runs = pd.concat(tables).drop_duplicates("run").set_index("run").drop([*AGAIN, *ENCODERS])
    with style.context():
        draw(runs).savefig(FIGURES / "sink_search.png", dpi=150)
