"""Figure of loss-matched contrasts at several levels: does the sign of a change depend on how much was learned?"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from anisoscope.analysis.loss_matched import SHARES
from anisoscope.measurement.intervals import LEVEL
from anisoscope.plot import style
from anisoscope.plot.experiment import ACROSS, CONTRASTED, Compared, named
from anisoscope.plot.provenance import caption

PAIR = ["setting", "before", "after", "held"]
READ = f"Bands: {LEVEL * 100:.0f} % interval, not corrected. A sign turns where intervals on both sides leave 0 out."


def build(compared: Compared) -> Figure | None:
    """The curves, with the caption of their experiment."""
    table, primary = compared.by_level, compared.primary
    figure = None if table is None else curves(table, set() if primary is None else {*primary["quantity"]})
    if figure is not None:
        shares = ", ".join(f"{100 * share:g}" for share in SHARES)
        shown = f"Loss-matched contrasts at {shares} % of the gain that all runs of the contrast reach."
        caption(figure, compared.runs, shown, READ)
    return figure


def curves(table: pd.DataFrame, asked: set[str]) -> Figure | None:
    """A panel per quantity that is asked for, a curve per contrast over the context gain at which it is read."""
    table = table[(table["positions"] == "all") & np.isfinite(table["change"].astype(float))]
    quantities = [name for name in dict.fromkeys(table["quantity"]) if name in (asked or CONTRASTED)]
    if not quantities:
        return None
    pairs = list(dict.fromkeys(table[PAIR].itertuples(index=False, name=None)))
    columns, deep = min(ACROSS, len(quantities)), -(-len(quantities) // ACROSS)
    figure = style.new(style.PAGE, 0.9 + 1.6 * deep)
    strip, axes = style.below_a_strip(figure, deep, columns, 1.6)
    for ax, quantity in zip(axes.flat, quantities, strict=False):
        for number, pair in enumerate(pairs):
            own = table[
                (table["quantity"] == quantity) & (table[PAIR] == pd.Series(pair, PAIR)).all(axis=1)
            ].sort_values("level")
            look = {"color": style.OKABE_ITO[number % len(style.OKABE_ITO)], "linewidth": 1.1}
            ax.plot(own["level"], own["change"], "o-", markersize=3, label=words(pair), **look)
            ax.fill_between(own["level"], own["low"], own["high"], color=look["color"], alpha=0.15, linewidth=0)
        ax.axhline(0, color="0.5", linewidth=0.8, zorder=1)
        ax.set_title(named(quantity), fontsize=style.SMALL)
    for ax in axes.flat[: len(quantities)][-columns:]:  # the lowest of each column
        ax.set_xlabel("context gain (bits)", fontsize=style.SMALL)
    for ax in axes.flat[len(quantities) :]:
        ax.set_axis_off()
    strip.legend(*style.entries(axes.flat), loc="center", ncols=min(len(pairs), 2))
    turned, of = turning(table, quantities), f"of {len(pairs) * len(quantities)} contrasts"
    which = f" ({named(turned[0])})" if len(turned) == 1 else ""
    style.title(figure, f"{len(turned)} {of}{which} change{'s' * (len(turned) == 1)} sign with the context gain")
    return figure


def turning(table: pd.DataFrame, quantities: list[str]) -> list[str]:
    """Quantities of contrasts with an interval above 0 at one level and one below it at another."""
    groups = table[table["quantity"].isin(quantities)].groupby(["quantity", *PAIR])
    return [name for (name, *_), own in groups if (own["low"] > 0).any() and (own["high"] < 0).any()]


def words(pair: tuple[str, ...]) -> str:
    _, before, after, held = pair
    return f"{before} → {after}" + f" ({held})" * bool(held)
