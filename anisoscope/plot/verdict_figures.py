"""Figures of verdicts: prespecified contrasts as a forest over their margins, and the papers'
claims as a matrix.
"""

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
from anisoscope.analysis.shapes import SHAPES
from anisoscope.measurement.intervals import LEVEL
from anisoscope.plot import style
from anisoscope.plot.experiment_figures import OTHERS, Compared
from anisoscope.plot.footer import caption

SETTLED = (DIFFERS, BOTH, WITHIN)  # drawn filled; what is open is hollow
AT = {"last": "last checkpoint", "matched": "loss-matched"}
PAIR = ("before", "after", "at", "positions")
ROW = 0.2  # inches
SYMBOLS = {REPRODUCED: "+", CONTRADICTED: "−", INCONCLUSIVE: "?"}
SHADES = {REPRODUCED: "#0072B2", CONTRADICTED: "#D55E00", INCONCLUSIVE: "0.85"}


def build(compared: Compared) -> Figure | None:
    """The forest, with the caption of its experiment."""
    table = compared.primary
    if table is None or table.empty or (table["verdict"] == NOTHING).all():
        return None
    figure = forest(table)
    known = table[table["verdict"] != NOTHING]
    caption(
        figure,
        compared.runs,
        shown(table),
        bars(known),
        [*map(format_contrast, known.itertuples(index=False))],
    )
    return figure


def forest(table: pd.DataFrame) -> Figure:
    """A row per contrast under its two conditions: change and interval in units of its margin,
    which is shaded.
    """
    table = table[table["verdict"] != NOTHING]
    pairs = list(dict.fromkeys(table[list(PAIR)].itertuples(index=False, name=None)))
    alone = table["quantity"].nunique() == 1 and len(table) == len(pairs)
    count = len(table) + len(pairs) * (not alone)
    figure = style.new(style.PAGE, 1.1 + ROW * count)
    ax = figure.subplots()
    ax.axvspan(-1, 1, color="0.9", linewidth=0, zorder=0)
    ax.axvline(0, color="0.5", linewidth=0.8, zorder=1)
    place, ticks = 0, {}
    for pair in pairs:
        if not alone:
            ticks[place] = label(pair, pairs)
            place -= 1
        rows = table[(table[list(PAIR)] == pd.Series(pair, PAIR)).all(axis=1)]
        for row in rows.itertuples(index=False):
            draw(ax, row, place)
            ticks[place] = label(pair, pairs) if alone else quantity(row.quantity)
            place -= 1
    ax.set_yticks(list(ticks), list(ticks.values()), fontsize=style.SMALL_PRINT)
    for tick, name in zip(ax.get_yticklabels(), ticks.values(), strict=True):
        tick.set_fontweight("bold" if "→" in name and not alone else "normal")
    ax.set_ylim(place + 0.4, 0.6)
    ax.set_xscale("symlog", linthresh=1, linscale=1.2)
    sizes = table[["change", "low", "high"]].abs().div(table["margin"], axis=0).max(axis=None)
    widest = max(3.0, float(np.nan_to_num(sizes)))
    ax.set_xlim(-1.3 * widest, 1.3 * widest)
    marks = [tick for tick in (-30, -10, -3, -1, 0, 1, 3, 10, 30) if abs(tick) < 1.3 * widest]
    ax.set_xticks(marks, [f"{tick:g}".replace("-", "−") for tick in marks])
    ax.minorticks_off()
    what = quantity(table["quantity"].iloc[0]) if alone else "change"
    ax.set_xlabel(
        f"{what}, in units of the margin that counts as none (shaded)", fontsize=style.SMALL
    )
    ax.grid(axis="y", visible=False)
    ax.tick_params(axis="y", length=0)
    style.title(figure, message(table))
    return figure


def draw(ax: Axes, row, place: int) -> None:
    """The interval, a mark that is filled where the verdict settles something, and the numbers at
    the right.
    """
    ax.plot(np.array([row.low, row.high]) / row.margin, [place, place], color="0.15", linewidth=1.1)
    face = "0.15" if row.verdict in SETTLED else "white"
    marker = "s" if row.verdict == WITHIN else "o"
    look = {"color": "0.15", "markerfacecolor": face, "markersize": 4, "linestyle": "none"}
    ax.plot(row.change / row.margin, place, marker=marker, label=row.verdict, **look)
    where = {"transform": ax.get_yaxis_transform(), "va": "center", "fontsize": style.SMALL_PRINT}
    ax.text(1.02, place, f"{with_interval(row)}  {row.verdict}", **where)


