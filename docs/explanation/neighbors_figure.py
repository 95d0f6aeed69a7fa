"""Draws docs/explanation/neighbors.png: `python -m docs.explanation.neighbors_figure` from the root of
the repository.
"""

import pathlib

import numpy as np
from matplotlib.axes import Axes

from anisoscope.plot import style

BLUE, ORANGE, GREEN = style.OKABE_ITO[:3]


def candidates(ax: Axes) -> None:
    """Squared distances of one point to the others: neighbors, spare candidates, the bound of the
    rest.
    """
    near = np.array([1.0, 1.5, 2.3, 3.4, 3.9, 4.5, 5.6, 6.1, 6.7, 7.3, 7.8, 8.4, 9.0])
    kept = 6
    for y, rounding, word in ((2.2, 0.7, "sure"), (0.0, 3.8, "unsure: compared\nwith all points")):
        ax.hlines(y, 0.5, 9.3, color="0.8", linewidth=0.8, zorder=0)
        ax.plot(near[:3], [y] * 3, "o", color=BLUE, markersize=6)
        ax.plot(near[3:kept], [y] * 3, "s", color=GREEN, markersize=5)
        ax.plot(near[kept:], [y] * (len(near) - kept), "x", color="0.55", markersize=4)
        ax.vlines(near[kept], y - 0.35, y + 0.45, color=ORANGE, linewidth=1.4)
        low = near[kept] - rounding
        ax.annotate(
            "",
            (low, y + 0.3),
            (near[kept], y + 0.3),
            arrowprops={"arrowstyle": "->", "color": ORANGE},
        )
        ax.vlines(near[2], y - 0.35, y + 0.45, color=BLUE, linewidth=1.0, linestyle=":")
        ax.text(9.6, y, word, va="center")
    ax.text(near[1], 2.85, "neighbors", ha="center", color=BLUE)
    ax.text(near[4] - 0.1, 1.45, "spare\ncandidates", ha="center", va="center", color=GREEN)
    ax.text(near[kept], 2.85, "bound minus its rounding", ha="center", color=ORANGE)
    ax.text(7.9, 1.45, "never measured", ha="center", va="center", color="0.4")
    ax.set(xlim=(0.3, 13.2), ylim=(-1.0, 3.3))
    ax.set_xlabel("squared distance from one point, by the Gram matrix", loc="left")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.grid(visible=False)
    ax.spines["left"].set_visible(False)
    ax.set_title("Measure the candidates, and decide whether that is enough", loc="left")


def main() -> None:
    with style.context():
        figure = style.new_figure(style.PAGE_WIDTH, 2.5)
        candidates(figure.subplots())
        figure.savefig(pathlib.Path(__file__).with_name("neighbors.png"))


if __name__ == "__main__":
    main()
