"""Draw how surely five measures tell sizes of decoders apart, and whether they follow outputs.

    .venv/bin/python -m findings.scripts.similarities_figure

It reads groups.csv and outputs.csv of findings/tables/similarity and writes
findings/figures/similarities.png.
"""

import numpy as np
import pandas as pd

from anisoscope.plot import style
from findings.scripts.shared_tables import RESULTS, save_figure

FOLDER = RESULTS / "similarity"
NAMES = {
    "Procrustes": "Procrustes",
    "ReSi RSA": "RSA, as in ReSi",
    "overlap": "overlap of 10 neighbors",
    "CKA": "CKA",
    "RSA": "RSA of squared distances",
}
TITLE = "Neighbors and Procrustes tell sizes of decoders apart more surely than CKA"
SETS = {"all": "45 pairs of all decoders", "one size": "9 pairs of one size"}


def main() -> None:
    groups = pd.read_csv(FOLDER / "groups.csv").query("of == 'decoder'").set_index("measure")
    outputs = pd.read_csv(FOLDER / "outputs.csv").set_index(["of", "measure"])["divergence"]
    rows = -np.arange(len(NAMES))
    with style.context():
        figure = style.new_figure(style.PAGE_WIDTH, 2.8)
        left, right = figure.subplots(1, 2, sharey=True)
        left.plot(1 - groups["violations"].loc[list(NAMES)], rows, "o", color=style.COLORS[0])
        left.axvline(0.5, color="gray", linewidth=0.8, linestyle=":")
        left.annotate("chance", (0.51, rows[-1]), fontsize=style.SMALL_FONT)
        left.set(
            xlim=(0.45, 1.02),
            xlabel="share of comparisons in which\none size is more alike than two",
        )
        for (pairs, words), color, fill in zip(
            SETS.items(), style.COLORS, ("full", "none"), strict=False
        ):
            look = {"color": color, "fillstyle": fill, "label": words}
            right.plot(outputs[pairs].loc[list(NAMES)], rows, "o", **look)
        right.set(xlim=(0, 1.02), xlabel="rank correlation with\nhow far outputs differ")
        right.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2, frameon=False)
        left.set_yticks(rows, NAMES.values())
        save_figure(figure, "similarities", TITLE)


if __name__ == "__main__":
    main()
