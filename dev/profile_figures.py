"""Draw packaged pretrained models by layer, from the tables of dev/model_profiles.py.

.venv/bin/python -m dev.profile_figures    # docs/figures/models_*.png
"""

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from anisoscope import plot
from anisoscope.plot import panel_axes, style
from dev.real_models import COLORS, FIGURES, NAMES, RESULTS, SIDES

FOLDER = RESULTS / "real_models"
NULLS = {  # quantity: of its null models, the words
    "anisotropy": {"isotropic": "isotropic", "capped": "first direction\ncapped"},
    "mean_cosine": {"flipped": "random signs"},
}
NOTE = "8 windows of 256 tokens of enwik8, 2,048 vectors."
BANDS = " Bands: 95 % intervals over windows."


def draw_cosine(tables: dict[str, xr.Dataset]) -> Figure:
    """Draw the mean cosine of pairs over relative depth, in the manner of Godey et al."""
    figure = style.new_figure(style.PAGE, 3.0)
    axes = figure.subplots(1, 2, sharey=True)
    for ax, (side, words) in zip(axes, SIDES.items(), strict=True):
        for name, table in tables.items():
            color, values = COLORS[table.title], table.mean_cosine.sel(positions=side)
            ends = [values.sel(statistic=end) for end in ("mean", "low", "high")]
            style.plot_with_interval(ax, table.depth, *ends, color=color, label=name)
        ax.set(title=words, xlabel="relative depth (0 = embedding)", ylim=(-0.05, 1))
    axes[0].set_ylabel("mean cosine of pairs")
    style.label_ends(axes[1])
    return finish(figure, "Mean cosine over depth", BANDS)


def draw_dimension(tables: dict[str, xr.Dataset]) -> Figure:
    """Draw TwoNN's dimension by layer, beside a Gaussian cloud of the same spectrum."""
    figure = style.new_figure(style.PAGE, 2.7)
    axes = figure.subplots(1, len(tables), sharey=True)
    for ax, (name, table) in zip(axes, tables.items(), strict=True):
        plot.by_layer(table, "twonn", show_null="gaussian", ax=ax)
        ax.set(title=name, ylabel="")
        ax.locator_params(axis="x", nbins=4)
        ax.get_legend().remove()
        ax.lines[0].set_label("model")
    for ax in axes:
        ax.set_ylim(0, max(ax.dataLim.y1 for ax in axes) * 1.05)
    style.label_ends(axes[-1], 0.8)
    axes[0].set_ylabel("intrinsic dimension (TwoNN)")
    return finish(figure, "Dimension by layer, and of a Gaussian cloud of the same spectrum", BANDS)


def draw_nulls(tables: dict[str, xr.Dataset]) -> Figure:
    """Draw anisotropy and mean cosine by layer beside the null models that they have."""
    figure = style.new_figure(style.PAGE, 3.8)
    axes = figure.subplots(len(NULLS), len(tables), sharey="row", sharex="col")
    for name, ax, below in zip(tables, axes[0], axes[-1], strict=True):
        ax.set_title(name)
        below.set_xlabel("layer")
    for row, (quantity, nulls) in zip(axes, NULLS.items(), strict=True):
        for ax, table in zip(row, tables.values(), strict=True):
            own = table.sel(positions="all")
            mean = own[quantity].sel(statistic="mean")
            ax.plot(own.layer, mean, color=style.COLORS[0], label="model")
            for (null, words), color in zip(nulls.items(), style.COLORS[1:], strict=False):
                excess = own[f"{quantity}_excess"].sel(null=null, statistic="mean")
                ax.plot(own.layer, mean - excess, "--", color=color, label=words)
            ax.set_ylim(-0.02, 1.02)
        row[0].set_ylabel(quantity.replace("_", " "))
        style.label_ends(row[-1], 0.9)
    return finish(figure, "Anisotropy and mean cosine by layer, and of null models")


