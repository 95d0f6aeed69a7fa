"""The further families on pretrained models and a pair of ours: results/families/layers.csv, two figures.

    .venv/bin/python -m dev.families [NAME=RUN ...]

RUN is a folder that the commands of docs/findings/families.md have measured, or how the names of several seeds begin;
NAME what it is called. Its first and last step are written to layers.csv first; other models stay there as they are.
"""

import math
import pathlib
import sys
from collections.abc import Callable
from typing import NamedTuple

import pandas as pd
import scipy.stats
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from anisoscope.config.measure import FURTHER
from anisoscope.measurement.families.entries import FAMILIES
from anisoscope.measurement.tables import files
from anisoscope.plot import style

TABLE, FIGURES = pathlib.Path("docs/results/families/layers.csv"), pathlib.Path("docs/figures")
PARTS = ["mean", "low", "high"]
NAMES = tuple(name for family in FURTHER for name in FAMILIES[family].quantities)
ACROSS = {"next": 1, "before": -1}  # of layers by pairs: the other layer is the next one, or the one before
AT = ("threshold", "ratio", "from_position")
FIGURES_OF = {"families_pretrained": ("SmolLM2-135M", "Gemma 3 270M"), "families_pair": ("decoder", "encoder")}
DIGITS = 4


def read(name: str, root: pathlib.Path) -> pd.DataFrame:
    """A row for each step, set of positions, quantity and layer; of several seeds means, with Student's intervals."""
    if (root / "results.nc").exists():
        return read_one(name, root)
    keys = ["model", "step", "positions", "quantity", "layer", "depth", "at"]
    each = pd.concat(read_one(name, path.parent) for path in sorted(root.parent.glob(f"{root.name}*/results.nc")))
    groups = each.assign(error=each["mean"]).groupby(keys, dropna=False, sort=False)
    frame = groups.agg({**dict.fromkeys(["mean", "gaussian", "permuted"], "mean"), "error": "sem"})
    half = frame["error"] * scipy.stats.t.ppf(0.975, groups.size() - 1)
    return frame.assign(low=frame["mean"] - half, high=frame["mean"] + half).reset_index()[[*keys, *REST]]


def read_one(name: str, root: pathlib.Path) -> pd.DataFrame:
    table = files.read_table(root / "results.nc")
    made = [_rows(table, one) for one in NAMES if one in table]
    frame = pd.concat(made).dropna(subset="mean")
    frame = frame[frame["step"].isin([int(table.step[0]), int(table.step[-1])])]
    depth = frame["layer"] / frame["layer"].max()
    return frame.assign(model=name, depth=depth)[
        ["model", "step", "positions", "quantity", "layer", "depth", "at", *REST]
    ]


REST = [*PARTS, "gaussian", "permuted"]  # the value, and its excess over null models


def _rows(table: xr.Dataset, name: str) -> pd.DataFrame:
    value, nulls = table[name].sel(statistic=PARTS), table.get(f"{name}_excess")
    parts = [value.assign_coords(statistic=PARTS)]
    if nulls is not None:
        of = nulls.sel(statistic="mean", drop=True).rename(null="statistic")
        parts.append(of.sel(statistic=[one for one in REST if one in of.statistic.values]))
    wide = xr.concat(parts, "statistic")
    if "other_layer" in wide.dims:
        beside = [_beside(wide, by) for by in ACROSS.values()]
        wide = xr.concat(beside, pd.Index(list(ACROSS), name="at"), join="outer")
    wide = wide.rename({dim: "at" for dim in AT if dim in wide.dims})
    wide = wide.rename({"block": "layer"} if "block" in wide.dims else {})
    frame = wide.to_series().unstack("statistic").reset_index()
    return frame.reindex(columns=["step", "positions", "layer", "at", *REST]).assign(quantity=name)


def _beside(wide: xr.DataArray, by: int) -> xr.DataArray:
    """Each layer with the one that is so far behind it."""
    layers = [one for one in wide.layer.values if one + by in wide.layer.values]
    pairs = [wide.sel(layer=one, other_layer=one + by, drop=True) for one in layers]
    return xr.concat(pairs, pd.Index(layers, name="layer"))


class Panel(NamedTuple):
    family: str
    quantity: str
    says: Callable[[pd.DataFrame], str]  # of the rows of one model, at its last step, of all positions
    axis: str
    at: str | None = None
    over: bool = False  # over thresholds, the mean of layers
    null: str | None = None
    log: bool = False


def ends(frame: pd.DataFrame) -> str:
    return f"{frame['mean'].iloc[0]:.1f} → {frame['mean'].iloc[-1]:.1f} bits"


def above(threshold: float, of: str) -> Callable[[pd.DataFrame], str]:
    def says(frame: pd.DataFrame) -> str:
        share = frame[frame["at"].astype(float) == threshold]["mean"].mean()
        return f"{100 * share:.1f} % of {of} above {threshold:g}"

    return says


def extreme(place: str, digits: int, unit: str = "", first: int = 0) -> Callable[[pd.DataFrame], str]:
    """The least or most from a layer on, and where it is."""

    def says(frame: pd.DataFrame) -> str:
        later = frame[frame["layer"] >= first]
        row = later.loc[getattr(later["mean"], {"least": "idxmin", "most": "idxmax"}[place])()]
        said = f"{place} {row['mean']:.{digits}f}{unit} in layer {row['layer']:.0f}"
        return said if not first else f"{frame['mean'].iloc[0]:.{digits}f}{unit} in the embedding, later {said}"

    return says


