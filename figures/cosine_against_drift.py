"""Mean cosine against drift over the layers of the last checkpoint (Anisotropy Is Inherent to Self-Attention)."""

import math

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from figures import style
from figures.run import POSITIONS, Run, holding, positions, words

PERMUTATIONS = 9_999  # every ordering of up to 7 layers; a random sample of that many beyond


def build(runs: dict[str, Run]) -> Figure | None:
    looks, runs = style.inks(runs), holding(runs, "mean_cosine", "drift")
    if not runs:
        return None
    sides = positions(runs)
    figure = style.new(style.PAGE, 2.8 + 0.27 * len(runs))
    axes = figure.subplots(1, len(sides), sharey=True, squeeze=False)[0]
    for ax, side in zip(axes, sides, strict=True):
        for label, run in runs.items():
            last = run.results.isel(step=-1).sel(positions=side)
            drift, cosine = last["drift_mean"].values, last["mean_cosine_mean"].values
            text = f"{label}: {correlations(drift, cosine)}"
            ax.plot(drift, cosine, label=text, linewidth=0.6, alpha=0.9, **looks[label])
            embedding = {"color": looks[label]["color"], "marker": looks[label]["marker"], "markerfacecolor": "white"}
            ax.plot(drift[:1], cosine[:1], linestyle="none", **embedding)
        ax.set(title=POSITIONS[side], xlabel=words(runs, "drift"))
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2))
    axes[0].set_ylabel(words(runs, "mean_cosine"))
    figure.suptitle("Mean cosine against drift, one point per layer, last checkpoint (hollow: embedding)")
    style.footer(figure, runs)
    return figure


def correlations(x: np.ndarray, y: np.ndarray) -> str:
    """Pearson's r and Spearman's rho with two-sided p, in words.

    Spearman's p counts orderings: the usual t approximation gives p = 0 for three points in order, the truth is 1/3.
    Both p take layers for independent draws, which they are not: read them as a scale, not as a test.
    """
    both = np.isfinite(x) & np.isfinite(y)
    x, y = x[both].astype(np.float64), y[both].astype(np.float64)
    if len(x) < 3:
        return f"n too small (n = {len(x)})"
    if any(np.ptp(values) <= 1e-6 * np.abs(values).max() for values in (x, y)):  # tables hold float32 results
        return f"constant, no correlation (n = {len(x)})"
    pearson = stats.pearsonr(x, y)
    orderings = stats.PermutationMethod(n_resamples=PERMUTATIONS, rng=np.random.default_rng(0))
    spearman = stats.pearsonr(stats.rankdata(x), stats.rankdata(y), method=orderings)
    return (
        f"Pearson r = {pearson.statistic:.2f} ({_p(pearson.pvalue)}),\n"
        f"Spearman ρ = {spearman.statistic:.2f} ({_p(spearman.pvalue)}), n = {len(x)}"
    )


def _p(value: float) -> str:
    if math.isnan(value):
        return "no p"
    return "p < 0.001" if value < 0.001 else f"p = {value:.2g}"