def draw_spectra(rows: pd.DataFrame) -> Figure:
    """Draw the eigenvalues of each layer's covariance as shares, shaded by depth."""
    names = [name for name in NAMES if name in set(rows.model)]
    colors, figure = panel_axes.patch_colors(5), style.new_figure(style.PAGE, 2.7)
    axes = figure.subplots(1, len(names), sharey=True)
    for ax, name in zip(axes, names, strict=True):
        own = rows[(rows.model == name) & (rows.share > 0)]
        layers = np.linspace(0, own.layer.max(), 5).round()
        for at, layer in enumerate(layers):
            line = own[own.layer == layer]
            ax.plot(line["rank"], line.share, color=colors.to_rgba(at), linewidth=1.1)
        panel_axes.logarithmic(ax.xaxis, ax.yaxis)
        ax.set(title=NAMES[name], xlabel="rank", ylim=(1e-6, 1.5))
    axes[0].set_ylabel("share of the variance")
    depths = ["0", "¼", "½", "¾", "1"]
    panel_axes.bar(figure, colors, np.array([axes]), "relative depth", range(5), depths)
    return finish(figure, "Eigenvalues of five layers of each model, all positions")


def draw_points(rows: pd.DataFrame) -> Figure:
    """Draw the vectors of one layer on their first two components, the first token marked."""
    names = [name for name in NAMES if name in set(rows.model)]
    figure = style.new_figure(style.PAGE, 2.4)
    for ax, name in zip(figure.subplots(1, len(names)), names, strict=True):
        own = rows[rows.model == name]
        for first, color, words in (
            (False, "0.6", "other tokens"),
            (True, "#D55E00", "first token"),
        ):
            part = own[(own.position == 0) == first]
            ax.scatter(part["first"], part["second"], s=8 if first else 3, color=color, label=words)
        ax.set(title=f"{NAMES[name]}\nlayer {own.layer.iloc[0]}", xlabel="component 1")
        ax.tick_params(labelsize=5)
        ax.locator_params(nbins=3)
    figure.axes[0].set_ylabel("component 2")
    style.legend([figure.axes[-1]])
    return finish(figure, "Vectors of the layer of largest anisotropy, on its first two components")


def draw_heads(rows: pd.DataFrame) -> Figure:
    """Draw each head's mean weight on the first token, by block."""
    names = [name for name in NAMES if name in set(rows.model)]
    figure = style.new_figure(style.PAGE, 2.8)
    axes = figure.subplots(1, len(names))
    for ax, name in zip(axes, names, strict=True):
        weight = rows[rows.model == name].pivot(index="block", columns="head", values="weight")
        image = ax.imshow(weight, origin="lower", aspect="auto", vmin=0, vmax=1)
        ax.set(title=NAMES[name], xlabel="head")
        ax.set_yticks(range(0, len(weight), 4), [str(at + 1) for at in range(0, len(weight), 4)])
        ax.set_xticks(range(0, weight.shape[1], 2), range(0, weight.shape[1], 2), fontsize=5)
        ax.grid(False)
    axes[0].set_ylabel("block")
    figure.colorbar(image, ax=axes, label="mean weight on the first token")
    return finish(figure, "Attention sinks by head and block")


def finish(figure: Figure, title: str, bands: str = "") -> Figure:
    style.title(figure, title)
    style.add_footer(figure, [NOTE + bands])
    return figure


if __name__ == "__main__":
    known = {NAMES[path.stem]: path for path in FOLDER.glob("*.nc") if path.stem in NAMES}
    loaded = {name: xr.load_dataset(known[name]) for name in NAMES.values() if name in known}
    with style.context():
        for name, figure in {
            "cosine": draw_cosine(loaded),
            "dimension": draw_dimension(loaded),
            "nulls": draw_nulls(loaded),
            "spectra": draw_spectra(pd.read_csv(FOLDER / "spectra.csv")),
            "points": draw_points(pd.read_csv(FOLDER / "points.csv")),
            "heads": draw_heads(pd.read_csv(FOLDER / "heads.csv")),
        }.items():
            figure.savefig(FIGURES / f"models_{name}.png", dpi=150)
