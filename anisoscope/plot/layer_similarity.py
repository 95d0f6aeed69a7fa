"""Which layers hold the same representation? Every layer beside every other, last checkpoint."""

import numpy as np
from matplotlib.figure import Figure

from anisoscope.measurement.nulls import PERMUTED
from anisoscope.measurement.tables.excess import excess_of, nulls_in
from anisoscope.plot import rulers, style
from anisoscope.plot.provenance import caption
from anisoscope.plot.run import Run, at_last, holding, interval, layers

UNBIASED, BIASED = {"cka_unbiased_layers": "linear CKA without bias"}, {"cka_layers": "linear CKA"}  # of older tables
OVERLAP = {"overlap_layers": "neighbourhood overlap"}


def build(runs: dict[str, Run]) -> Figure | None:
    every = holding(runs, *UNBIASED, *OVERLAP)
    measures = (UNBIASED if every.keys() == holding(runs, *BIASED, *OVERLAP).keys() else BIASED) | OVERLAP
    runs = holding(runs, *measures)
    if not runs:
        return None
    figure = style.new(0.75 * style.PAGE, 0.7 + 2.1 * len(runs))
    axes = figure.subplots(len(runs), len(measures), squeeze=False)
    last = [run.results.isel(step=-1).sel(positions="all") for run in runs.values()]
    rulers.similarities(figure, axes, (interval(one, name)[0] for one in last for name in measures))
    for ax, label in zip(axes[:, 0], runs, strict=True):
        ax.set_ylabel(f"{label}\n{layers(runs, rulers.LAYER)}")
    for ax, title in zip(axes[0], measures.values(), strict=True):
        ax.set_title(title)
    for ax in axes[-1]:
        ax.set_xlabel(layers(runs, rulers.LAYER))
    style.title(figure, f"Similarity of layers{at_last(runs)}, all positions")
    shown = "Every layer beside every other, at the last checkpoint: how alike are their clouds?"
    sentences = filter(None, (_permuted(label, run, measures) for label, run in runs.items()))
    caption(figure, runs, shown, further=list(sentences))
    return figure


def _permuted(label: str, run: Run, measures: dict[str, str]) -> str:
    """The most that two different layers have in common with the windows of one in another order."""
    if PERMUTED not in nulls_in(run.results):
        return ""
    parts = []
    for name, said in measures.items():
        null = run.results[name] - excess_of(run.results, name, PERMUTED)
        null = null.isel(step=-1).sel(positions="all", statistic="mean").values
        null = null[~np.eye(len(null), dtype=bool) & np.isfinite(null)]
        parts += [f"{said} {null.max():.2f}"] if null.size else []
    return f"{label}, windows of one layer in another order, at most: {', '.join(parts)}." * bool(parts)
