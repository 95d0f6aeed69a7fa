"""Which layer of one model holds what which layer of another holds? Every pair, and what windows in disorder give."""

import xarray as xr
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from figures import scales, style
from panel.nulls import PERMUTED
from tables.summary import NOTHING

MEASURES = {"cka_unbiased": "linear CKA without bias", "overlap": "neighbourhood overlap"}
TICKS = (0, 0.2, 0.4, 0.6, 0.8, 1)


def build(found: xr.Dataset) -> Figure:
    """A row for each measure: the two models, then windows of the first in another order, on one scale."""
    first, second = found.attrs["first"], found.attrs["second"]
    figure = style.new(0.75 * style.PAGE, 5.2)
    axes = figure.subplots(len(MEASURES), 2, squeeze=False)
    colours = ScalarMappable(Normalize(0, 1), "viridis")
    widest = []
    for row, (name, words) in zip(axes, MEASURES.items(), strict=True):
        last = found[name].sel(positions="all")
        mean = last.sel(less=NOTHING, statistic="mean")
        null = mean - last.sel(less=PERMUTED, statistic="mean")
        half = (last.sel(less=NOTHING, statistic="high") - last.sel(less=NOTHING, statistic="low")).max().item() / 2
        widest.append(f"{words} {half:.2f}")
        for ax, values in zip(row, (mean, null), strict=True):
            ax.imshow(values, cmap=colours.cmap, norm=colours.norm, origin="lower", aspect="equal")
            ax.grid(False)
            for axis in (ax.xaxis, ax.yaxis):
                axis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
        row[0].set_ylabel(f"{words}\n{first}: layer")
    axes[0, 0].set_title("the same text")
    axes[0, 1].set_title("windows of one\nin another order")
    for ax in axes[-1]:
        ax.set_xlabel(f"{second}: layer")
    scales.bar(figure, colours, axes, "similarity (1: the same)", TICKS, [f"{tick:g}" for tick in TICKS])
    style.title(figure, f"Layers of {first} beside layers of {second}, all positions")
    about = found.attrs
    facts = [f"{about['corpus']}; {about['measure.points']:,} points × {about['measure.batches']} batches"]
    facts += [f"{about[place]}: {about[f'{place}_model']}" for place in ("first", "second")]
    style.small_print(figure, facts)
    points = about.get("points_are", "on the same characters of the same windows")
    shown = (
        f"Every layer of one model beside every layer of the other, {points}; layer 0 is the embedding. "
        "Right: the null model, in which the windows of the first are in another order. 95 % intervals, windows "
        f"resampled, reach at most so far to a side: {', '.join(widest)}."
    )
    figure.set_label("\n".join([shown, "", *facts]))
    return figure
