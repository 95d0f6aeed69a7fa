"""Anisotropy over relative depth, last checkpoint: a bell for decoders, flat for encoders? (Shape of Learning, 1)"""

from matplotlib.figure import Figure

from figures import style
from figures.run import POSITIONS, Run, band, holding, interval, positions, words


def build(runs: dict[str, Run]) -> Figure | None:
    looks, runs = style.inks(runs), holding(runs, "anisotropy")
    if not runs:
        return None
    sides = positions(runs)
    figure = style.new(style.PAGE, 2.6)
    axes = figure.subplots(1, len(sides), sharey=True, squeeze=False)[0]
    for ax, side in zip(axes, sides, strict=True):
        for label, run in runs.items():
            last = run.results.isel(step=-1).sel(positions=side)
            style.banded(ax, last.depth.values, *interval(last, "anisotropy"), label=label, **looks[label])
        ax.set(title=POSITIONS[side], xlabel="relative depth (0 = embedding)")
    axes[0].set_ylim(bottom=0)
    axes[0].set_ylabel(words(runs, "anisotropy") + "\n(largest eigenvalue's share)")
    style.title(figure, f"Anisotropy over depth, last checkpoint{band(runs, 'anisotropy')}")
    style.legend(axes)
    style.footer(figure, runs)
    return figure