def message(table: pd.DataFrame) -> str:
    """What the contrasts say together."""
    differ, alike = table["verdict"].isin((DIFFERS, BOTH)).sum(), (table["verdict"] == WITHIN).sum()
    left = table["verdict"].isin((OPEN, UNTESTED)).sum()
    where = {*table["at"]}
    read = f", {AT[next(iter(where))]}" if len(where) == 1 else ""
    parts = [f"{differ} differ from 0"] * bool(differ) + [f"{alike} equivalent to 0"] * bool(alike)
    parts += [f"{left} inconclusive"] * bool(left)
    return f"Of {len(table)} prespecified changes{read}: {', '.join(parts)}"


def quantity(name: str) -> str:
    long_name, units = (
        (SHAPES[name].long_name, SHAPES[name].units) if name in SHAPES else OTHERS[name]
    )
    return long_name if units == "1" else f"{long_name} ({units})"


def label(pair: tuple[str, ...], pairs: list[tuple[str, ...]]) -> str:
    """The two conditions in words, and what of the rest differs between rows."""
    before, after, at, positions = pair
    further = [AT[at]] * (len({one[2] for one in pairs}) > 1)
    further += ["without token 0"] * (positions != "all")
    return f"{before} → {after}".replace("_", " ") + f" ({', '.join(further)})" * bool(further)


def shown(table: pd.DataFrame) -> str:
    without = ", ".join(table.loc[table["verdict"] == NOTHING, "name"])
    said = f"Change from one condition to another: the {len(table)} contrasts prespecified before any number was seen."
    return said + f" Without value: {without}." * bool(without)


def bars(table: pd.DataFrame) -> str:
    few, many = table["pairs"].min(), table["pairs"].max()
    pairs = f"{few} to {many}" if few < many else f"{few}"
    said = f"Bars: {LEVEL * 100:.0f} % interval, not corrected, {pairs} pairs of runs."
    said += f" Verdicts: p < {1 - LEVEL:.2g}, after Holm over all tests; filled where they settle something."
    return said + " Shaded: prespecified margin. Without a margin there are numbers alone."


def format_contrast(row) -> str:
    return f"{row.name}: {row.quantity}, {row.before} → {row.after}, {AT[row.at]}: {with_interval(row)}, {words(row)}."


def matrix(frame: pd.DataFrame, columns: dict[str, list[tuple[str, str]]]) -> Figure:
    """Claims by model class: `columns` has for each class the (experiment, model) whose verdicts it
    counts.

    A cell has the verdict that most of them have, with how many of how many; where two are as many,
    the less certain.
    """
    claims = [name for name in CLAIMS if name in set(frame["claim"])]
    figure = style.new(style.PAGE, 1.2 + 0.23 * len(claims))
    ax = figure.subplots()
    for y, name in enumerate(claims):
        for x, members in enumerate(columns.values()):
            verdict, count, of = cell(frame[frame["claim"] == name], members)
            if verdict:
                box = Rectangle(
                    (x - 0.47, -y - 0.45), 0.94, 0.9, facecolor=SHADES[verdict], linewidth=0
                )
                ax.add_patch(box)
                ink = "0.25" if verdict == INCONCLUSIVE else "white"
                ax.text(
                    x,
                    -y,
                    f"{SYMBOLS[verdict]}  {count}/{of}",
                    ha="center",
                    va="center",
                    color=ink,
                    fontsize=6.5,
                )
    ax.set_xlim(-0.5, len(columns) - 0.5)
    ax.set_ylim(-len(claims) + 0.5, 0.5)
    wordings = [style.wrap(CLAIMS[name].wording.rstrip("."), 2.4, 6) for name in claims]
    ax.set_yticks([-y for y in range(len(claims))], wordings, fontsize=6)
    ax.set_xticks(range(len(columns)), [one.replace(", ", "\n") for one in columns], fontsize=6)
    ax.xaxis.tick_top()
    key = "+ reproduced, − contradicted, ? inconclusive.  1/2: so many of a kind's verdicts are this one."
    figure.supxlabel(key, fontsize=style.SMALL_PRINT)
    ax.grid(visible=False)
    ax.tick_params(length=0)
    for side in ax.spines.values():
        side.set_visible(False)
    counts = frame[frame["paper"] != CONTRAST]["verdict"].value_counts()
    parts = (f"{counts.get(one, 0)} {one}" for one in (REPRODUCED, CONTRADICTED, INCONCLUSIVE))
    style.title(figure, f"Of {counts.sum()} verdicts on the papers' claims {', '.join(parts)}")
    return figure


def cell(rows: pd.DataFrame, members: list[tuple[str, str]]) -> tuple[str, int, int]:
    """The verdict, how many of the members have it, and how many have any."""
    places = zip(rows["experiment"], rows["model"], strict=True)
    own = rows["verdict"][[place in members for place in places]].tolist()
    counts = {one: own.count(one) for one in (INCONCLUSIVE, CONTRADICTED, REPRODUCED) if one in own}
    verdict = max(counts, key=counts.get, default="")  # of equal ones the first
    return verdict, counts.get(verdict, 0), len(own)
