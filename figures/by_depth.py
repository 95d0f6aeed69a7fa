"""The grid of figures over training: a row per run, a column per quantity, a line per block or layer."""

from matplotlib.figure import Figure

from figures import style
from figures.run import Run, band, band_over_batches, holding, interval, last_step, over_batches, words


def build(runs: dict[str, Run], variables: tuple[str, ...], title: str) -> Figure | None:
    """Of each layer, or of each block the mean over heads; a column has one scale, so that rows compare."""
    runs = holding(runs, *variables)
    if not runs:
        return None
    depth = "block" if "block" in next(iter(runs.values())).results[variables[0]].dims else "layer"
    figure = style.new(style.PAGE, 1.0 + 1.4 * len(runs))
    axes = figure.subplots(len(runs), len(variables), sharex=True, sharey="col", squeeze=False)
    most = max(run.results.sizes[depth] for run in runs.values())
    colours = style.block_colours(most) if depth == "block" else style.layer_colours(most)
    for row, (label, run) in zip(axes, runs.items(), strict=True):
        table = run.results.sel(positions="all")
        for ax, name in zip(row, variables, strict=True):
            for place in table[depth].values:
                if depth == "block":
                    curve = over_batches(table[name].sel(block=place).mean("head", skipna=False))
                else:
                    curve = interval(table, name, layer=place)
                look = {"color": colours.to_rgba(place), "linewidth": 1.1, "marker": "o", "markersize": 1.8}
                style.banded(ax, table.step.values, *curve, **look)
        row[0].set_ylabel(label, fontsize=7, fontweight="bold")
    for ax, name in zip(axes[0], variables, strict=True):
        ax.set_title(style.wrap(words(runs, name), 0.7 * style.PAGE / len(variables), 7), fontsize=7)
    for column in axes.T:
        style.ground(column)
    for ax in axes.flat:
        style.step_axis(ax, last_step(runs))
    for ax in axes[:-1].flat:
        ax.set_xlabel("")
        ax.tick_params(labelbottom=False)
    if depth == "block":
        style.title(figure, f"{title}, mean over heads, all positions{band_over_batches(runs)}")
        style.block_bar(figure, colours, axes)
    else:
        style.title(figure, f"{title}, all positions{band(runs, *variables)}")
        style.layer_bar(figure, colours, axes)
    style.footer(figure, runs)
    return figure
