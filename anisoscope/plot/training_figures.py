"""Figures of a training: loss and geometry from the log, sinks, gradients in subspaces."""

import dataclasses
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from anisoscope.measurement.families.attention_family import SINK_FROM
from anisoscope.plot import panel_axes, style
from anisoscope.plot.footer import caption
from anisoscope.plot.render import render
from anisoscope.plot.run_tables import ENDS, Run
from anisoscope.plot.specs import LINE, RUN, SINKS, WATCHED_NAMES, Line, Spec
from anisoscope.training.objective import OBJECTIVES
from anisoscope.training.watch import BLOCKS

WITHOUT_FIRST = "_without_first_token"
SINK_SIGNS = {  # variable -> long name, quantity, dimension over which the largest is taken
    "norm_ratio": ("largest norm over the median", "norm_ratio", "layer"),
    "attention_first_token": (
        *("weight on the first token, largest head", "attention_first_token", "block"),
    ),
    "sink_heads": ("share of sink heads, largest block", "sink_heads", "block"),
    "anisotropy": ("anisotropy, largest block", "anisotropy", "layer"),
    f"anisotropy{WITHOUT_FIRST}": (
        *("anisotropy without the first token, largest block", "anisotropy", "layer"),
    ),
}


def training_curve(runs: dict[str, Run]) -> Figure | None:
    """Draw bits per character of training batches and validation, separately for each objective."""
    looks, runs = style.run_styles(runs), {label: run for label, run in runs.items() if run.log}
    if not runs:
        return None
    objective = {label: run.results.attrs["objective"] for label, run in runs.items()}
    kinds = [kind for kind in OBJECTIVES if kind in objective.values()]
    figure = style.new_figure(style.PAGE * (0.65 if len(kinds) == 1 else 1), 2.6)
    axes = figure.subplots(1, len(kinds), squeeze=False)[0]
    for ax, kind in zip(axes, kinds, strict=True):
        last, frequencies = 0, set()
        for label in (label for label in runs if objective[label] == kind):
            log, color = runs[label].log, looks[label]["color"]
            ax.plot(*log_curve(log, "train"), color=color, linewidth=0.6, alpha=0.7)
            marks = {"markersize": 3, "linestyle": "none", "label": label}
            ax.plot(*log_curve(log, "valid"), **looks[label] | marks)
            last = max(
                [last, *(line["step"] for line in log if line["kind"] in ("train", "valid"))]
            )
            bits = [line["context_free_bits"] for line in log if "context_free_bits" in line]
            frequencies |= {round(value, 3) for value in bits[-1:]}
        for level in frequencies:
            look = {"color": "0.4", "linewidth": 0.8, "linestyle": ":"}
            ax.axhline(level, label="without context", **look)
        panel_axes.step_axis(ax, last)
        ax.set(title=f"predicting {OBJECTIVES[kind].label}", ylabel="bits per predicted character")
    style.legend(axes)
    style.title(figure, "Bits per predicted character while training")
    read = (
        "Lines: training batches; marks: validation; "
        "dotted: what frequencies of characters alone give."
    )
    warning = " Bits of the two objectives are not comparable." * (len(kinds) > 1)
    caption(figure, runs, "Loss while training.", read + warning)
    return figure


def log_curve(log: list[dict[str, Any]], kind: str) -> tuple[list[int], list[float]]:
    """Return steps and bits of lines of this kind; for a repeated step the later line counts."""
    bits = {line["step"]: line["bits_per_character"] for line in log if line["kind"] == kind}
    return sorted(bits), [bits[step] for step in sorted(bits)]


def watched(spec: Spec, runs: dict[str, Run]) -> Figure | None:
    """Draw the logged geometry: a row for each run, a column per quantity, a line per layer."""
    tables = {label: table for label, run in runs.items() if (table := watch_table(run))}
    return render(spec, {label: Run(table, []) for label, table in tables.items()})


