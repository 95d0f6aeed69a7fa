"""Figures of activation subspaces: gradient energy beside controls and activations, and by
frequency.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from anisoscope.measurement.intervals import LEVEL
from anisoscope.plot import panel_axes, style
from anisoscope.plot.footer import caption
from anisoscope.plot.run_tables import Run, interval, last_step

MOST = 5  # panels beside each other
KIND, ROWS = "semi-NMF", "raw"  # what is drawn; the rest stands in the table
CONTROLS = "Grey: all random subspaces"
RECONSTRUCTED = "Subspaces, energies and controls are reconstructions after Bernas et al. 2026."
FITS = {  # in the words of a figure
    "early": "fitted early",
    "here": "fitted at the checkpoint",
    "previous": "fitted at the one before",
    "untrained": "of the untrained network",
    "other seed": "of another seed, early",
}
SUBSPACES = {
    "early": "the early activation subspace",
    "here": "the activation subspace fitted at the checkpoint",
}


def chosen(runs: dict[str, Run]) -> dict[str, Run]:
    """The runs that have tables of tangents, these in the place of their results: the largest rank,
    raw gradients.
    """
    selection = {}
    for label, run in runs.items():
        if run.tangents is not None:
            rank = int(run.tangents["rank"].values[-1])
            selection[label] = Run(run.tangents.sel(rank=rank, kind=KIND, rows=ROWS), [])
    return selection


def subspace(runs: dict[str, Run]) -> str:
    tables = [run.results for run in runs.values()]
    ranks = each(f"rank {int(table['rank'])} of {int(table.attrs['width'])}" for table in tables)
    return f"{KIND}, {ranks}"


def each(words: Iterable[str]) -> str:
    """What different runs say, each once."""
    return " or ".join(dict.fromkeys(words))


def has(table: xr.Dataset, fit: str) -> bool:
    return bool(table["energy"].sel(fit=fit).notnull().any())


def drawn_fit(table: xr.Dataset) -> str:
    """Early subspaces; where there are none, as of a model without revisions, those fitted at the
    checkpoint itself.
    """
    return "early" if has(table, "early") else "here"


def in_subspaces(runs: dict[str, Run]) -> str:
    return each(SUBSPACES[drawn_fit(run.results)] for run in runs.values())


def over_depth(runs: dict[str, Run]) -> bool:
    """Whether there is no training to draw: the models have one checkpoint each."""
    return all(run.results.sizes["step"] == 1 for run in runs.values())


def types(runs: dict[str, Run]) -> str:
    return each(run.results.attrs.get("types", "character") for run in runs.values())


def axis(table: xr.Dataset) -> str:
    return "step" if "step" in table.dims else "layer"


def layers_of(table: xr.Dataset) -> list[int]:
    """All, or some of them, the first and the last among them."""
    every = table.layer.values
    return every[
        np.unique(np.linspace(0, len(every) - 1, min(MOST, len(every))).round().astype(int))
    ].tolist()


def grid(
    runs: dict[str, Run],
    columns: Callable[[xr.Dataset], dict[str, Any]],
    draw: Callable[[Axes, xr.Dataset, Any], None],
    layers: ScalarMappable | None = None,
) -> Figure:
    """A row per run, a panel per column over training steps (of one checkpoint: over layers), all
    of one scale.
    """
    deep = over_depth(runs)
    tables = {
        label: run.results.isel(step=0) if deep else run.results for label, run in runs.items()
    }
    most = max(len(columns(table)) for table in tables.values())
    figure = style.new(style.PAGE, 1.25 + 1.5 * len(runs))
    if layers is None:
        strip, axes = style.below_a_strip(figure, len(runs), most, 1.5)
    else:
        axes = figure.subplots(len(runs), most, squeeze=False)
    above: list[str] = []
    for row, (label, table) in zip(axes, tables.items(), strict=True):
        wanted = columns(table)
        for ax, (name, at) in zip(row, wanted.items(), strict=False):
            draw(ax, table, at)
            if deep:
                ax.set_xlabel("layer")
                ax.xaxis.set_major_locator(MaxNLocator(3 if most > 2 else "auto", integer=True))
            else:
                panel_axes.step_axis(ax, last_step(runs))
            if [*wanted] != above:  # of the first run, and of one that has other layers
                ax.set_title(name, fontsize=style.SMALL)
        for ax in row[len(wanted) :]:
            ax.set_axis_off()
        above = [*wanted]
        row[0].set_ylabel(label, fontweight="bold")
    panel_axes.fit(axes.flat, zero=True)
    for ax in axes[:, 1:].flat:
        ax.tick_params(labelleft=False)
    for ax in axes[:-1].flat:
        ax.set_xlabel("")
        ax.tick_params(labelbottom=False)
    if layers is None:
        handles, names = style.entries(axes.flat)
        strip.legend(handles, names, loc="center", ncols=len(names))
    else:
        panel_axes.patch_bar(figure, layers, axes)
    return figure


def by_layer(table: xr.Dataset) -> dict[str, dict[str, int]]:
    """A panel each, or all in one that is over layers."""
    if axis(table) == "layer":
        return {"": {}}
    return {
        f"layer {layer}" if layer else "layer 0 (embedding)": {"layer": layer}
        for layer in layers_of(table)
    }


def against_controls(
    ax: Axes, table: xr.Dataset, names: dict[str, str], at: dict[str, int]
) -> None:
    """Random subspaces as grey bands from the least to the greatest."""
    x = table[axis(table)].values
    for (name, label), shade in zip(names.items(), ("0.6", "#E69F00"), strict=False):
        mean, low, high = interval(table, name, fit=drawn_fit(table), **at)
        ax.fill_between(x, low, high, color=shade, alpha=0.35, linewidth=0, label=label)
        ax.plot(x, mean, color=shade, linewidth=0.8)


def line(
    ax: Axes, table: xr.Dataset, name: str, label: str, look: dict[str, Any], **where: Any
) -> None:
    curve = interval(table, name, **{"fit": drawn_fit(table)} | where)
    style.banded(ax, table[axis(table)].values, *curve, label=label, linewidth=1.2, **look)


def energy(runs: dict[str, Run]) -> Figure:
    """Does the gradient stay in the early tangent space, more than random directions and more than
    the activations?
    """

    def draw(ax: Axes, table: xr.Dataset, at: dict[str, int]) -> None:
        against_controls(ax, table, {"control_energy": "e of random subspaces"}, at)
        line(ax, table, "variance", "v: variance of the activations", look(1, linestyle="--"), **at)
        line(ax, table, "energy", "e: gradient energy", look(0), **at)

    title = f"Gradient energy and variance in {in_subspaces(runs)}"
    shown = f"Share of |G|² (e) and of the activations' variance (v) in {in_subspaces(runs)}."
    return write_title(grid(runs, by_layer, draw), runs, title, shown, f"{CONTROLS}.")


def excess(runs: dict[str, Run]) -> Figure:
    """What is left when what the activations explain by themselves is taken off?"""
    known = {
        fit: words
        for fit, words in FITS.items()
        if any(has(run.results, fit) for run in runs.values())
    }
    colours = panel_axes.layer_colours(max(run.results.sizes["layer"] for run in runs.values()))

    def draw(ax: Axes, table: xr.Dataset, fit: str) -> None:
        if axis(table) == "layer":
            line(ax, table, "excess", "e − v", look(0), fit=fit)
            ax.axhline(0, color="0.5", linewidth=0.8)
            return
        for layer in table.layer.values:
            line(ax, table, "excess", "", {"color": colours.to_rgba(layer)}, fit=fit, layer=layer)

    panels = {
        style.wrap(words, 1.2, style.SMALL) if len(known) > 1 else words: fit
        for fit, words in known.items()
    }
    title = "e − v: gradient energy less variance in activation subspaces"
    shown = "e − v of subspaces by what they were fitted to; 0 where the gradient follows the covariance."
    return write_title(
        grid(runs, lambda _: panels, draw, None if over_depth(runs) else colours),
        runs,
        title,
        shown,
    )


def frequency(runs: dict[str, Run]) -> Figure:
    """Are gradients of frequent characters more tangential?"""
    colours = style.shades()(np.linspace(0, 1, 4))

    def draw(ax: Axes, table: xr.Dataset, at: dict[str, int]) -> None:
        for colour, name in zip(colours, table.bin.values, strict=True):
            line(ax, table, "enrichment_in_bin", name, {"color": tuple(colour)}, bin=name, **at)

    title = f"Tangent enrichment e / v by frequency of the {types(runs)}"
    shown = f"e / v of the positions whose {types(runs)} lies in each quarter of the text by log frequency."
    return write_title(grid(runs, by_layer, draw), runs, title, shown)


def isoscore(runs: dict[str, Run]) -> Figure:
    """Does the subspace carry the gradient's anisotropy, beyond what its energy alone does?"""
    controls = {
        "isoscore_gain_normal": "without random subspaces",
        "isoscore_gain_equal_energy": "without random subspaces of equal energy",
    }

    def draw(ax: Axes, table: xr.Dataset, at: dict[str, int]) -> None:
        against_controls(ax, table, controls, at)
        line(ax, table, "isoscore_gain", "without the subspace", look(0), **at)

    title = "Gain of the gradient's IsoScore* when a subspace is removed"
    shown = "IsoScore* of gradients in the D − k dimensions of a subspace's complement, less that of all gradients."
    both = f"{CONTROLS.replace('Grey', 'Grey and orange')}."
    return write_title(grid(runs, by_layer, draw), runs, title, shown, both)


