"""How much quantities differ between seeds, blocks and steps, and how many seeds show 0.05.

    .venv/bin/python -m findings.scripts.seed_noise

It reads runs.csv of every experiment with at least five seeds a condition, layers.csv of the
matched pairs and steps.csv of the ladder. It writes findings/tables/seed_noise.csv and draws
findings/figures/seed_noise.png.

Written before it was run. `seeds`: the standard deviation between seeds, its variances pooled over
conditions by their degrees of freedom, with the interval of a chi-square; the largest condition
beside it, since conditions differ. Encoders count where every seed has gained 1 bit. `single_block`:
the same, of a single block in place of the mean over blocks. `blocks`: between the blocks of a run.
`steps`: of a step about the line through its neighbors 250 steps away, constant learning rate.
`seeds_needed`: the fewest seeds of each of two conditions whose means differ by 0.05 in the
quantity's own unit (log2 units where a logarithm is read), found by Student's test at 5 % with a
power of 0.8. Runs of a seed that share initial values and windows need as many or fewer.
"""

import itertools
import tomllib

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

from anisoscope.plot import panel_axes, style
from anisoscope.results import joined_files
from findings.claims.claim_entries import LEARNED, MODELS
from findings.scripts.shared_tables import RESULTS, save_figure

TABLE = RESULTS / "seed_noise.csv"
DIFFERENCE, ALPHA, POWER, LEAST_SEEDS, MOST_SEEDS = 0.05, 0.05, 0.8, 5, 9999
QUANTITIES = {  # of runs.csv: column of layers.csv, and of steps.csv, of the same unit
    "valid_bits": (None, "validation_bits"),
    "last_anisotropy": ("anisotropy", "anisotropy"),
    "mean_cosine": ("mean_cosine", "mean_cosine"),
    "last_dimension": ("twonn", "dimension"),
    "last_drift": ("drift", None),
    "bell_blocks": (None, "bell_blocks"),
    "std_over_layers": (None, "std_over_layers"),
    "growth": (None, None),
    "expansion": (None, None),
    "compression": (None, None),
    "drift_growth": (None, None),
    "entropy_decrease": (None, None),
    "alignment_growth": (None, None),
}
LOGARITHMIC = ("last_dimension", "last_drift")
# settings and seeds of matched_pair_gradients (found when its bits were seen to be equal)
AGAIN = ("matched_pair_families",)
NAMES = {
    "valid_bits": "loss (bits per character)",
    "last_anisotropy": "anisotropy",
    "mean_cosine": "mean cosine",
    "bell_blocks": "bell of anisotropy",
    "std_over_layers": "deviation of anisotropy over blocks",
    "growth": "growth of anisotropy",
    "last_dimension": "dimension, TwoNN (log2 units)",
    "expansion": "expansion of the dimension (log2 units)",
    "compression": "compression of the dimension (log2 units)",
    "last_drift": "drift (log2 units)",
    "drift_growth": "growth of drift (log2 units)",
    "entropy_decrease": "sharpening of attention (nats)",
    "alignment_growth": "alignment of query and key drift",
}
MARKED = (3, 10, 30, 100)  # seeds on the upper axis
NOTE = (
    "Deviation between seeds at the last checkpoint, pooled over 3 to 14 conditions of five seeds (decoders) and 3 to "
    "6 (encoders), each 0.2 million parameters, 400 to 1,200 steps; bars: 95 %. "
    "Above: seeds of each of two conditions that show a difference of 0.05 at 5 % with a power of 0.8."
)


def read_runs() -> pd.DataFrame:
    """Return the runs of conditions with enough seeds, each condition once."""
    duplicates = tomllib.loads((RESULTS / "experiments.toml").read_text())["duplicates"]
    twice, parts = {*map(tuple, duplicates)}, []
    for path in sorted(RESULTS.glob("*/runs.csv")):
        frame, name = pd.read_csv(path), path.parent.name
        if {"condition", "valid_bits", "objective"} <= {*frame} and name not in AGAIN:
            kept = [(name, condition) not in twice for condition in frame["condition"]]
            parts.append(frame[kept].assign(experiment=name))
    runs = pd.concat(parts, ignore_index=True)
    pairs = zip(runs["objective"], runs["model.mask"], strict=True)
    runs = runs.assign(kind=[MODELS.get(pair, "other") for pair in pairs])
    gains = runs.groupby(["experiment", "condition"])["valid_gain_over_unigram"]
    enough = gains.transform("count").ge(LEAST_SEEDS) & gains.transform("min").ge(LEARNED)
    return runs[enough]


def pool(groups: pd.core.groupby.SeriesGroupBy) -> tuple[float, int]:
    """Return the pooled standard deviation within groups and its degrees of freedom."""
    freedom = groups.count() - 1
    squares = (groups.var() * freedom).dropna()
    total = int(freedom[squares.index].sum())
    return (float(np.sqrt(squares.sum() / total)) if total else np.nan), total


