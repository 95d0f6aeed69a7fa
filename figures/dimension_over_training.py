"""Intrinsic dimension, averaged over blocks, against training: up, then down? (Shape of Learning, 2)"""

import xarray as xr
from matplotlib.figure import Figure

from figures import style
from figures.run import Run, holding, last_step, words

ESTIMATORS = ("twonn", "twonn_mle", "twonn_microscope")


def build(runs: dict[str, Run]) -> Figure | None:
    looks, runs = style.inks(runs), holding(runs, *ESTIMATORS)
    if not runs:
        return None
    figure = style.new(style.PAGE, 2.6)
    axes = figure.subplots(1, len(ESTIMATORS), sharey=True)
    for ax, name in zip(axes, ESTIMATORS, strict=True):
        for label, run in runs.items():
            mean, std = over_blocks(run.results[name].sel(positions="all"))
            style.banded(ax, run.results.step.values, mean.values, std.values, label=label, **looks[label])
        style.step_axis(ax, last_step(runs))
        ax.set_title(words(runs, name).replace(" (", "\n("), fontsize=7)
    axes[0].set_ylabel("dimension, mean over blocks")
    figure.suptitle("Dimension while training, by three estimators (band: ±1 standard deviation over batches)")
    style.legend(axes)
    style.footer(figure, runs)
    return figure


def over_blocks(values: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """The mean over block outputs, then its mean and deviation over batches; NaN where any block has none.

    The embedding is left out: without positions it is a few hundred points repeated, which have no dimension. A NaN
    block is not skipped: the curve would jump where the set of averaged blocks changes.
    """
    average = values.isel(layer=slice(1, None)).mean("layer", skipna=False)
    mean = average.mean("batch", skipna=False)
    alone = average.sizes["batch"] == 1
    return mean, xr.full_like(mean, float("nan")) if alone else average.std("batch", ddof=1, skipna=False)