def look(number: int, linestyle: str = "-", **further: Any) -> dict[str, Any]:
    return {"color": style.OKABE_ITO[number], "linestyle": linestyle} | further


def write_title(
    figure: Figure, runs: dict[str, Run], title: str, shown: str, controls: str = ""
) -> Figure:
    """The title, with the subspaces, and the caption; the figure itself is returned."""
    style.title(figure, f"{title} ({subspace(runs)})")
    about = [run.results.attrs for run in runs.values()]
    ways = {
        "range of seeds"
        if "seeds" in run.results.attrs
        else f"{LEVEL * 100:.0f} % interval, windows resampled"
        for run in runs.values()
    }
    bands = f"Bands: {' or '.join(sorted(ways))}."
    positions, windows = (
        each(str(one[name]) for one in about) for name in ("positions", "windows")
    )
    windows = f"Positions: {positions}; windows: {windows}."
    early = each(steps for one in about if (steps := one["early_steps"][1:-1]))
    further = f"{windows} {f'Early: steps {early}.' if early else 'There are no early subspaces.'}"
    caption(figure, runs, f"{shown} {RECONSTRUCTED}", f"{bands} {controls}".strip(), [further])
    return figure


def of_chosen(build: Callable[[dict[str, Run]], Figure], runs: dict[str, Run]) -> Figure | None:
    """The figure of the runs that have tables of tangents, if any."""
    runs = chosen(runs)
    return build(runs) if runs else None


FIGURES = {
    f"tangent_{build.__name__}": partial(of_chosen, build)
    for build in (energy, excess, frequency, isoscore)
}
