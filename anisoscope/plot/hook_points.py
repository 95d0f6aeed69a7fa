"""Where in a block does the shape arise? Outputs of attention and the feed-forward layer beside the residual stream."""

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from anisoscope.plot import rulers, style
from anisoscope.plot.provenance import caption
from anisoscope.plot.run import Run, at_last, bands, interval

NAMES = {  # the quantity, and in the words of a panel
    "anisotropy": "anisotropy",
    "effective_rank": "effective rank",
    "mean_cosine": "mean cosine",
    "twonn": "dimension (TwoNN)",
}
RESIDUAL = "residual stream"


def build(runs: dict[str, Run]) -> Figure | None:
    runs = {label: run for label, run in runs.items() if run.hook_points}
    tables = {label: {RESIDUAL: run.results} | run.hook_points for label, run in runs.items()}
    every = [table for hook_points in tables.values() for table in hook_points.values()]
    names = [name for name in NAMES if every and all(name in table for table in every)]
    if not names:
        return None
    looks = style.inks(dict.fromkeys(name for hook_points in tables.values() for name in hook_points))
    figure = style.new(style.PAGE, 0.7 + 1.7 * len(runs))
    grid = figure.subplots(len(runs), len(names), sharex=True, squeeze=False)
    for row, (label, hook_points) in zip(grid, tables.items(), strict=True):
        for ax, name in zip(row, names, strict=True):
            for point, table in hook_points.items():
                last = table.isel(step=-1).sel(positions="all")
                style.banded(
                    ax, last.layer.values, *interval(last, name), label=point.replace("_", " "), **looks[point]
                )
            rulers.fit([ax], zero=True)
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        if len(runs) > 1:
            row[0].set_ylabel(label)
    for ax, name in zip(grid[0], names, strict=True):
        ax.set_title(NAMES[name], fontsize=style.SMALL)
    for ax in grid[-1]:
        ax.set_xlabel("layer")
    style.title(figure, f"Residual stream, and what is added to it{at_last(runs)}, all positions")
    style.legend(grid)
    shown = (
        "The residual stream after every block; what attention and the feed-forward layer add to it, before "
        "it is added; and the values of all heads side by side. Each is a cloud of the same positions. "
        "Layer 0 is the embedding."
    )
    caption(figure, runs, shown, bands({str(n): Run(table, []) for n, table in enumerate(every)}, *names))
    return figure
