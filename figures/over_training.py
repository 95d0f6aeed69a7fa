"""The panels of figures over training with a line per run: a panel per quantity, averaged over blocks."""

from matplotlib.figure import Figure

from figures import style
from figures.run import Run, band_over_batches, holding, last_step, over_batches, words
from studies.shapes import over_depth


def build(runs: dict[str, Run], names: tuple[str, ...], title: str, sharey: bool) -> Figure | None:
    looks, runs = style.inks(runs), holding(runs, *names)
    if not runs:
        return None
    figure = style.new(style.PAGE, 2.6)
    axes = figure.subplots(1, len(names), sharey=sharey)
    for ax, name in zip(axes, names, strict=True):
        for label, run in runs.items():
            # without the embedding: where positions are rotary it is a few hundred points repeated, of no dimension
            average = over_depth(run.results[name].sel(positions="all"))
            style.banded(ax, run.results.step.values, *over_batches(average), label=label, **looks[label])
        style.step_axis(ax, last_step(runs))
        ax.set_title(words(runs, name).replace(" (", "\n(").replace(" of the ", "\nof the "), fontsize=7)
    axes[0].set_ylabel("mean over blocks")
    style.title(figure, f"{title}, all positions{band_over_batches(runs)}")
    style.legend(axes)
    style.footer(figure, runs)
    return figure
