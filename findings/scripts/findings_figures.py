"""Draw the figures of findings whose tables are in findings/tables.

.venv/bin/python -m findings.scripts.findings_figures    # families_*, tangent_energy
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from anisoscope.plot import panel_axes, style
from findings.claims.evidence import EARLY, tangent_values
from findings.scripts.shared_tables import FIGURES, RESULTS, draw_line, student

FAMILIES = {  # quantity: title, unit or what it is, where of several, whether logarithmic
    "logit_lens_loss": ("logit lens", "loss (bits)", None, True),
    "curvature": ("straightness of paths", "mean angle (rad)", None, False),
    "sink_rate": ("attention sinks", "share of heads", None, False),
    "massive_points": ("massive activations", "share of points", None, True),
    "linearity_update_adjusted": ("linearity of blocks", "adjusted R² of update", None, False),
    "information_imbalance_layers": ("information imbalance", "to the next layer", "next", True),
    "procrustes_layers": ("alignment of layers", "Procrustes similarity", "next", False),
    "correlation_dimension": ("dimension", "correlation dimension", None, True),
    "hub_skewness": ("hubness", "skewness", None, False),
}
IN_TITLE = ("logit_lens_loss", "curvature")  # quantities that titles speak of: bold
OVER = {"sink_rate": "mean weight above", "massive_points": "coordinate over median above"}
NOTE = (
    "Bands: 95 % intervals over windows or seeds. Dashed: Gaussian cloud of the same spectrum. "
    "Sinks and massive activations: means over layers; linearity: minus chance."
)
ENERGIES = {
    "variance": ("variance of\nactivations", style.COLORS[1]),
    "energy": ("gradient energy", style.COLORS[0]),
    "control_energy": ("gradient energy,\nrandom subspaces", "0.5"),
}
TITLES = {  # of the figures of families
    "pretrained": "In two decoders answers settle late, and paths straighten over depth",
    "pair": "In 4 layers decoders' answers settle early; paths are straightest behind block 1",
}
TANGENT_NOTE = (
    "Means over blocks 1 to 4. Bands: 95 % intervals over five seeds. Semi-NMF, 16 directions of 63, "
    "fitted early. Black: the energies that the verdicts compare, of step 0, the mean over "
    f"checkpoints of the first {100 * EARLY:.0f} % of training, and the last step."
)


def draw_families(rows: pd.DataFrame, title: str) -> Figure:
    """Draw a panel for each optional family, and a line for each model."""
    colors = dict(zip(dict.fromkeys(rows.model), style.COLORS, strict=False))
    figure = style.new_figure(style.PAGE_WIDTH, 5.6)
    axes = figure.subplots(3, 3)
    for ax, (name, entry) in zip(axes.flat, FAMILIES.items(), strict=True):
        family, unit, at, logarithmic = entry
        own = rows[(rows.quantity == name) & (rows.positions == "all")]
        own = own[own["at"] == at] if at else own
        x = "at" if name in OVER else "depth"
        for model, color in colors.items():
            line = own[own.model == model].assign(at=lambda f: pd.to_numeric(f["at"], "coerce"))
            line = line.groupby(x)[["mean", "low", "high", "gaussian"]].mean().reset_index()
            if name in OVER:  # a mean over layers, whose interval is not known
                line[["low", "high"]] = np.nan
            draw_line(ax, line, x, color=color, label=model)
            ax.plot(line[x], line["mean"] - line["gaussian"], "--", color=color, linewidth=0.9)
        if name == "massive_points":
            panel_axes.logarithmic(ax.xaxis)
        if logarithmic:
            panel_axes.fit_logarithmic([ax])
        if name == "sink_rate":
            ax.set_ylim(-0.02, 1.02)
        ax.set(ylabel=unit, xlabel=OVER.get(name, "relative depth"))
        ax.set_title(family, fontweight="bold" if name in IN_TITLE else "normal")
    for ax in axes[:, 2]:
        style.label_ends(ax, 0.8)
    style.title(figure, title)
    style.add_footer(figure, [NOTE])
    return figure


def draw_tangents() -> Figure:
    """Draw energy and variance in the early subspace over training, means over blocks."""
    rows = pd.read_csv(RESULTS / "matched_pair_gradients" / "tangents.csv")
    rows = rows[rows.layer > 0].assign(kind=rows.run.str.partition("_")[0])
    means = rows.groupby(["kind", "run", "step"]).mean(numeric_only=True).reset_index()
    figure = style.new_figure(style.PAGE_WIDTH, 2.6)
    axes = figure.subplots(1, 2, sharey=True)
    for ax, kind in zip(axes, ("decoder", "encoder"), strict=True):
        for name, (label, color) in ENERGIES.items():
            own = student(means[means.kind == kind], "step", name)
            draw_line(ax, own, "step", color=color, label=label)
        runs = rows[rows.kind == kind].drop(columns="kind").groupby("run")
        compared = [tangent_values(own.drop(columns="run")) for _, own in runs]
        values, last = pd.DataFrame(compared).mean(), int(means.step.max())
        look = {"color": "0.1", "linewidth": 2, "zorder": 3}
        ax.plot([1, EARLY * last], [values.early_energy] * 2, **look)
        ax.plot([0, last], values[["first_energy", "energy"]], "o", markersize=5, **look)
        panel_axes.step_axis(ax, last)
        ax.set_title(f"{kind}s")
    axes[0].set(ylim=(0, 1), ylabel="share in the subspace")
    style.label_ends(axes[1])
    style.title(figure, "Gradients enter the early activation subspace, and leave it again")
    style.add_footer(figure, [TANGENT_NOTE])
    return figure


if __name__ == "__main__":
    families = pd.read_csv(RESULTS / "families" / "layers.csv")
    last = families[families.step == families.groupby("model").step.transform("max")]
    own = last.model.isin(["decoder", "encoder"])
    with style.context():
        for name, figure in {
            "families_pretrained": draw_families(last[~own], TITLES["pretrained"]),
            "families_pair": draw_families(last[own], TITLES["pair"]),
            "tangent_energy": draw_tangents(),
        }.items():
            figure.savefig(FIGURES / f"{name}.png", dpi=150)
