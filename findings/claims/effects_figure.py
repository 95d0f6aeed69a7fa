"""The figure of all claims: every model's effect over the smallest effect of interest."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anisoscope.engine.intervals import LEVEL
from anisoscope.plot import style
from anisoscope.plot.experiment_figures import ratio_axis
from findings.claims.claim_entries import CLAIMS
from findings.claims.verdicts import CONTRAST, NOT_SHOWN, TOO_WIDE, UNCOUNTED, VERDICTS

COLORS = dict(zip(VERDICTS, ("#0072B2", "#D55E00", "#E69F00", "0.25", "0.65"), strict=True))
SHORT = {NOT_SHOWN: "not shown"}
LOW_BAR = "Low bars, which nearly every trained model passes"
EFFECTS_KEY = (
    "What is claimed to be small (flat, stable, linear) has its "
    "sign reversed: as claimed is in the shade. "
    "Bars: 95 % intervals, or ranges of five seeds; filled: p < 0.05 after correction over all; single pretrained "
    "models have no p. Not shown: contradicted, by a formula that we reconstructed. Right: numbers of models with each "
    "verdict, also where nothing could be tested. Beyond ± 38 at the edge."
)


def effects(frame: pd.DataFrame) -> Figure:
    """Draw a row for each claim of `verdicts`: every model's effect over the smallest of interest."""
    frame = frame[~frame["role"].isin([CONTRAST, UNCOUNTED])]
    groups = {claim.paper: [] for claim in CLAIMS.values()} | {LOW_BAR: []}
    for name in CLAIMS:
        if name in set(frame["claim"]):
            groups[LOW_BAR if CLAIMS[name].low_bar else CLAIMS[name].paper].append(name)
    rows = [row for group, own in groups.items() if own for row in (group, *own)]
    figure = style.new_figure(style.PAGE_WIDTH, 1.4 + 0.165 * len(rows))
    ax = figure.subplots()
    for x, found in enumerate(VERDICTS):
        look = {"color": COLORS[found], "fontsize": style.FOOTER, "ha": "center"}
        look |= {"transform": ax.get_yaxis_transform()}
        ax.text(1.04 + 0.065 * x, 0.6, SHORT.get(found, found), rotation=90, va="bottom", **look)
        for y, name in enumerate(rows):
            count = (frame["claim"].eq(name) & frame["verdict"].eq(found)).sum()
            ax.text(1.04 + 0.065 * x, -y, count or "", va="center", **look)
    for y, name in enumerate(rows):
        own = frame[frame["claim"].eq(name) & frame["reason"].isin(["", TOO_WIDE])]
        _draw_effects(ax, own.sort_values("effect"), -y)
    heads = {row: row.split(" (")[0] for row in groups}
    titles = [CLAIMS[row].wording if row in CLAIMS else heads[row] for row in rows]
    titles = [title[:1].upper() + title[1:] for title in titles]
    style.name_rows(ax, titles, [name not in CLAIMS for name in rows])
    ratio_axis(ax, 40, "effect ÷ smallest effect of interest (logarithmic outside ± 1)")
    for x, words in ((-6.5, "← the opposite"), (0, "too small to matter"), (6.5, "as claimed →")):
        ax.text(x, 0.8, words, fontsize=style.SMALL_FONT, ha="center", va="bottom")
    style.add_footer(figure, [EFFECTS_KEY])
    figure.get_layout_engine().set(rect=(0, 0, 0.96, 1))
    style.title(
        figure, "Beyond low bars, most effects that papers claim are small or inconclusive here"
    )
    return figure


def _draw_effects(ax: Axes, rows: pd.DataFrame, place: float) -> None:
    """Draw a row's intervals on top of each other; filled if they survive the correction."""
    heights = place + np.linspace(-0.36, 0.36, len(rows) + 2)[1:-1]
    for y, row in zip(heights, rows.itertuples(), strict=True):
        scale = CLAIMS[row.claim].smallest * (-1 if CLAIMS[row.claim].absence else 1)
        value, *ends = np.clip(np.array([row.effect, row.low, row.high]) / scale, -38, 38)
        look = {"markersize": 2.8, "markeredgewidth": 0.7, "linewidth": 0.8}
        corrected = row.p_project < 1 - LEVEL
        style.draw_row(ax, y, value, ends, COLORS[row.verdict], corrected, **look)
