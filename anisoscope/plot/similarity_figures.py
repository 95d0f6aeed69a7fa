"""Heat maps of the similarity of every layer with every other, in a model or between two."""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from anisoscope.measurement.null_models import PERMUTED
from anisoscope.plot import panel_axes, style
from anisoscope.plot.run_tables import POSITIONS, Run, at_last, caption, layers_label, runs_with
from anisoscope.results.derived import excess_of, nulls_in

MEASURES = {"cka_unbiased": "linear CKA without bias", "neighbor_overlap": "neighborhood overlap"}
VISIBLE = 0.1  # change of a similarity


def layer_similarity(runs: dict[str, Run]) -> Figure | None:
    """Draw a row of heat maps for each run at the last checkpoint."""
    measures = {f"{name}_layers": text for name, text in MEASURES.items()}
    runs = runs_with(runs, *measures)
    if not runs:
        return None
    figure = style.new_figure(0.75 * style.PAGE, 0.7 + 2.1 * len(runs))
    axes = figure.subplots(len(runs), len(measures), squeeze=False)
    maps, sentences = [], []
    for label, run in runs.items():
        last = run.results.isel(step=-1).sel(positions="all", statistic="mean")
        maps += [last[name].values for name in measures]
        sentences += _format_permuted(label, last, measures)
    panel_axes.heat_maps(figure, axes, maps, "equal")
    words = layers_label(runs, panel_axes.LAYER)
    for ax, label in zip(axes[:, 0], runs, strict=True):
        ax.set_ylabel(f"{label}\n{words}")
    for ax, below, title in zip(axes[0], axes[-1], measures.values(), strict=True):
        ax.set_title(title)
        below.set_xlabel(words)
    style.title(figure, f"Similarity of layers{at_last(runs)}, all positions")
    shown = "Every layer against every other, at the last checkpoint: how alike are their clouds?"
    caption(figure, runs, shown, further=sentences)
    return figure


def _format_permuted(label: str, last: xr.Dataset, measures: dict[str, str]) -> list[str]:
    """Format the largest similarity of two different layers with permuted windows."""
    parts = []
    for name, text in measures.items() if PERMUTED in nulls_in(last) else ():
        null = (last[name] - excess_of(last, name, PERMUTED)).values
        null = null[~np.eye(len(null), dtype=bool) & np.isfinite(null)]
        if null.size:
            parts.append(f"{text} {null.max():.2f}")
    start = f"{label}, windows of one layer in another order, at most"
    return [f"{start}: {', '.join(parts)}."] * bool(parts)


def model_similarity(table: xr.Dataset) -> Figure:
    """Draw two models against each other, and with permuted windows of the first.

    A row for each measure, repeated without the first token if the map changes: a single massive
    vector can hide all others from CKA.
    """
    attrs = table.attrs
    first, second = attrs["first"], attrs["second"]
    rows, maps, widths = [], [], {name: [] for name in MEASURES}
    for name in MEASURES:
        mean, low, high = (table[name].sel(statistic=end) for end in ("mean", "low", "high"))
        null = mean - excess_of(table, name, PERMUTED).sel(statistic="mean")
        change = abs(mean.sel(positions="without_first_token") - mean.sel(positions="all")).max()
        for side in ["all", "without_first_token"][: 1 + bool(change > VISIBLE)]:
            rows.append((MEASURES[name], POSITIONS[side]))
            maps += [mean.sel(positions=side), null.sel(positions=side)]
            widths[name].append((high - low).sel(positions=side).max().item() / 2)
    figure = style.new_figure(0.75 * style.PAGE, 0.8 + 2.2 * len(rows))
    axes = figure.subplots(len(rows), 2, squeeze=False)
    alike = len(rows) == len(MEASURES)
    for ax, (measure, side) in zip(axes[:, 0], rows, strict=True):
        ax.set_ylabel("\n".join([measure, *[side] * (not alike), f"{first}: layer"]))
    axes[0, 0].set_title("the same text")
    axes[0, 1].set_title("windows of one\nin another order")
    for ax in axes[-1]:
        ax.set_xlabel(f"{second}: layer")
    panel_axes.heat_maps(figure, axes, maps, "auto")
    sample = f"{attrs['measure.points']:,} points × {attrs['measure.batches']} batches"
    facts = [f"{attrs['corpus']}; {sample}"]
    facts += [f"{attrs[place]}: {attrs[f'{place}_model']}" for place in ("first", "second")]
    known = {name: np.nanmax(own) for name, own in widths.items() if np.isfinite(own).any()}
    reach = ", ".join(f"{MEASURES[name]} {half:.2f}" for name, half in known.items())
    points = attrs.get("points_are", "on the same characters of the same windows")
    shown = (
        f"Every layer of one model against every layer of the other, {points}; layer 0 is the embedding. "
        "Right: the null model, in which the windows of the first are in another order."
    )
    width = f" 95 % intervals, windows resampled, reach at most so far to a side: {reach}."
    title = f"Layers of {first} and {second}" + ", all positions" * alike
    return style.finish(figure, title, facts, shown + width * bool(known))
