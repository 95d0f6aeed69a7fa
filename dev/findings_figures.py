"""Draw the figures of docs/findings whose tables are in docs/results.

.venv/bin/python -m dev.findings_figures    # families_*, tangent_energy
"""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anisoscope.plot import panel_axes, style
from dev.real_models import FIGURES, RESULTS, student

FAMILIES = {  # quantity: title, unit or what it is, where of several, whether logarithmic
    "logit_lens_loss": ("logit lens", "loss (bits)", None, True),
    "curvature": ("trajectory", "mean angle (rad)", None, False),
    "sink_rate": ("sinks", "share of heads", None, False),
    "massive_points": ("massive activations", "share of points", None, True),
    "linearity_update_adjusted": ("linearity", "of a block's update", None, False),
    "information_imbalance_layers": ("imbalance", "to the next layer", "next", True),
    "procrustes_layers": ("alignment", "Procrustes similarity", "next", False),
    "correlation_dimension": ("estimators", "correlation dimension", None, True),
    "hub_skewness": ("hubness", "skewness of occurrences", None, False),
}
OVER = {"sink_rate": "mean weight above", "massive_points": "coordinate over median above"}
PAIR = {"decoder": style.COLORS[0], "encoder": style.COLORS[1]}


def draw_families(rows: pd.DataFrame, title: str) -> Figure:
    """Draw a panel for each optional family, and a line for each model."""
    colors = dict(zip(dict.fromkeys(rows.model), style.COLORS, strict=False))
    figure = style.new_figure(style.PAGE, 5.6)
    axes = figure.subplots(3, 3)
    for ax, (name, (family, unit, at, logarithmic)) in zip(
        axes.flat, FAMILIES.items(), strict=True
    ):
        own = rows[(rows.quantity == name) & (rows.positions == "all")]
        own = own[own["at"] == at] if at else own
        for model, color in colors.items():
            x = "at" if name in OVER else "depth"
            line = own[own.model == model].assign(at=lambda f: pd.to_numeric(f["at"], "coerce"))
            line = line.groupby(x)[["mean", "low", "high", "gaussian"]].mean().reset_index()
            if name in OVER:  # a mean over layers, whose interval is not known
                line[["low", "high"]] = np.nan
            draw_line(ax, line, x, color, model, marker="")
            ax.plot(line[x], line["mean"] - line["gaussian"], "--", color=color, linewidth=0.9)
        if name == "massive_points":
            panel_axes.logarithmic(ax.xaxis)
        if logarithmic:
            panel_axes.fit_logarithmic([ax])
        if name == "sink_rate":
            ax.set_ylim(-0.02, 1.02)
        ax.set_title(family)
        ax.set_ylabel(unit, fontsize=style.SMALL)
        ax.set_xlabel(OVER.get(name, "relative depth"), fontsize=style.SMALL)
    for ax in axes[:, 2]:
        style.label_ends(ax, 0.8)
    style.title(figure, title)
    notes = (
        "Bands: 95 % intervals over windows or seeds. Dashed: Gaussian cloud of the same spectrum."
    )
    style.add_footer(
        figure,
        [f"{notes} Sinks and massive activations: means over layers; linearity: minus chance."],
    )
    return figure


def draw_tangents() -> Figure:
    """Draw energy and variance in the early subspace over training, means over blocks."""
    rows = pd.read_csv(RESULTS / "matched_pair_gradients" / "tangents.csv")
    rows = rows[rows.layer > 0].assign(kind=rows.run.str.partition("_")[0])
    means = rows.groupby(["kind", "run", "step"]).mean(numeric_only=True).reset_index()
    lines = {"variance": "variance of\nactivations", "energy": "gradient energy"}
    lines |= {"control_energy": "gradient energy,\nrandom subspaces"}
    colors = (style.COLORS[1], style.COLORS[0], "0.5")
    figure = style.new_figure(style.PAGE, 2.6)
    axes = figure.subplots(1, 2, sharey=True)
    for ax, kind in zip(axes, PAIR, strict=True):
        for (name, label), color in zip(lines.items(), colors, strict=True):
            own = student(means[means.kind == kind], "step", name)
            draw_line(ax, own, "step", color, label, marker="")
        panel_axes.step_axis(ax, int(means.step.max()))
        ax.set_title(f"{kind}s")
    axes[0].set(ylim=(0, 1), ylabel="share in the subspace")
    style.label_ends(axes[1])
    style.title(figure, "Gradient energy and variance in the early activation subspace")
    notes = (
        "Means over blocks 1 to 4. Bands: 95 % intervals over five seeds. Semi-NMF, 16 directions "
    )
    style.add_footer(figure, [f"{notes}of 63, fitted early."])
    return figure


def draw_line(ax: Axes, own: pd.DataFrame, x: str, color: str, label: str, **look: Any) -> None:
    ends = [np.asarray(own[part], float) for part in (x, "mean", "low", "high")]
    marks = {"marker": "o", "markersize": 3} | look
    style.plot_with_interval(ax, *ends, color=color, label=label, **marks)


if __name__ == "__main__":
    families = pd.read_csv(RESULTS / "families" / "layers.csv")
    last = families[families.step == families.groupby("model").step.transform("max")]
    trained = last.model.isin([*PAIR])
    with style.context():
        for name, figure in {
            "families_pretrained": draw_families(
                last[~trained], "Optional families of two decoders"
            ),
            "families_pair": draw_families(
                last[trained], "Optional families of a pair of 4 layers"
            ),
            "tangent_energy": draw_tangents(),
        }.items():
            figure.savefig(FIGURES / f"{name}.png", dpi=150)
