"""Draw spectra, first components and heads of packaged models, for findings/scripts/profile_figures.py."""

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anisoscope.plot import panel_axes, style
from findings.scripts.shared_tables import MODELS, NAMES


def draw_models(
    table: str, draw: Callable[[Axes, pd.DataFrame], None], ylabel: str, height: float, sharey: bool
) -> Figure:
    """Draw a panel for each model of a table of findings/tables/real_models."""
    rows = pd.read_csv(MODELS / f"{table}.csv")
    names = [name for name in NAMES if name in set(rows.model)]
    axes = style.new_figure(style.PAGE_WIDTH, height).subplots(1, len(names), sharey=sharey)
    for ax, name in zip(axes, names, strict=True):
        ax.set_title(NAMES[name])
        draw(ax, rows[rows.model == name])
    axes[0].set_ylabel(ylabel)
    return axes[0].figure


def draw_spectrum(ax: Axes, own: pd.DataFrame) -> None:
    """Draw the eigenvalues of five layers' covariances as shares, shaded by depth."""
    colors = panel_axes.patch_colors(5)
    for at, layer in enumerate(np.linspace(0, own.layer.max(), 5).round()):
        line = own[(own.layer == layer) & (own.share > 0)]
        ax.plot(line["rank"], line.share, color=colors.to_rgba(at), linewidth=1.1)
    panel_axes.logarithmic(ax.xaxis, ax.yaxis)
    ax.set(xlabel="rank", ylim=(1e-6, 1.5))


def draw_points(ax: Axes, own: pd.DataFrame) -> None:
    """Draw the vectors of one layer on their first two components, the first token marked."""
    first, others = own[own.position == 0], own[own.position > 0]
    ax.scatter(others["first"], others["second"], s=3, color="0.6", label="other tokens")
    ax.scatter(first["first"], first["second"], s=8, color="#D55E00", label="first token")
    ax.set(title=f"{ax.get_title()}\nlayer {own.layer.iloc[0]}", xlabel="component 1")
    ax.tick_params(labelsize=5)
    ax.locator_params(nbins=3)


def draw_weights(ax: Axes, own: pd.DataFrame) -> None:
    """Draw each head's mean weight on the first token, by block."""
    weight = own.pivot(index="block", columns="head", values="weight")
    ends = (-0.5, weight.shape[1] - 0.5, 0.5, len(weight) + 0.5)
    ax.imshow(weight, origin="lower", aspect="auto", vmin=0, vmax=1, extent=ends)
    ax.set_xlabel("head")
    ax.locator_params(integer=True)
    ax.grid(False)
