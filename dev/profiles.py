"""Anisotropy over depth of what is trained here, from tables of docs/results: figures of docs/findings/ablations.md.

    .venv/bin/python -m dev.profiles

figures/pairs_profile.png has the encoder-decoder pairs, figures/sink_search.png the runs of the search for a sink.
"""

import numpy as np
import pandas as pd
import scipy.stats
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anisoscope.claims.entries import BELL
from anisoscope.measurement.families.attention import SINK_FROM
from anisoscope.plot import style
from dev.real_models import FIGURES, RESULTS

PAIRS = {"matched_pair_muon": "Muon", "matched_pair_adamw": "AdamW"}
SEARCH = ("tiny", "together", "found")
TOLD = {  # run -> its name here, and where it stands beside its point, in points
    "together_longer": ("six times as long", (0, 7), "center"),
    "deep": ("12 blocks", (6, 0), "left"),
    "deep_rotary": ("12 blocks, rotary:\none vector 15.9 × the median", (6, -10), "left"),
    "post_norm": ("post-LN", (-6, -3), "right"),
}


def pairs() -> Figure:
    """A panel for each optimizer: means over seeds with Student's intervals."""
    figure = style.new(style.PAGE, 2.9)
    axes = figure.subplots(1, len(PAIRS), sharey=True)
    looks = style.inks(("decoder", "encoder"))
    for ax, (folder, words) in zip(axes, PAIRS.items(), strict=True):
        rows = pd.read_csv(RESULTS / folder / "layers.csv").query("positions == 'all'")
        for kind, own in rows.groupby("condition"):
            groups = own.groupby("layer")["anisotropy"].agg(["mean", "sem", "count"])
            half = groups["sem"] * scipy.stats.t.ppf(0.975, groups["count"] - 1)
            style.banded(ax, groups.index, groups["mean"], groups["mean"] - half, groups["mean"] + half, **looks[kind])
            ax.annotate(
                f"{kind}s",
                (groups.index[1], groups["mean"].iloc[1]),
                xytext=(0, 7 if kind == "encoder" else -13),
                textcoords="offset points",
                color=looks[kind]["color"],
                fontsize=style.SMALL,
            )
        ax.set(title=words, xlabel="layer (0 = embedding)", xticks=groups.index)
    axes[0].set(ylabel="anisotropy", ylim=(0, None))
    style.title(figure, "Small decoders: a valley under Muon, a low peak in block 2 under AdamW")
    style.small_print(
        figure, ["4 layers, D=64, rotary positions, last checkpoint. Bands: 95 % intervals over five seeds."]
    )
    return figure


def search() -> Figure:
    """Sinks and bells of all runs, and the profiles of those that have something to show."""
    rows = pd.concat([pd.read_csv(RESULTS / "sink_search" / f"{name}.csv") for name in SEARCH])
    rows = rows.drop_duplicates("run").set_index("run").drop(["long", "together_deep"])  # there twice, by another name
    rows = rows[~rows.index.str.endswith("_masked")]  # encoders
    figure = style.new(style.PAGE, 3.2)
    left, right = figure.subplots(1, 2)
    looks = style.inks(TOLD)
    plain = rows.drop([*TOLD])
    left.plot(plain["largest_attention_first"], plain["bell_blocks"], "o", color="0.6", markersize=3)
    left.axvline(SINK_FROM, color="0.4", linewidth=0.9, linestyle="--")
    left.axhline(BELL, color="0.4", linewidth=0.9, linestyle="--")
    for run, (words, offset, side) in TOLD.items():
        at = (rows.loc[run, "largest_attention_first"], rows.loc[run, "bell_blocks"])
        left.plot(*at, **looks[run])
        left.annotate(
            words, at, offset, textcoords="offset points", ha=side, color=looks[run]["color"], fontsize=style.SMALL
        )
        profile(right, rows.loc[run], looks[run])
    about = {"fontsize": style.SMALL, "color": "0.35"}
    left.text(SINK_FROM + 0.005, 0.3, "a sink head", va="top", **about)
    left.text(0.5, BELL + 0.006, "a bell", ha="right", **about)
    left.set(
        xlabel="largest mean attention of a head on token 0", ylabel="bell of anisotropy, blocks", ylim=(-0.34, 0.32)
    )
    left.set(xlim=(-0.02, 0.52))
    right.set(xlabel="relative depth (0 = embedding)", ylabel="anisotropy", ylim=(0, None))
    both = int(((rows["largest_attention_first"] > SINK_FROM) & (rows["bell_blocks"] > BELL)).sum())
    style.title(
        figure, f"A sink, a bell and a massive vector come apart: {both} of {len(rows)} runs have sink and bell"
    )
    said = "Decoders on characters, last checkpoint, one seed each but the rotary one of 12 blocks; those named have 4 "
    said += "blocks and learned positions, unless they say otherwise. Grey: all others. Colours are of the left panel. "
    said += f"Dashed: {SINK_FROM} of attention, and a peak {BELL} above both ends."
    style.small_print(figure, [said])
    return figure


def profile(ax: Axes, run: pd.Series, look: dict[str, str]) -> None:
    columns = [
        name for name in (f"anisotropy_{layer}" for layer in range(13)) if name in run and np.isfinite(run[name])
    ]
    ax.plot(np.linspace(0, 1, len(columns)), run[columns].astype(float), markersize=3, **look)


if __name__ == "__main__":
    with style.context():
        pairs().savefig(FIGURES / "pairs_profile.png", dpi=150)
        search().savefig(FIGURES / "sink_search.png", dpi=150)
