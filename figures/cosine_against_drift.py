"""Mean cosine against drift over the layers of the last checkpoint (Anisotropy Is Inherent to Self-Attention)."""

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from figures import style
from figures.run import POSITIONS, Run, band, holding, interval, positions, words

PERMUTATIONS = 9_999  # every ordering of up to 7 layers; a random sample of that many beyond


def build(runs: dict[str, Run]) -> Figure | None:
    looks, runs = style.inks(runs), holding(runs, "mean_cosine", "drift")
    if not runs:
        return None
    sides = positions(runs)
    key = 0.3 + 0.29 * len(runs)  # inches: a title and two lines of type for each run
    figure = style.new(style.PAGE, 2.4 + key)
    grid = figure.add_gridspec(2, len(sides), height_ratios=(1.8, key))
    for column, side in enumerate(sides):
        ax = figure.add_subplot(grid[0, column], sharey=figure.axes[0] if column else None)
        for label, run in runs.items():
            last = run.results.isel(step=-1).sel(positions=side)
            (drift, *across), (cosine, *upright) = interval(last, "drift"), interval(last, "mean_cosine")
            text = f"{label}, {correlations(drift, cosine)}"
            ax.plot(drift, cosine, label=text, linestyle="none", **looks[label])
            bars = {"ecolor": looks[label]["color"], "elinewidth": 0.8, "fmt": "none"}
            ax.errorbar(drift, cosine, np.abs(upright - cosine), np.abs(across - drift), **bars)
            embedding = {"color": looks[label]["color"], "marker": looks[label]["marker"], "markerfacecolor": "white"}
            ax.plot(drift[:1], cosine[:1], linestyle="none", **embedding)
        ax.set(title=POSITIONS[side], xlabel=words(runs, "drift"))
        below = figure.add_subplot(grid[1, column], frameon=False, xticks=[], yticks=[])
        below.legend(
            *ax.get_legend_handles_labels(), loc="upper center", title="Pearson r, Spearman ρ (hollow: embedding)"
        )
    figure.axes[0].set_ylabel(words(runs, "mean_cosine"))
    bars = band(runs, "drift", "mean_cosine").replace("band", "bars")
    style.title(figure, f"Mean cosine against drift, last checkpoint{bars}")
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
        return f"n = {len(x)}\nn too small to correlate"
    if any(np.ptp(values) <= 1e-6 * np.abs(values).max() for values in (x, y)):  # tables hold float32 results
        return f"n = {len(x)}\nconstant: nothing to correlate"
    pearson = stats.pearsonr(x, y)
    orderings = stats.PermutationMethod(n_resamples=PERMUTATIONS, rng=np.random.default_rng(0))
    spearman = stats.pearsonr(stats.rankdata(x), stats.rankdata(y), method=orderings)
    return (
        f"n = {len(x)}\nr = {pearson.statistic:.2f} ({_p(pearson.pvalue)}), "
        f"ρ = {spearman.statistic:.2f} ({_p(spearman.pvalue)})"
    )


def _p(value: float) -> str:
    return "p < 0.001" if value < 0.001 else f"p = {value:.2g}"
