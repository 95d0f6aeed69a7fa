"""Figures of activation subspaces: gradient energy against controls and variance, by frequency."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from anisoscope.plot import style
from anisoscope.plot.render import render
from anisoscope.plot.run_tables import Run
from anisoscope.plot.specs import LINE, RUN, Line, Spec

MOST = 5  # panels beside each other
KIND, ROWS = "semi-NMF", "raw"  # what is drawn; the rest stands in the table
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
        table = table.sel(kind=KIND, rows=ROWS).isel(rank=-1)
        known = table["energy"].notnull().any([dim for dim in table["energy"].dims if dim != "fit"])
        fits.append("early" if known.sel(fit="early") else "here")
        every[label] = table.sel(fit=table["fit"][known.values] if spec is EXCESS else fits[-1])
    attrs = [table.attrs for table in every.values()]
    types = _join(own.get("types", "character") for own in attrs)
    words = {"subspaces": _join(SUBSPACES[fit] for fit in fits), "types": types}
    in_layers = spec.columns == "layer"
    if all(table.sizes["step"] == 1 for table in every.values()):
        line = {"hue": LINE, "lines": (Line("e − v", look=BLUE),), "strip": True}
        spec = replace(spec, x="layer", **{"columns": ""} if in_layers else line)
    elif in_layers:  # some, the first and the last among them
        layers = max((table.layer.values for table in every.values()), key=len)
        places = np.linspace(0, len(layers) - 1, min(MOST, len(layers))).round().astype(int)
        for label, table in every.items():
            every[label] = table.sel(layer=table.layer.isin(layers[places]))
    ranks = _join(
        f"rank {int(table['rank'])} of {table.attrs['width']}" for table in every.values()
    )
    spec = replace(
        spec,
        title=spec.title.format(**words),
        shown=f"{spec.shown.format(**words)} {RECONSTRUCTED}",
        note=f"Subspaces: {KIND}, {ranks}. {spec.note}".strip(),
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


FIGURES: dict[str, Callable[[dict[str, Run]], Figure | None]] = {
    "tangent_energy": partial(tangent_figure, ENERGY),
    "tangent_excess": partial(tangent_figure, EXCESS),
    "tangent_frequency": partial(tangent_figure, FREQUENCY),
    "tangent_isoscore": partial(tangent_figure, ISOSCORE),
}