def watch_table(run: Run) -> xr.Dataset | None:
    """Convert the logged geometry to the form of results.nc, without intervals.

    Blocks are layers from 1. The step is that of the parameters before the logged update.
    """
    lines = {line["step"] - 1: line for line in run.log if line["kind"] == "watch"}
    if not lines:
        return None
    variables = {}
    for name, (long_name, units) in WATCHED_NAMES.items():
        values = np.array([lines[step][name] for step in sorted(lines)], float)
        if name in BLOCKS:
            values = np.pad(values, ((0, 0), (1, 0)), constant_values=np.nan)
        about = {"long_name": long_name, "units": units}
        variables[name] = xr.DataArray(values, dims=("step", "layer"), attrs=about)
    steps = xr.Dataset(variables, {"step": sorted(lines)}, run.results.attrs)
    return _without_interval(steps.assign_coords(layer=range(steps.sizes["layer"])))


def _without_interval(means: xr.Dataset) -> xr.Dataset:
    """Add NaN as the ends of an unknown interval."""
    known = xr.DataArray([True, False, False], {"statistic": list(ENDS)})
    with xr.set_options(keep_attrs=True):
        return means.where(known)


def attention_sinks(runs: dict[str, Run]) -> Figure | None:
    """Draw the signs of a sink over training, each at its largest: a line for each run."""
    needed = {quantity for _, quantity, _ in SINK_SIGNS.values()}
    tables = {
        label: sink_table(run.results) if needed <= {*run.results} else xr.Dataset()
        for label, run in runs.items()
    }
    if all(table.sizes.get("step", 1) == 1 for table in tables.values()):
        return None
    several = any("seeds" in table.attrs for table in tables.values())
    note = "Of several seeds: the mean, of weights on the first token the largest." * several
    spec = dataclasses.replace(SINKS, note=note)
    return render(spec, {label: Run(table, []) for label, table in tables.items()})


def sink_table(results: xr.Dataset) -> xr.Dataset:
    """Take the largest of each sign over layers, blocks or heads; NaN if any value is NaN."""
    signs = {}
    for name, (long_name, quantity, dim) in SINK_SIGNS.items():
        side = "without_first_token" if name.endswith(WITHOUT_FIRST) else "all"
        values = results[quantity].sel(statistic="mean", positions=side, drop=True)
        values = values.isel({dim: slice(int(dim == "layer"), None)})  # without the embedding
        over = [other for other in values.dims if other != "step"]
        signs[name] = values.max(over, skipna=False).assign_attrs(long_name=long_name, units="1")
    signs["sink_from"] = xr.full_like(signs["anisotropy"], SINK_FROM)
    if "validation_bits" in results:
        about = {"long_name": "validation bits per character", "units": "1"}
        signs["validation_bits"] = results["validation_bits"].drop_attrs().assign_attrs(about)
    table = xr.Dataset(signs).drop_vars("null", errors="ignore").assign_attrs(results.attrs)
    return _without_interval(table)


