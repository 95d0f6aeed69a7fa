"""Figures of verdicts: prespecified contrasts over their margins, and the papers' claims."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anisoscope.analysis.claims.claim_entries import CLAIMS
from anisoscope.analysis.claims.verdicts import CONTRAST, VERDICTS
from anisoscope.analysis.primary import (
    BOTH,
    DIFFERS,
    NOTHING,
    OPEN,
    UNTESTED,
    WITHIN,
    format_interval,
    format_verdict,
)
from anisoscope.measurement.intervals import LEVEL
from anisoscope.plot import style
from anisoscope.plot.experiment_figures import Compared, shape_name
from anisoscope.plot.run_tables import caption, display_name

SETTLED = (DIFFERS, BOTH, WITHIN)  # drawn filled; what is open is hollow
AT = {"last": "last checkpoint", "matched": "loss-matched"}
PAIR = ["before", "after", "at", "positions"]
ROW = 0.2  # inches
TICKS = (-30, -10, -3, -1, 0, 1, 3, 10, 30)
COLORS = dict(zip(VERDICTS, ("#0072B2", "#D55E00", "0.25", "0.65"), strict=True))
LOW_BAR = "Low bars, which nearly every trained model passes"
EFFECTS_KEY = (
    "Right of the shade: as claimed. Left: the opposite. What is claimed to be small (flat, stable, linear) has its "
    "sign reversed: as claimed is in the shade. "
    "Bars: 95 % intervals, or ranges of five seeds; filled: p < 0.05 after correction over all. Right: numbers of "
    "models with each verdict, also where nothing could be tested. Beyond ± 38 at the edge."
)


def primary_contrasts(compared: Compared) -> Figure | None:
    """Draw the primary contrasts, with the experiment's caption."""
    table = compared.primary
    if table is None or table.empty or (table["verdict"] == NOTHING).all():
        return None
    figure, known = forest(table), table[table["verdict"] != NOTHING]
    without = ", ".join(table.loc[table["verdict"] == NOTHING, "name"])
    shown = (
        "Change from one condition to another: "
        f"the {len(table)} contrasts prespecified before any number was seen."
        + f" Without value: {without}."
        * bool(without)
    )
    pairs = " to ".join(map(str, dict.fromkeys([known["pairs"].min(), known["pairs"].max()])))
    bars = (
        f"Bars: {LEVEL * 100:.0f} % interval, not corrected, {pairs} pairs of runs. Verdicts: "
        f"p < {1 - LEVEL:.2g}, after Holm over all tests; filled where they settle something. "
        "Shaded: prespecified margin of equivalence. Without a margin there are numbers alone."
    )
    lines = [
        f"{row.name}: {row.quantity}, {row.before} → {row.after}, {AT[row.at]}: "
        f"{format_interval(row.change, row.low, row.high)}, {format_verdict(row)}."
        for row in known.itertuples(index=False)
    ]
    caption(figure, compared.runs, shown, bars, lines)
    return figure


def forest(table: pd.DataFrame) -> Figure:
    """Draw a row for each contrast under its conditions: change and interval over its margin."""
    table = table[table["verdict"] != NOTHING]
    groups = [*table.groupby(PAIR, sort=False)]
    alone = table["quantity"].nunique() == 1 and len(table) == len(groups)
    figure = style.new_figure(style.PAGE, 1.3 + ROW * (len(table) + len(groups) * (not alone)))
    ax = figure.subplots()
    names = {}  # of rows and of headings, which are bold
    for pair, rows in groups:
        heading = _format_pair(pair, table["at"].nunique() > 1)
        names |= {} if alone else {(heading,): True}
        for row in rows.itertuples(index=False):
            _draw_change(ax, row, -len(names))
            names[heading, row.quantity] = False
    labels = [key[0] if alone or bold else _format_quantity(key[1]) for key, bold in names.items()]
    sizes = table[["change", "low", "high"]].abs().div(table["margin"], axis=0)
    widest = 1.3 * max(3.0, float(np.nan_to_num(sizes.max(axis=None))))
    change = _format_quantity(table["quantity"].iloc[0]) if alone else "change"
    style.name_rows(ax, labels, [*names.values()])
    _ratio_axis(ax, widest, f"{change}, in units of the margin of equivalence (shaded)")
    counts = {
        "differ from 0": table["verdict"].isin((DIFFERS, BOTH)).sum(),
        "equivalent to 0": (table["verdict"] == WITHIN).sum(),
        "inconclusive": table["verdict"].isin((OPEN, UNTESTED)).sum(),
    }
    parts = [f"{count} {verdict}" for verdict, count in counts.items() if count]
    ax.set_title(f"of {len(table)}: {', '.join(parts)}", fontsize=style.SMALL)
    where = f", {AT[table['at'].iloc[0]]}" * (table["at"].nunique() == 1)
    style.title(figure, f"Prespecified changes{where}")
    return figure


