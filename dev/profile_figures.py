"""Draw packaged pretrained models by layer, from the tables of dev/model_profiles.py.

.venv/bin/python -m dev.profile_figures    # docs/figures/models_*.png
"""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anisoscope.plot import panel_axes, style
from dev.real_models import COLORS, FIGURES, NAMES, PARTS, RESULTS, SIDES

FOLDER = RESULTS / "real_models"
NULLS = {  # quantity: of its null models, the words
    "anisotropy": {"isotropic": "isotropic", "capped": "first direction\ncapped"},
    "mean_cosine": {"flipped": "random signs"},
}
GAUSSIAN = {"twonn": {"gaussian": "Gaussian cloud,\nsame spectrum"}}
NOTE = "8 windows of 256 tokens of enwik8, 2,048 vectors. Bands: 95 % intervals."


def draw_cosine(tables: dict[str, xr.Dataset]) -> Figure:
    """Draw the mean cosine of pairs over relative depth, in the manner of Godey et al."""
    figure = style.new_figure(style.PAGE, 3.0)
    axes = figure.subplots(1, 2, sharey=True)
    for ax, (side, words) in zip(axes, SIDES.items(), strict=True):
        for name, table in tables.items():
            own = table.mean_cosine.sel(positions=side)
            ends = [own.sel(statistic=end) for end in PARTS]
            look = {"color": COLORS[table.title], "label": name}
            style.plot_with_interval(ax, table.depth, *ends, **look)
        ax.set(title=words, xlabel="relative depth (0 = embedding)", ylim=(-0.05, 1))
    axes[0].set_ylabel("mean cosine of pairs")
    style.label_ends(axes[1])
    return figure


def draw_profiles(tables: dict[str, xr.Dataset], rows: dict[str, dict[str, str]]) -> Figure:
    """Draw a row for each quantity: each model by layer, and dashed its null models."""
    figure = style.new_figure(style.PAGE, 1.1 + 1.6 * len(rows))
    axes = figure.subplots(len(rows), len(tables), sharey="row", sharex="col", squeeze=False)
    for row, (quantity, nulls) in zip(axes, rows.items(), strict=True):
        for ax, table in zip(row, tables.values(), strict=True):
            own = table.sel(positions="all")
            mean, *ends = (own[quantity].sel(statistic=end) for end in PARTS)
            look = {"color": style.COLORS[0], "label": "model"}
            style.plot_with_interval(ax, own.layer, mean, *ends, **look)
            for (null, words), color in zip(nulls.items(), style.COLORS[1:], strict=False):
                excess = own[f"{quantity}_excess"].sel(null=null, statistic="mean")
                ax.plot(own.layer, mean - excess, "--", color=color, label=words)
        panel_axes.fit_limits(row, zero=True)
        row[0].set_ylabel(style.wrap(style.variable_label(table[quantity]), 1.4, 8))
        style.label_ends(row[-1], 0.9)
    for name, ax, below in zip(tables, axes[0], axes[-1], strict=True):
        ax.set_title(name)
        below.set_xlabel("layer")
    return figure


def make_panels(
    rows: pd.DataFrame, height: float, **shared: Any
) -> list[tuple[Axes, pd.DataFrame]]:
    """Make a panel for each model, with its rows."""
    names = [name for name in NAMES if name in set(rows.model)]
    axes = style.new_figure(style.PAGE, height).subplots(1, len(names), **shared)
    for ax, name in zip(axes, names, strict=True):
        ax.set_title(NAMES[name])
    return [(ax, rows[rows.model == name]) for ax, name in zip(axes, names, strict=True)]


def draw_spectra(rows: pd.DataFrame) -> Figure:
    """Draw the eigenvalues of each layer's covariance as shares, shaded by depth."""
    colors, panels = panel_axes.patch_colors(5), make_panels(rows, 2.7, sharey=True)
    for ax, own in panels:
        for at, layer in enumerate(np.linspace(0, own.layer.max(), 5).round()):
            line = own[(own.layer == layer) & (own.share > 0)]
            ax.plot(line["rank"], line.share, color=colors.to_rgba(at), linewidth=1.1)
        panel_axes.logarithmic(ax.xaxis, ax.yaxis)
        ax.set(xlabel="rank", ylim=(1e-6, 1.5))
    first, axes = panels[0][0], np.array([[ax for ax, _ in panels]])
    first.set_ylabel("share of the variance")
    depths = ["0", "¼", "½", "¾", "1"]
    panel_axes.add_color_bar(first.figure, colors, axes, "relative depth", range(5), depths)
    return first.figure


def draw_points(rows: pd.DataFrame) -> Figure:
    """Draw the vectors of one layer on their first two components, the first token marked."""
    panels = make_panels(rows, 2.4)
    for ax, own in panels:
        first, others = own[own.position == 0], own[own.position > 0]
        ax.scatter(others["first"], others["second"], s=3, color="0.6", label="other tokens")
        ax.scatter(first["first"], first["second"], s=8, color="#D55E00", label="first token")
        ax.set(title=f"{ax.get_title()}\nlayer {own.layer.iloc[0]}", xlabel="component 1")
        ax.tick_params(labelsize=5)
        ax.locator_params(nbins=3)
    panels[0][0].set_ylabel("component 2")
    style.legend([panels[-1][0]])
    return ax.figure


def draw_heads(rows: pd.DataFrame) -> Figure:
    """Draw each head's mean weight on the first token, by block."""
    panels = make_panels(rows, 2.8)
    for ax, own in panels:
        weight = own.pivot(index="block", columns="head", values="weight")
        ends = (-0.5, weight.shape[1] - 0.5, 0.5, len(weight) + 0.5)
        image = ax.imshow(weight, origin="lower", aspect="auto", vmin=0, vmax=1, extent=ends)
        ax.set_xlabel("head")
        ax.locator_params(integer=True)
        ax.grid(False)
    panels[0][0].set_ylabel("block")
    ax.figure.colorbar(image, ax=ax.figure.axes, label="mean weight on the first token")
    return ax.figure


if __name__ == "__main__":
    known = {NAMES[path.stem]: path for path in FOLDER.glob("*.nc") if path.stem in NAMES}
    loaded = {name: xr.load_dataset(known[name]) for name in NAMES.values() if name in known}
    spectra, points, heads = (
        pd.read_csv(FOLDER / f"{name}.csv") for name in ("spectra", "points", "heads")
    )
    with style.context():
        for name, title, figure in (
            ("cosine", "Mean cosine over depth", draw_cosine(loaded)),
            ("dimension", "Dimension by layer", draw_profiles(loaded, GAUSSIAN)),
            ("nulls", "Anisotropy and mean cosine by layer", draw_profiles(loaded, NULLS)),
            ("spectra", "Eigenvalues of five layers, all positions", draw_spectra(spectra)),
            ("points", "Layer of largest anisotropy, first two components", draw_points(points)),
            ("heads", "Attention sinks by head and block", draw_heads(heads)),
        ):
            style.title(figure, title)
            style.add_footer(figure, [NOTE])
            figure.savefig(FIGURES / f"models_{name}.png", dpi=150)