MOST_PANELS = 5  # panels beside each other
SUBSPACE, ROWS = "semi-NMF", "raw"  # what is drawn; the rest stands in the table
RECONSTRUCTED = "Subspaces, energies and controls are reconstructions after Bernas et al. 2026."
FITS = {
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
BLUE, ORANGE, YELLOW = ({"color": style.OKABE_ITO[number], "marker": ""} for number in (0, 1, 4))
CONTROL = {"color": "0.6", "linewidth": 0.8, "marker": ""}
IN_LAYERS: dict[str, Any] = {
    "rows": RUN,
    "columns": "layer",
    "x": "step",
    "zero": True,
    "strip": True,
}
IN_LAYERS |= {"label": "share of the squared length"}
ENERGY = Spec(
    "Gradient energy and variance in {subspaces}",
    "Share of |G|² (e) and of the activations' variance (v) in {subspaces}.",
    ("energy",),
    hue=LINE,
    lines=(
        Line("random subspaces", "control_energy", look=CONTROL),
        Line("activations' variance v", "variance", look=ORANGE | {"linestyle": "--"}),
        Line("gradient energy e", "energy", look=BLUE),
    ),
    note="Gray: all random subspaces.",
    **IN_LAYERS,
)
EXCESS = Spec(
    "Gradient energy minus variance, e − v, in activation subspaces",
    "e − v of subspaces by what they were fitted to; 0 where the gradient follows the covariance.",
    ("excess",),
    hue="layer",
    names=FITS,
    **IN_LAYERS | {"columns": "fit", "strip": False, "label": "e − v"},
)
FREQUENCY = Spec(
    "Tangent enrichment e / v by frequency of the {types}",
    "e / v of the positions whose {types} lies in each quarter of the text by log frequency.",
    ("enrichment_in_bin",),
    hue="bin",
    **IN_LAYERS | {"label": "e / v"},
)
ISOSCORE = Spec(
    "Gain of the gradient's IsoScore* when a subspace is removed",
    "IsoScore* of gradients in the D − k dimensions of a subspace's complement, minus that of all "
    "gradients.",
    ("isoscore_gain",),
    hue=LINE,
    lines=(
        Line("without random subspaces", "isoscore_gain_normal", look=CONTROL),
        Line(
            "without random subspaces of equal energy",
            "isoscore_gain_equal_energy",
            look=YELLOW | {"linewidth": 0.8},
        ),
        Line("without the subspace", "isoscore_gain", look=BLUE),
    ),
    note="Gray and orange: all random subspaces.",
    **IN_LAYERS | {"label": "gain of IsoScore*"},
)


def tangent_figure(spec: Spec, runs: dict[str, Run]) -> Figure | None:
    """Draw the runs with tangents.nc: the largest rank, raw gradients.

    Curves are over training steps with a panel for each layer; for models with a single checkpoint
    they are over layers.
    """
    found = {label: run.tangents for label, run in runs.items() if run.tangents is not None}
    if not found:
        return None
    every, fits = {}, []
    for label, table in found.items():
        table = table.sel(kind=SUBSPACE, rows=ROWS).isel(rank=-1)
        known = table["energy"].notnull().any([dim for dim in table["energy"].dims if dim != "fit"])
        fits.append("early" if known.sel(fit="early") else "here")
        every[label] = table.sel(fit=table["fit"][known.values] if spec is EXCESS else fits[-1])
    attrs = [table.attrs for table in every.values()]
    types = _join(own.get("types", "character") for own in attrs)
    words = {"subspaces": _join(SUBSPACES[fit] for fit in fits), "types": types}
    in_layers = spec.columns == "layer"
    if all(table.sizes["step"] == 1 for table in every.values()):
        line = {"hue": LINE, "lines": (Line("e − v", look=BLUE),), "strip": True}
        spec = dataclasses.replace(spec, x="layer", **{"columns": ""} if in_layers else line)
    elif in_layers:  # some, the first and the last among them
        layers = max((table.layer.values for table in every.values()), key=len)
        places = np.linspace(0, len(layers) - 1, min(MOST_PANELS, len(layers))).round().astype(int)
        for label, table in every.items():
            every[label] = table.sel(layer=table.layer.isin(layers[places]))
    ranks = _join(
        f"rank {int(table['rank'])} of {table.attrs['width']}" for table in every.values()
    )
    spec = dataclasses.replace(
        spec,
        title=spec.title.format(**words),
        shown=f"{spec.shown.format(**words)} {RECONSTRUCTED}",
        note=f"Subspaces: {SUBSPACE}, {ranks}. {spec.note}".strip(),
        further=(_format_windows(attrs),),
    )
    return render(spec, {label: Run(table, []) for label, table in every.items()})


def _format_windows(attrs: list[dict[str, Any]]) -> str:
    positions, windows = (
        _join(str(own[name]) for own in attrs) for name in ("positions", "windows")
    )
    early = _join(steps for own in attrs if (steps := own["early_steps"][1:-1]))
    steps = f"Early: steps {early}." if early else "There are no early subspaces."
    return f"Positions: {positions}; windows: {windows}. {steps}"


def _join(words: Iterable[str]) -> str:
    """Join the different sentences of runs, each once."""
    return " or ".join(dict.fromkeys(words))


TANGENTS: dict[str, Callable[[dict[str, Run]], Figure | None]] = {
    "tangent_energy": partial(tangent_figure, ENERGY),
    "tangent_excess": partial(tangent_figure, EXCESS),
    "tangent_frequency": partial(tangent_figure, FREQUENCY),
    "tangent_isoscore": partial(tangent_figure, ISOSCORE),
}