PANELS = (
    Panel("readout", "readout_loss", ends, "loss of the readout (bits)"),
    Panel("trajectory", "turning_angle", extreme("least", 2, " rad"), "turning angle (rad)"),
    Panel("sinks", "sink_rate", above(0.3, "heads"), "share of heads", over=True),
    Panel("massive", "massive_points", above(100, "points"), "share of points", over=True, log=True),
    Panel("linearity", "linearity_update_adjusted", extreme("least", 2), "linearity of what a block adds"),
    Panel("imbalance", "imbalance_layers", extreme("most", 3, first=1), "imbalance to the next layer", at="next"),
    Panel("alignment", "procrustes_layers", extreme("least", 2), "Procrustes with the next layer", at="next"),
    Panel("estimators", "correlation_dimension", extreme("most", 1, first=1), "correlation dimension", null="gaussian"),
    Panel("hubness", "hub_skewness", extreme("most", 1), "skewness of occurrences", null="gaussian"),
)


def of_panel(frame: pd.DataFrame, panel: Panel, model: str, positions: str = "all", step: str = "last") -> pd.DataFrame:
    own = frame[(frame.model == model) & (frame.quantity == panel.quantity) & (frame.positions == positions)]
    own = own[own.step == (own.step.max() if step == "last" else own.step.min())]
    return own if panel.at is None else own[own["at"] == panel.at]


def draw_panel(ax: Axes, frame: pd.DataFrame, panel: Panel, models: tuple[str, ...], trained_here: bool) -> None:
    said = []
    for model, color in zip(models, style.OKABE_ITO, strict=False):
        if of_panel(frame, panel, model).empty:
            continue
        thin = {"step": "first"} if trained_here else {"positions": "without_first"}
        for more, look in (({}, {"lw": 1.4}), (thin, {"lw": 0.8, "ls": "--"})):
            own = of_panel(frame, panel, model, **more)
            x = own["depth"]
            if panel.over:
                own = own.assign(at=own["at"].astype(float)).groupby("at", as_index=False)[PARTS].mean()
                x = own["at"]
            style.banded(ax, x, own["mean"], own["low"], own["high"], color=color, label=model, **look)
            if not more and not panel.over and panel.null:
                ax.plot(x, own["mean"] - own[panel.null], color=color, lw=0.8, ls=":")
        own = of_panel(frame, panel, model)
        said.append(f"{model} {panel.says(own)}" if len(models) > 1 else panel.says(own))
    ax.set_title(style.wrap(f"{panel.family}: " + "; ".join(said), 1.8, 7), fontsize=7, loc="left")
    ax.set_ylabel(panel.axis, fontsize=style.SMALL)
    across = {"sinks": "weight on token 0 above", "massive": "largest / median coordinate above"}
    ax.set_xlabel(across.get(panel.family, "relative depth"), fontsize=style.SMALL)
    if panel.log:
        ax.set_xscale("log")
        ax.set_yscale("symlog", linthresh=1e-3)
        ax.set_ylim(0, 1.3)
        for axis, ticks in ((ax.xaxis, (10, 100, 1000)), (ax.yaxis, (0, 0.001, 0.01, 0.1, 1))):
            axis.set_ticks(ticks, [f"{tick:,}" for tick in ticks])
            axis.set_minor_locator(NullLocator())


def draw(frame: pd.DataFrame, models: tuple[str, ...], trained_here: bool) -> Figure:
    panels = [panel for panel in PANELS if any(not of_panel(frame, panel, model).empty for model in models)]
    figure = style.new(style.PAGE, 0.4 + 2.3 * math.ceil(len(panels) / 3))
    axes = figure.subplots(math.ceil(len(panels) / 3), 3, squeeze=False)
    for ax in axes.flat[len(panels) :]:
        ax.set_axis_off()
    for ax, panel in zip(axes.flat, panels, strict=False):
        draw_panel(ax, frame, panel, models, trained_here)
    for model, color, y in zip(models, style.OKABE_ITO, (0.95, 0.83), strict=False) if len(models) > 1 else ():
        axes[0, 0].text(0.97, y, model, color=color, fontsize=style.SMALL, ha="right", transform=axes[0, 0].transAxes)
    dashed = "before training" if trained_here else "without position 0 of each window"
    ours = "Further families, five decoders and five encoders of 4 layers"
    style.title(figure, ours if trained_here else f"Further families, {' and '.join(models)}")
    by = "over seeds" if trained_here else "by windows"
    said = f"Dashed: {dashed}; dotted: the Gaussian null model. Bands: 95 % intervals {by}; sinks and massive: means"
    style.small_print(figure, [f"{said} over layers. Linearity: less what chance gives."])
    return figure


def main(given: list[str]) -> None:
    kept = pd.read_csv(TABLE) if TABLE.exists() else None
    for one in given:
        name, _, root = one.partition("=")
        rows = read(name, pathlib.Path(root))
        kept = rows if kept is None else pd.concat([kept[kept.model != name], rows])
        TABLE.parent.mkdir(parents=True, exist_ok=True)
        rounded = kept.assign(**{part: kept[part].map(lambda x: float(f"{x:.{DIGITS}g}")) for part in [*REST, "depth"]})
        files.write_csv(rounded, TABLE)
    kept = pd.read_csv(TABLE)
    for name, models in FIGURES_OF.items():
        there = tuple(model for model in models if model in set(kept.model))
        if there:
            with style.context():
                draw(kept, there, trained_here=name == "families_pair").savefig(FIGURES / f"{name}.png", dpi=150)
    for panel in PANELS:
        for model in dict.fromkeys(kept.model):
            if not (own := of_panel(kept, panel, model)).empty:
                print(f"{panel.family}: {model} {panel.says(own)}")


if __name__ == "__main__":
    main(sys.argv[1:])
