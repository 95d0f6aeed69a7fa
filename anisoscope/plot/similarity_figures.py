"""Which layers hold the same representation? Every layer beside every other, of one model or of
two.
"""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from anisoscope.measurement.null_models import PERMUTED
from anisoscope.plot import panel_axes, style
from anisoscope.plot.footer import caption
from anisoscope.plot.run_tables import POSITIONS, Run, at_last, holding, interval, layers
from anisoscope.results.excess import excess_of, nulls_in

# of older tables
UNBIASED, BIASED = {"cka_unbiased_layers": "linear CKA without bias"}, {"cka_layers": "linear CKA"}
OVERLAP = {"overlap_layers": "neighbourhood overlap"}
MEASURES = {"cka_unbiased": "linear CKA without bias", "overlap": "neighbourhood overlap"}
SEEN = 0.1


def of_layers(runs: dict[str, Run]) -> Figure | None:
    """Of each run, at the last checkpoint."""
    every = holding(runs, *UNBIASED, *OVERLAP)
    measures = (
        UNBIASED if every.keys() == holding(runs, *BIASED, *OVERLAP).keys() else BIASED
    ) | OVERLAP
    runs = holding(runs, *measures)
    if not runs:
        return None
    figure = style.new(0.75 * style.PAGE, 0.7 + 2.1 * len(runs))
    axes = figure.subplots(len(runs), len(measures), squeeze=False)
    last = [run.results.isel(step=-1).sel(positions="all") for run in runs.values()]
    panel_axes.similarities(
        figure, axes, (interval(one, name)[0] for one in last for name in measures)
    )
    for ax, label in zip(axes[:, 0], runs, strict=True):
        ax.set_ylabel(f"{label}\n{layers(runs, panel_axes.LAYER)}")
    for ax, title in zip(axes[0], measures.values(), strict=True):
        ax.set_title(title)
    for ax in axes[-1]:
        ax.set_xlabel(layers(runs, panel_axes.LAYER))
    style.title(figure, f"Similarity of layers{at_last(runs)}, all positions")
    shown = "Every layer beside every other, at the last checkpoint: how alike are their clouds?"
    sentences = filter(None, (_permuted(label, run, measures) for label, run in runs.items()))
    caption(figure, runs, shown, further=list(sentences))
    return figure


def _permuted(label: str, run: Run, measures: dict[str, str]) -> str:
    """The most that two different layers have in common with the windows of one in another
    order.
    """
    if PERMUTED not in nulls_in(run.results):
        return ""
    parts = []
    for name, said in measures.items():
        null = run.results[name] - excess_of(run.results, name, PERMUTED)
        null = null.isel(step=-1).sel(positions="all", statistic="mean").values
        null = null[~np.eye(len(null), dtype=bool) & np.isfinite(null)]
        parts += [f"{said} {null.max():.2f}"] if null.size else []
    return f"{label}, windows of one layer in another order, at most: {', '.join(parts)}." * bool(
        parts
    )


def of_models(table: xr.Dataset) -> Figure:
    """A row for each measure: the two models, then windows of the first in another order, on one
    scale.

    Without position 0 once more, where that changes what is seen: one massive vector can hide all
        others from CKA.
    """
    first, second = table.attrs["first"], table.attrs["second"]
    rows = [(name, side) for name in MEASURES for side in _sides(table[name])]
    figure = style.new(0.75 * style.PAGE, 0.8 + 2.2 * len(rows))
    axes = figure.subplots(len(rows), 2, squeeze=False)
    widest, maps = {name: [] for name in MEASURES}, []
    for row, (name, side) in zip(axes, rows, strict=True):
        values = table[name].sel(positions=side)
        mean = values.sel(statistic="mean")
        null = mean - excess_of(table, name, PERMUTED).sel(positions=side, statistic="mean")
        high, low = (values.sel(statistic=end) for end in ("high", "low"))
        widest[name].append((high - low).max().item() / 2)
        maps += mean, null
        where = f"\n{POSITIONS[side]}" if len(rows) > len(MEASURES) else ""
        row[0].set_ylabel(f"{MEASURES[name]}{where}\n{first}: layer")
    axes[0, 0].set_title("the same text")
    axes[0, 1].set_title("windows of one\nin another order")
    for ax in axes[-1]:
        ax.set_xlabel(f"{second}: layer")
    panel_axes.similarities(figure, axes, maps, aspect="auto")
    style.title(
        figure,
        f"Layers of {first} beside layers of {second}"
        + ", all positions" * (len(rows) == len(MEASURES)),
    )
    about = table.attrs
    facts = [
        f"{about['corpus']}; {about['measure.points']:,} points × {about['measure.batches']} batches"
    ]
    facts += [f"{about[place]}: {about[f'{place}_model']}" for place in ("first", "second")]
    style.small_print(figure, facts)
    known = {
        name: np.nanmax(halves) for name, halves in widest.items() if np.isfinite(halves).any()
    }
    said = ", ".join(f"{MEASURES[name]} {half:.2f}" for name, half in known.items())
    points = about.get("points_are", "on the same characters of the same windows")
    shown = (
        f"Every layer of one model beside every layer of the other, {points}; layer 0 is the embedding. "
        "Right: the null model, in which the windows of the first are in another order."
    )
    shown += f" 95 % intervals, windows resampled, reach at most so far to a side: {said}." * bool(
        known
    )
    figure.set_label("\n".join([shown, "", *facts]))
    return figure


def _sides(values: xr.DataArray) -> list[str]:
    """All positions; and the set without position 0, where a pair of layers is seen to be more or
    less alike there.
    """
    mean = values.sel(statistic="mean")
    far = abs(mean.sel(positions="without_first") - mean.sel(positions="all")).max().item()
    return ["all", "without_first"] if far > SEEN else ["all"]
