"""The grid of the figures of queries, keys and attention: a row per run, a column per quantity, a line per block."""

from matplotlib.figure import Figure

from figures import style
from figures.run import Run, holding, last_step, words


def build(runs: dict[str, Run], variables: tuple[str, ...], title: str) -> Figure | None:
    """Means over heads and batches against training; a column has one scale, so that rows compare."""
    runs = holding(runs, *variables)
    if not runs:
        return None
    figure = style.new(style.PAGE, 1.0 + 1.4 * len(runs))
    axes = figure.subplots(len(runs), len(variables), sharex=True, sharey="col", squeeze=False)
    colours = style.block_colours(max(run.results.sizes["block"] for run in runs.values()))
    for row, (label, run) in zip(axes, runs.items(), strict=True):
        for ax, name in zip(row, variables, strict=True):
            lines = run.results[f"{name}_mean"].sel(positions="all").mean("head", skipna=False)
            for block in lines.block.values:
                look = {"color": colours.to_rgba(block), "linewidth": 1.1, "marker": "o", "markersize": 1.8}
                ax.plot(lines.step.values, lines.sel(block=block).values, **look)
        row[0].set_ylabel(label, fontweight="bold")
    for ax, name in zip(axes[0], variables, strict=True):
        ax.set_title(style.wrap(words(runs, name), 0.7 * style.PAGE / len(variables), 7), fontsize=7)
    for ax in axes.flat:
        ax.axhline(0, color="0.7", linewidth=0.6, zorder=1)
        style.step_axis(ax, last_step(runs))
    for ax in axes[:-1].flat:
        ax.set_xlabel("")
        ax.tick_params(labelbottom=False)
    figure.suptitle(f"{title} (mean over heads and batches, all positions)")
    style.block_bar(figure, colours, axes)
    style.footer(figure, runs)
    return figure
