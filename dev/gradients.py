"""Gradient energy in the early subspaces of a matched pair: figures/tangent_energy.png, of docs/results.

.venv/bin/python -m dev.gradients [EXPERIMENT]
"""

import sys

import pandas as pd
import scipy.stats
from matplotlib.figure import Figure

from anisoscope.analysis import on_disk
from anisoscope.plot import rulers, style
from dev.real_models import FIGURES, RESULTS

LINES = {  # column: words and look, as in the figure of the stage
    "energy": ("gradient energy e", {"color": style.OKABE_ITO[0]}),
    "variance": ("variance of the activations v", {"color": style.OKABE_ITO[1], "linestyle": "--"}),
    "control_energy": ("e of random subspaces", {"color": "0.5", "linestyle": ":"}),
}


def read(experiment: str) -> pd.DataFrame:
    conditions = pd.read_csv(RESULTS / experiment / "runs.csv").set_index("run")["condition"]
    frame = pd.read_csv(RESULTS / experiment / on_disk.TANGENTS)
    return frame.assign(condition=frame["run"].map(conditions))


def draw(frame: pd.DataFrame) -> Figure:
    """A row of panels for each condition, a panel for each layer: means over seeds with Student's intervals."""
    conditions, layers = list(dict.fromkeys(frame["condition"])), sorted({*frame["layer"]})
    figure = style.new(style.PAGE, 0.7 + 1.6 * len(conditions))
    strip, axes = style.below_a_strip(figure, len(conditions), len(layers), 1.6)
    for place, condition in enumerate(conditions):
        for ax, layer in zip(axes[place], layers, strict=True):
            own = frame[(frame["condition"] == condition) & (frame["layer"] == layer)].groupby("step")
            for column, (words, look) in LINES.items():
                parts = own[column].agg(["mean", "sem", "count"])
                half = parts["sem"] * scipy.stats.t.ppf(0.975, parts["count"] - 1)
                about = {"label": words, "linewidth": 1.1} | look
                style.banded(ax, parts.index, parts["mean"], parts["mean"] - half, parts["mean"] + half, **about)
            rulers.step_axis(ax, int(frame["step"].max()))
            ax.set_ylim(0, 1)
            ax.tick_params(labelleft=layer == layers[0])
            if place == 0:
                ax.set_xlabel("")
                ax.set_title(f"layer {layer}" + " (embedding)" * (layer == 0), fontsize=style.SMALL)
        axes[place, 0].set_ylabel(f"{condition}s: share", fontsize=style.SMALL)
    strip.legend(*style.entries(axes.flat), loc="center", ncols=len(LINES))
    style.title(figure, message(frame))
    return figure


def message(frame: pd.DataFrame) -> str:
    last = frame[frame["step"] == frame["step"].max()].groupby("condition", sort=False)[["energy", "variance"]].mean()
    parts = (
        f"{row.energy:.2f} of {row.Index}s' gradient and {row.variance:.2f} of variance" for row in last.itertuples()
    )
    return f"In the early subspace at the end, mean over layers: {', '.join(parts)}"


def main(experiment: str = "matched_pair_gradients") -> None:
    frame = read(experiment)
    seeds = frame.groupby("condition")["run"].nunique().min()
    with style.context():
        figure = draw(frame)
        said = f"Bands: 95 % intervals over {seeds} seeds. Semi-NMF, 16 directions of 63, fitted early (30 %)."
        style.small_print(figure, [said])
        figure.savefig(FIGURES / "tangent_energy.png", dpi=150)
    last = frame[frame["step"] == frame["step"].max()]
    print(last.groupby(["condition", "layer"]).mean(numeric_only=True).round(3).to_string())


if __name__ == "__main__":
    main(*sys.argv[1:])
