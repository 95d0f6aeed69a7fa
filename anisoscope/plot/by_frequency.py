"""Do points of frequent characters lie nearer to the centroid of their character? (Revisiting Anisotropy)"""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from anisoscope.data.frequency import BINS
from anisoscope.measurement.tables.excess import nulls_in
from anisoscope.plot import rulers, style
from anisoscope.plot.provenance import caption
from anisoscope.plot.run import Run, at_last, bands, holding, interval, layers

CORRELATION, DISTANCE = "frequency_correlation", "centroid_distance_by_frequency"
SINGLE = 1  # characters of a type


def build(runs: dict[str, Run]) -> Figure | None:
    """Last checkpoint: the correlation over layers, and the distance by quarter of frequency in the last layer."""
    looks, runs = style.inks(runs), holding(runs, CORRELATION, DISTANCE)
    if not runs:
        return None
    figure = style.new(style.PAGE, 2.6)
    left, right = figure.subplots(1, 2, squeeze=False)[0]
    for label, run in runs.items():
        last = run.results.isel(step=-1).sel(positions="all")
        correlation(left, last, label, looks[label])
        distance(right, last, label, looks[label])
    left.axhline(0, color="0.6", linewidth=0.6, zorder=1)
    left.set(xlabel=layers(runs, rulers.LAYER), ylabel="correlation of log frequency\nand distance")
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.set(xlabel="quarter of the text, by its characters' frequency", ylabel="distance over that\nof all points")
    right.set_xticks(range(len(BINS)), [words.replace(" quarter", "").replace(" ", "\n") for words in BINS])
    rulers.fit([right])
    style.title(figure, f"Frequency and distance to the centroid of the own character{at_last(runs)}")
    style.legend(np.array([left, right]))
    shown = (
        "Distance of each point to the mean of the other points of its character. Left: its correlation with the log "
        "frequency of the character, over points; dashed: of a Gaussian cloud of the same spectrum, which is below 0 "
        "since centroids of few points lie farther off. Right: mean distance in each quarter of the text, from the "
        "least frequent characters to the most frequent, in the last layer, over the mean of all points there."
    )
    caption(figure, runs, shown, f"{bands(runs, CORRELATION)} Right: means alone.".strip())
    return figure


def correlation(ax: Axes, last: xr.Dataset, label: str, look: dict[str, str]) -> None:
    mean, low, high = interval(last, CORRELATION, ngram=SINGLE)
    style.banded(ax, last.layer.values, mean, low, high, label=label, **look)
    if "gaussian" in nulls_in(last):
        null = mean - interval(last, CORRELATION, "gaussian", ngram=SINGLE)[0]
        if np.isfinite(null).any():
            ax.plot(last.layer.values, null, color=look["color"], linestyle="--", linewidth=0.9)


def distance(ax: Axes, last: xr.Dataset, label: str, look: dict[str, str]) -> None:
    there = last.isel(layer=-1)
    whole, mean = interval(there, "centroid_distance", ngram=SINGLE)[0], interval(there, DISTANCE)[0]
    ax.plot(np.arange(len(BINS)), mean / whole, label=label, **look)
