"""Anisotropy over layers, one curve per checkpoint: does it grow and settle? (Shape of Learning, 3 and 4)"""

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from figures import style
from figures.run import POSITIONS, Run, band, holding, interval, last_step, positions, words


def build(runs: dict[str, Run]) -> Figure | None:
    runs = holding(runs, "anisotropy")
    if not runs:
        return None
    sides = positions(runs)
    figure = style.new(style.PAGE, 0.6 + 1.4 * len(runs))
    axes = figure.subplots(len(runs), len(sides), sharey=True, squeeze=False)
    colours = style.step_colours(last_step(runs))
    for row, (label, run) in zip(axes, runs.items(), strict=True):
        for ax, side in zip(row, sides, strict=True):
            for step in run.results.step.values:
                curve = interval(run.results, "anisotropy", step=step, positions=side)
                style.banded(ax, run.results.layer.values, *curve, color=colours.to_rgba(step), linewidth=1.1)
            ax.set_title(f"{label}, {POSITIONS[side]}")
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    for ax in axes[-1]:
        ax.set_xlabel("layer (0 = embedding)")
    axes[0, 0].set_ylim(bottom=0)
    figure.supylabel(words(runs, "anisotropy") + "\n(largest eigenvalue's share)", fontsize=8, multialignment="center")
    style.title(figure, f"Anisotropy over layers while training{band(runs, 'anisotropy')}")
    style.step_bar(figure, colours, axes)
    style.footer(figure, runs)
    return figure
