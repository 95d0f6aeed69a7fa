"""Figure of the prespecified contrasts: what differs, what is equivalent, what is inconclusive."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from anisoscope.analysis.primary import BOTH, DIFFERS, NOTHING, OPEN, UNTESTED, WITHIN, with_interval, words
from anisoscope.measurement.intervals import LEVEL
from anisoscope.plot import style
from anisoscope.plot.experiment import ACROSS, Compared, named
from anisoscope.plot.provenance import caption

LOOKS = {  # colour, marker, filled
    DIFFERS: (style.OKABE_ITO[1], "o", True),
    BOTH: (style.OKABE_ITO[3], "D", True),
    WITHIN: (style.OKABE_ITO[0], "s", True),
    OPEN: ("0.35", "o", False),
    UNTESTED: ("0.35", "v", False),
}
AT = {"last": "last checkpoint", "matched": "loss-matched"}
ROW = 0.19  # inches


def build(compared: Compared) -> Figure | None:
    """A panel per quantity, a row per pair of conditions: change, interval, and the prespecified margin."""
    table = compared.primary
    if table is None or table.empty or (table["verdict"] == NOTHING).all():
        return None
    known = table[table["verdict"] != NOTHING]
    keys = list(dict.fromkeys(known[["before", "after", "at", "positions"]].itertuples(index=False, name=None)))
    quantities = list(dict.fromkeys(known["quantity"]))
    columns, deep = min(ACROSS, len(quantities)), -(-len(quantities) // ACROSS)
    figure = style.new(style.PAGE, 1.0 + deep * (0.75 + ROW * len(keys)))
    strip, axes = style.below_a_strip(figure, deep, columns, 0.75 + ROW * len(keys))
    places = {key: -place for place, key in enumerate(keys)}
    for ax, quantity in zip(axes.flat, quantities, strict=False):
        draw(ax, known[known["quantity"] == quantity], places)
        ax.set_title(named(quantity), fontsize=style.SMALL)
        ax.set_ylim(0.6 - len(keys), 0.6)
        ax.set_yticks(list(places.values()), [])
    for ax in axes[:, 0]:
        ax.set_yticklabels([label(key, keys) for key in places], fontsize=style.SMALL_PRINT)
    for ax in axes.flat[len(quantities) :]:
        ax.set_axis_off()
    handles, names = style.entries(axes.flat)
    order = [verdict for verdict in LOOKS if verdict in names]
    tight = {"columnspacing": 1.0, "handletextpad": 0.1, "handlelength": 1.2}  # all five stand in a row
    strip.legend([handles[names.index(one)] for one in order], order, loc="center", ncols=len(order), **tight)
    alone = {key[2] for key in keys}
    where = f", {AT[next(iter(alone))]}" if len(alone) == 1 else ""
    style.title(figure, f"Prespecified contrasts{where}")
    caption(figure, compared.runs, shown(table), bars(known), [*map(format_contrast, known.itertuples(index=False))])
    return figure


def draw(ax: Axes, rows, places: dict) -> None:
    for row in rows.itertuples(index=False):
        place, (colour, marker, filled) = places[row.before, row.after, row.at, row.positions], LOOKS[row.verdict]
        if np.isfinite(row.margin):
            ax.fill_betweenx([place - 0.4, place + 0.4], -row.margin, row.margin, color="0.88", linewidth=0)
        ax.plot([row.low, row.high], [place, place], color=colour, linewidth=1.1)
        face = colour if filled else "white"
        look = {"color": colour, "markerfacecolor": face, "markersize": 4, "linestyle": "none"}
        ax.plot(row.change, place, marker=marker, label=row.verdict, **look)
    ax.axvline(0, color="0.5", linewidth=0.8, zorder=1)
    ax.xaxis.set_major_locator(MaxNLocator(3))
    ax.grid(axis="y", visible=False)
    ax.tick_params(axis="y", length=0)


def label(key: tuple[str, ...], keys: list[tuple[str, ...]]) -> str:
    """The two conditions, and what of the rest differs between rows."""
    before, after, at, positions = key
    further = [AT[at]] * (len({one[2] for one in keys}) > 1)
    further += ["without token 0"] * (positions != "all")
    return "\n".join([f"{before} → {after}", *[f"({', '.join(further)})"] * bool(further)])


def shown(table) -> str:
    without = ", ".join(table.loc[table["verdict"] == NOTHING, "name"])
    said = f"Change from one condition to another: the {len(table)} contrasts prespecified before any number was seen."
    return f"{said} Without value: {without}." if without else said


def bars(table) -> str:
    few, many = table["pairs"].min(), table["pairs"].max()
    pairs = f"{few} to {many}" if few < many else f"{few}"
    said = f"Bars: {LEVEL * 100:.0f} % interval, not corrected, {pairs} pairs of runs."
    said += f" Verdicts: p < {1 - LEVEL:.2g}, after Holm over all tests."
    return said + " Grey: prespecified margin." * bool(np.isfinite(table["margin"]).any())


def format_contrast(row) -> str:
    return f"{row.name}: {row.quantity}, {row.before} → {row.after}, {AT[row.at]}: {with_interval(row)}, {words(row)}."
