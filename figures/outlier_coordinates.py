"""How much of the variance do a few coordinates carry, and how anisotropic is the cloud without them?"""

from matplotlib.figure import Figure

from figures import style
from figures.run import Run, band, holding, interval


def build(runs: dict[str, Run]) -> Figure | None:
    looks, runs = style.inks(runs), holding(runs, "coordinate_share", "anisotropy_left_out")
    if not runs:
        return None
    tops = next(iter(runs.values())).results.top.values
    figure = style.new(style.PAGE, 4.0)
    axes = figure.subplots(2, len(tops), sharex=True, sharey="row")
    for label, run in runs.items():
        last = run.results.isel(step=-1).sel(positions="all")
        for top, (share, anisotropy) in zip(tops, axes.T, strict=True):
            in_them, without = (interval(last, name, top=top) for name in ("coordinate_share", "anisotropy_left_out"))
            style.banded(share, last.depth.values, *in_them, label=label, **looks[label])
            style.banded(anisotropy, last.depth.values, *without, **looks[label])
            if "anisotropy" in last:
                whole = {"color": looks[label]["color"], "linewidth": 0.9, "linestyle": ":"}
                anisotropy.plot(last.depth.values, last["anisotropy_mean"].values, **whole)
    for top, ax in zip(tops, axes[0], strict=True):
        ax.set_title("top coordinate" if top == 1 else f"top {top} coordinates")
    axes[1, len(tops) // 2].set_xlabel("relative depth (0 = embedding)")
    for row in axes:
        row[0].set_ylim(bottom=0)
    axes[0, 0].set_ylabel("share of the\nvariance in them")
    axes[1, 0].set_ylabel("anisotropy without them\n(dotted: with them)")
    bands = band(runs, "coordinate_share", "anisotropy_left_out")
    style.title(figure, f"Outlier coordinates, last checkpoint, all positions{bands}")
    style.legend(axes)
    style.footer(figure, runs)
    return figure
