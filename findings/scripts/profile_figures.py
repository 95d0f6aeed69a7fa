"""Draw packaged pretrained models by layer, from the tables of findings/scripts/model_profiles.py.

.venv/bin/python -m findings.scripts.profile_figures    # findings/figures/models_*.png
"""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from anisoscope.plot import panel_axes, style
from findings.scripts.head_figures import draw_models, draw_points, draw_spectrum, draw_weights
from findings.scripts.shared_tables import COLORS, MODELS, NAMES, PARTS, SIDES, save_figure

NULLS = {  # quantity: of its null models, the words
    "anisotropy": {"isotropic": "isotropic", "capped": "first direction\ncapped"},
    "mean_cosine": {"flipped": "random signs"},
}
TITLES = {
    "cosine": "Mean cosine is higher in decoders, and the first token does not make it",
    "dimension": "Models lie near far fewer dimensions than their spectra fill",
    "nulls": "One direction makes decoders anisotropic; a common vector makes cosines high",
    "spectra": "Inside decoders one eigenvalue holds nearly all of the variance",
    "points": "In decoders the first component tells the first token from all others",
    "heads": "Some heads of decoders give the first token most of their attention, none of encoders does",
}
GAUSSIAN = {"twonn": {"gaussian": "Gaussian cloud,\nsame spectrum"}}
SAMPLE = "8 windows of 256 tokens of enwik8, 2,048 vectors."
BANDS = f"{SAMPLE} Bands: 95 % intervals."


def draw_cosine(tables: dict[str, xr.Dataset]) -> Figure:
    """Draw the mean cosine of pairs over relative depth, in the manner of Godey et al."""
    figure = style.new_figure(style.PAGE_WIDTH, 3.0)
    axes = figure.subplots(1, 2, sharey=True)
    for ax, (side, words) in zip(axes, SIDES.items(), strict=True):
        for name, table in tables.items():
            own = table.mean_cosine.sel(positions=side, statistic=PARTS)
            style.plot_with_interval(ax, table.depth, *own, color=COLORS[name], label=NAMES[name])
        ax.set(title=words, xlabel=panel_axes.RELATIVE_DEPTH, ylim=(-0.05, 1))
    axes[0].set_ylabel("mean cosine of pairs")
    style.label_ends(axes[1])
    return figure


def draw_profiles(
    tables: dict[str, xr.Dataset], rows: dict[str, dict[str, str]], logarithmic: bool = False
) -> Figure:
    """Draw a row for each quantity: each model by layer, and dashed its null models."""
    figure = style.new_figure(style.PAGE_WIDTH, 1.1 + 1.6 * len(rows))
    axes = figure.subplots(len(rows), len(tables), sharey="row", sharex="col", squeeze=False)
    for row, (quantity, nulls) in zip(axes, rows.items(), strict=True):
        for ax, (name, table) in zip(row, tables.items(), strict=True):
            own = table.sel(positions="all")
            mean, *ends = own[quantity].sel(statistic=PARTS)
            style.plot_with_interval(
                ax, own.layer, mean, *ends, color=style.COLORS[0], label="model"
            )
            for (null, words), color in zip(nulls.items(), style.COLORS[1:], strict=False):
                excess = own[f"{quantity}_excess"].sel(null=null, statistic="mean")
                ax.plot(own.layer, mean - excess, "--", color=color, label=words)
            axes[0, [*tables].index(name)].set_title(NAMES[name])
        if logarithmic:
            panel_axes.fit_logarithmic(row)
        else:
            panel_axes.fit_limits(row, zero=True)
        row[0].set_ylabel(style.wrap(style.variable_label(table[quantity]), 1.4, 8))
        style.label_ends(row[-1], 0.9)
    for ax in axes[-1]:
        ax.set_xlabel("layer")
        ax.xaxis.set_major_locator(MaxNLocator(3, integer=True))
    return figure


def main() -> None:
    tables = {name: MODELS / f"{name}.nc" for name in NAMES}
    tables = {name: xr.load_dataset(path) for name, path in tables.items() if path.exists()}
    spectra = draw_models("spectra", draw_spectrum, "share of the variance", 2.7, True)
    depths, axes = ["0", "¼", "½", "¾", "1"], np.array([spectra.axes])
    panel_axes.add_color_bar(
        spectra, panel_axes.patch_colors(5), axes, "relative depth", range(5), depths
    )
    points = draw_models("points", draw_points, "component 2", 2.4, False)
    style.legend(points.axes)
    heads = draw_models("heads", draw_weights, "block", 2.8, False)
    words = "mean weight on the first token"
    heads.colorbar(heads.axes[-1].images[0], ax=heads.axes, label=words)
    dimension, nulls = draw_profiles(tables, GAUSSIAN, True), draw_profiles(tables, NULLS)
    for name, figure in {
        "cosine": draw_cosine(tables),
        "dimension": dimension,
        "nulls": nulls,
    }.items():
        save_figure(figure, f"models_{name}", TITLES[name], BANDS)
    for name, figure in {"spectra": spectra, "points": points, "heads": heads}.items():
        save_figure(figure, f"models_{name}", TITLES[name], SAMPLE)


if __name__ == "__main__":
    with style.context():
        main()
