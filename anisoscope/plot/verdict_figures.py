"""Figures of verdicts: prespecified contrasts over their margins, and the papers' claims."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from anisoscope.analysis.claims.claim_entries import CLAIMS
from anisoscope.analysis.claims.verdicts import CONTRADICTED, CONTRAST, INCONCLUSIVE, REPRODUCED
from anisoscope.analysis.primary import (
    BOTH,
    DIFFERS,
    NOTHING,
    OPEN,
    UNTESTED,
    WITHIN,
    with_interval,
    words,
)
from anisoscope.measurement.intervals import LEVEL
from anisoscope.plot import style
from anisoscope.plot.experiment_figures import Compared, shape_name
from anisoscope.plot.footer import caption

SETTLED = (DIFFERS, BOTH, WITHIN)  # drawn filled; what is open is hollow
AT = {"last": "last checkpoint", "matched": "loss-matched"}
PAIR = ["before", "after", "at", "positions"]
ROW = 0.2  # inches
TICKS = (-30, -10, -3, -1, 0, 1, 3, 10, 30)
SYMBOLS = {REPRODUCED: "+", CONTRADICTED: "−", INCONCLUSIVE: "?"}
SHADES = {REPRODUCED: "#0072B2", CONTRADICTED: "#D55E00", INCONCLUSIVE: "0.85"}
KEY = "+ reproduced, − contradicted, ? inconclusive.  1/2: so many of a class's verdicts are this one."


def primary_contrasts(compared: Compared) -> Figure | None:
    """Draw the forest, with the caption of its experiment."""
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
        f"{with_interval(row)}, {words(row)}."
        for row in known.itertuples(index=False)
    ]
    caption(figure, compared.runs, shown, bars, lines)
    return figure


def forest(table: pd.DataFrame) -> Figure:
    """Draw a row per contrast under its two conditions: change and interval over its margin."""
    table = table[table["verdict"] != NOTHING]
    groups = [*table.groupby(PAIR, sort=False)]
    alone = table["quantity"].nunique() == 1 and len(table) == len(groups)
    figure = style.new_figure(style.PAGE, 1.3 + ROW * (len(table) + len(groups) * (not alone)))
    ax = figure.subplots()
    ax.axvspan(-1, 1, color="0.9", linewidth=0, zorder=0)
    ax.axvline(0, color="0.5", linewidth=0.8, zorder=1)
    names = []  # of rows and of headings, which are bold
    for pair, rows in groups:
        heading = _format_pair(pair, table["at"].nunique() > 1)
        names += [(heading, "bold")] * (not alone)
        for row in rows.itertuples(index=False):
            _draw_change(ax, row, -len(names))
            names.append((heading if alone else _format_quantity(row.quantity), "normal"))
    labels = [name for name, _ in names]
    ax.set_yticks(range(0, -len(names), -1), labels, fontsize=style.FOOTER)
    for tick, (_, weight) in zip(ax.get_yticklabels(), names, strict=True):
        tick.set_fontweight(weight)
    ax.set_ylim(0.4 - len(names), 0.6)
    ax.set_xscale("symlog", linthresh=1, linscale=1.2)
    sizes = table[["change", "low", "high"]].abs().div(table["margin"], axis=0)
    widest = 1.3 * max(3.0, float(np.nan_to_num(sizes.max(axis=None))))
    ax.set_xlim(-widest, widest)
    marks = [tick for tick in TICKS if abs(tick) < widest]
    ax.set_xticks(marks, [f"{tick:g}".replace("-", "−") for tick in marks])
    ax.minorticks_off()
    change = _format_quantity(table["quantity"].iloc[0]) if alone else "change"
    ax.set_xlabel(f"{change}, in units of the margin of equivalence (shaded)", fontsize=style.SMALL)
    ax.grid(axis="y", visible=False)
    ax.tick_params(axis="y", length=0)
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


def _draw_change(ax: Axes, row, place: int) -> None:
    """Draw interval and mark, filled where the verdict settles something, and their numbers."""
    ax.plot(np.array([row.low, row.high]) / row.margin, [place, place], color="0.15", linewidth=1.1)
    face = "0.15" if row.verdict in SETTLED else "white"
    look = {"color": "0.15", "markerfacecolor": face, "markersize": 4, "linestyle": "none"}
    marker = "s" if row.verdict == WITHIN else "o"
    ax.plot(row.change / row.margin, place, marker=marker, label=row.verdict, **look)
    right = {"transform": ax.get_yaxis_transform(), "va": "center", "fontsize": style.FOOTER}
    ax.text(1.02, place, f"{with_interval(row)}  {row.verdict}", **right)


def _format_quantity(name: str) -> str:
    long_name, units = shape_name(name)
    return style.axis_label(long_name, units)


def _format_pair(pair: tuple[str, ...], with_checkpoint: bool) -> str:
    before, after, at, positions = pair
    further = [AT[at]] * with_checkpoint + ["without token 0"] * (positions != "all")
    return f"{before} → {after}".replace("_", " ") + f" ({', '.join(further)})" * bool(further)


def matrix(frame: pd.DataFrame, columns: dict[str, list[tuple[str, str]]]) -> Figure:
    """Draw claims by class of model: in each cell the verdict of most, with how many of how many.

    Args:
        frame: of `anisoscope.verdicts`.
        columns: for each class the (experiment, model) whose verdicts it counts.
    """
    claims = [name for name in CLAIMS if name in set(frame["claim"])]
    figure = style.new_figure(style.PAGE, 1.2 + 0.23 * len(claims))
    ax = figure.subplots()
    for y, name in enumerate(claims):
        for x, members in enumerate(columns.values()):
            verdict, count, every = matrix_cell(frame[frame["claim"] == name], members)
            if verdict:
                box = (x - 0.47, -y - 0.45), 0.94, 0.9
                ax.add_patch(Rectangle(*box, facecolor=SHADES[verdict], linewidth=0))
                ink = "0.25" if verdict == INCONCLUSIVE else "white"
                look = {"ha": "center", "va": "center", "color": ink, "fontsize": 6.5}
                ax.text(x, -y, f"{SYMBOLS[verdict]}  {count}/{every}", **look)
    ax.set_xlim(-0.5, len(columns) - 0.5)
    ax.set_ylim(-len(claims) + 0.5, 0.5)
    wordings = [style.wrap(CLAIMS[name].wording.rstrip("."), 2.4, 6) for name in claims]
    ax.set_yticks([-y for y in range(len(claims))], wordings, fontsize=6)
    ax.set_xticks(range(len(columns)), [one.replace(", ", "\n") for one in columns], fontsize=6)
    ax.xaxis.tick_top()
    ax.grid(visible=False)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    counts = frame[frame["paper"] != CONTRAST]["verdict"].value_counts()
    parts = (f"{counts.get(one, 0)} {one}" for one in (REPRODUCED, CONTRADICTED, INCONCLUSIVE))
    style.add_footer(figure, [KEY, f"Of {counts.sum()} verdicts {', '.join(parts)}."])
    style.title(figure, "Verdicts on the papers' claims by class of model")
    return figure


def matrix_cell(rows: pd.DataFrame, members: list[tuple[str, str]]) -> tuple[str, int, int]:
    """Return the verdict of most, of equal ones the less certain; how many have it; how many any."""
    places = zip(rows["experiment"], rows["model"], strict=True)
    own = rows["verdict"][[place in members for place in places]].tolist()
    counts = {one: own.count(one) for one in (INCONCLUSIVE, CONTRADICTED, REPRODUCED) if one in own}
    verdict = max(counts, key=counts.get, default="")  # of equal ones the first
    return verdict, counts.get(verdict, 0), len(own)