def _ratio_axis(ax: Axes, widest: float, label: str, shade: str = "0.9", linear: float = 1.2):
    """Show ratios to a bound, linear and shaded within ± 1, logarithmic outside."""
    ax.axvspan(-1, 1, color=shade, linewidth=0, zorder=0)
    ax.axvline(0, color="0.5", linewidth=0.8, zorder=1)
    ax.set_xscale("symlog", linthresh=1, linscale=linear)
    ax.set_xlim(-widest, widest)
    marks = [tick for tick in TICKS if abs(tick) < widest]
    ax.set_xticks(marks, [f"{tick:g}".replace("-", "−") for tick in marks])
    ax.minorticks_off()
    ax.set_xlabel(label, fontsize=style.SMALL)


def _draw_change(ax: Axes, row, place: int) -> None:
    """Draw interval, mark and numbers; the mark is filled if the verdict is decided."""
    value, *ends = np.array([row.change, row.low, row.high]) / row.margin
    look = {"marker": "s" if row.verdict == WITHIN else "o", "markersize": 4, "linewidth": 1.1}
    settled = row.verdict in SETTLED
    style.draw_row(ax, place, value, ends, "0.15", settled, label=row.verdict, **look)
    right = {"transform": ax.get_yaxis_transform(), "va": "center", "fontsize": style.FOOTER}
    ax.text(
        1.02, place, f"{format_interval(row.change, row.low, row.high)}  {row.verdict}", **right
    )


def _format_quantity(name: str) -> str:
    long_name, units = shape_name(name)
    return style.axis_label(long_name, units)


def _format_pair(pair: tuple[str, ...], with_checkpoint: bool) -> str:
    before, after, at, positions = pair
    further = [AT[at]] * with_checkpoint + ["without the first token"] * (positions != "all")
    pair = f"{display_name(before)} → {display_name(after)}"
    return pair + f" ({', '.join(further)})" * bool(further)


def effects(frame: pd.DataFrame) -> Figure:
    """Draw a row for each claim of `verdicts`: every model's effect over the smallest of interest."""
    frame = frame[frame["paper"] != CONTRAST]
    groups = {claim.paper: [] for claim in CLAIMS.values()} | {LOW_BAR: []}
    for name in CLAIMS:
        if name in set(frame["claim"]):
            groups[LOW_BAR if CLAIMS[name].low_bar else CLAIMS[name].paper].append(name)
    rows = [row for group, own in groups.items() if own for row in (group, *own)]
    figure = style.new_figure(style.PAGE, 1.4 + 0.165 * len(rows))
    ax = figure.subplots()
    for x, found in enumerate(VERDICTS):
        look = {"color": COLORS[found], "fontsize": style.FOOTER, "ha": "center"}
        look |= {"transform": ax.get_yaxis_transform()}
        ax.text(1.04 + 0.065 * x, 0.6, found, rotation=90, va="bottom", **look)
        for y, name in enumerate(rows):
            count = (frame["claim"].eq(name) & frame["verdict"].eq(found)).sum()
            ax.text(1.04 + 0.065 * x, -y, count or "", va="center", **look)
    for y, name in enumerate(rows):
        own = frame[frame["claim"].eq(name) & frame["p"].notna()]
        _draw_effects(ax, own.sort_values("effect"), -y)
    titles = [CLAIMS[row].wording if row in CLAIMS else row.split(" (")[0] for row in rows]
    style.name_rows(ax, titles, [name not in CLAIMS for name in rows])
    label = "effect over the smallest of interest: linear within ± 1 (shaded), logarithmic outside"
    _ratio_axis(ax, 40, label, "0.92", 1)
    style.add_footer(figure, [EFFECTS_KEY])
    figure.get_layout_engine().set(rect=(0, 0, 0.96, 1))
    style.title(figure, "What the papers claim, and how large it is here")
    return figure


def _draw_effects(ax: Axes, rows: pd.DataFrame, place: float) -> None:
    """Draw a row's intervals on top of each other; filled if they survive the correction."""
    heights = place + np.linspace(-0.36, 0.36, len(rows) + 2)[1:-1]
    for y, row in zip(heights, rows.itertuples(), strict=True):
        scale = CLAIMS[row.claim].smallest * (-1 if CLAIMS[row.claim].absence else 1)
        value, *ends = np.clip(np.array([row.effect, row.low, row.high]) / scale, -38, 38)
        look = {"markersize": 2.8, "markeredgewidth": 0.7, "linewidth": 0.8}
        corrected = not row.p_project >= 1 - LEVEL
        style.draw_row(ax, y, value, ends, COLORS[row.verdict], corrected, **look)