def seeds_needed(deviation: float) -> int:
    """Return the fewest seeds of each condition that show DIFFERENCE."""
    if not np.isfinite(deviation):
        return 0
    for n in itertools.chain(range(2, 200), range(200, MOST_SEEDS, 10)):
        shift, freedom = DIFFERENCE / (deviation * np.sqrt(2 / n)), 2 * n - 2
        bound = stats.t.ppf(1 - ALPHA / 2, freedom)
        if stats.nct.sf(bound, freedom, shift) >= POWER:
            return n
    return MOST_SEEDS


def between_blocks(kind: str, column: str | None, logarithmic: bool) -> tuple[float, float]:
    """Return the deviations of a single block between seeds, and between the blocks of a run."""
    if column is None:
        return np.nan, np.nan
    names = ("matched_pair_muon", "matched_pair_adamw")
    rows = pd.concat([pd.read_csv(RESULTS / n / "layers.csv").assign(experiment=n) for n in names])
    rows = rows.query("positions == 'all' and layer > 0 and condition == @kind")
    values = np.log2(rows[column]) if logarithmic else rows[column]
    rows = rows.assign(value=values)
    single_block = pool(rows.groupby(["experiment", "layer"])["value"])[0]
    return single_block, pool(rows.groupby(["experiment", "run"])["value"])[0]


def between_steps(kind: str, column: str | None, logarithmic: bool) -> float:
    """Return the deviation of a step from the line through its neighbors, constant part."""
    if column is None or kind != "decoder":
        return np.nan
    rows = pd.read_csv(RESULTS / "scale_ladder" / "steps.csv")
    rows = rows.query("condition == @kind and size == '220k' and 1000 <= step <= 2250")
    rows = rows[rows["step"] % 250 == 0]
    values = rows.pivot(index=["position_encoding", "run"], columns="step", values=column)
    values = np.log2(values.to_numpy()) if logarithmic else values.to_numpy()
    return float(np.sqrt(np.mean(np.square(np.diff(values, 2)) / 6)))


def describe(runs: pd.DataFrame, kind: str, quantity: str) -> dict[str, float | str | int]:
    own = runs[runs["kind"] == kind].dropna(subset=[quantity])
    groups = own.groupby(["experiment", "condition"])[quantity]
    deviation, freedom = pool(groups)
    ends = stats.chi2.ppf([0.975, 0.025], freedom) if freedom else np.full(2, np.nan)
    layers, steps = QUANTITIES[quantity]
    logarithmic = quantity in LOGARITHMIC
    single_block, blocks = between_blocks(kind, layers, logarithmic)
    return {
        "kind": kind,
        "quantity": quantity,
        "conditions": groups.ngroups,
        "freedom": freedom,
        "seeds": deviation,
        "seeds_low": deviation * np.sqrt(freedom / ends[0]),
        "seeds_high": deviation * np.sqrt(freedom / ends[1]),
        "seeds_largest": groups.std().max(),
        "single_block": single_block,
        "blocks": blocks,
        "steps": between_steps(kind, steps, logarithmic),
        "seeds_needed": seeds_needed(deviation),
        "seeds_needed_largest": seeds_needed(groups.std().max()),
    }


def draw(frame: pd.DataFrame) -> Figure:
    """Draw a row for each quantity: deviations of decoders and encoders, and seeds needed."""
    figure = style.new_figure(style.PAGE_WIDTH, 3.9)
    ax = figure.subplots()
    for place, name in enumerate(NAMES):
        for kind, shift in (("decoder", 0.15), ("encoder", -0.15)):
            row = frame[frame.quantity.eq(name) & frame.kind.eq(kind)].iloc[0]
            color = style.COLORS[0 if kind == "decoder" else 1]
            ends = (row.seeds_low, row.seeds_high)
            style.draw_row(ax, shift - place, row.seeds, ends, color, filled=True, markersize=4)
            ax.plot(row.seeds_largest, shift - place, "o", color=color, markerfacecolor="white")
    for color, kind in zip(style.COLORS, MODELS.values(), strict=False):
        ax.plot([], [], "o-", color=color, label=f"{kind}s, pooled")
    ax.plot([], [], "o", color="0.35", markerfacecolor="white", label="the noisiest condition")
    style.name_rows(ax, list(NAMES.values()), [False] * len(NAMES), style.SMALL_FONT)
    ax.set(xscale="log", xlabel="standard deviation between seeds, in the unit of each quantity")
    panel_axes.logarithmic(ax.xaxis)
    known = np.geomspace(0.005, 0.6, 200)
    needed = [seeds_needed(value) for value in known]
    upper = ax.twiny()
    upper.set(
        xscale="log",
        xlim=ax.get_xlim(),
        xlabel="seeds of each condition that show a difference of 0.05",
    )
    upper.set_xticks(np.interp(MARKED, needed, known), MARKED)
    upper.minorticks_off()
    upper.grid(visible=False)
    ax.legend(loc="upper right")
    return figure


def main() -> None:
    runs = read_runs()
    rows = [describe(runs, kind, name) for kind in MODELS.values() for name in QUANTITIES]
    frame = pd.DataFrame(rows)
    joined_files.write_csv(frame, TABLE)
    with style.context():
        title = "Encoders differ more between seeds than decoders, most of all in dimension"
        save_figure(draw(frame), "seed_noise", title, NOTE)
    print(frame.round(4).to_string(index=False))


if __name__ == "__main__":
    main()
