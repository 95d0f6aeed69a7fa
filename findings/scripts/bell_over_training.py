"""Measure which part of a bell of an own decoder is what, at each checkpoint: Shapley's shares.

    .venv/bin/python -m findings.scripts.bell_over_training RUN [RUN …]

RUN is the folder of a trained run, such as RUNS/muon_learned_2 of experiments/position_optimizer.py:tiny,
whose last checkpoint has a bell of anisotropy between the embedding and the last block (0.38; findings/tables/
position_optimizer/blocks.csv, seen before). It writes findings/tables/bell_over_training.csv and draws
findings/figures/bell_over_training.png.

Factors, heights and shares are those of findings/scripts/bell_factors.py, of 64 windows of the validation
split, with the largest coordinate; intervals are over windows. `position` is no factor of the shares: the
part of the height that goes when the mean of each position is taken away in place of the mean of all.

Written before a value was read, for means over runs at the last step:

- `token_little`: the first token's share lies within ± SMALL, unlike in SmolLM2 and Qwen2.5.
- `positions_most`: the means of positions take away at least HALF of the height, and the mean of all
  alone less than HALF of what they take.
- `mean_first`: at the step of the largest share of the mean (log-spaced, 16 to 64 expected) the mean takes
  away at least HALF of the height: what grows first is not what is the bell at last.
"""

import pathlib
import sys

import numpy as np
import pandas as pd

import anisoscope
from anisoscope.plot import panel_axes, style
from anisoscope.results import joined_files
from findings.claims.massive_vectors import HALF, SMALL
from findings.scripts.bell_factors import Values, describe, inner_mean, read_values
from findings.scripts.cloud_moments import leading_shares, make_part, with_interval
from findings.scripts.shared_tables import RESULTS, save_figure

TABLE = RESULTS / "bell_over_training.csv"
WINDOWS, TOP = 64, 1
LINES = {  # factor: words, color, column
    "mean": ("mean of all vectors", style.COLORS[0], "share"),
    "position": ("mean of each position, in place of that of all", style.COLORS[1], "alone"),
    "left": ("left without all four factors", style.COLORS[2], "share"),
    "first": ("first token, largest coordinate, gain", "gray", "share"),
    "coordinates": ("", "gray", "share"),
    "gain": ("", "gray", "share"),
}
TITLE = "First the mean of all vectors leads, then neither, at last the means of positions"


def without_positions(x_WTD: np.ndarray) -> np.ndarray:
    """Return the leading share of the second moment without the mean of each position, (R,)."""
    centered_WTD = x_WTD - x_WTD.mean(axis=0)
    return leading_shares(make_part(centered_WTD, np.ones(x_WTD.shape[:2], bool)), (), False)


def read_step(x_LWTD: np.ndarray, gain_D: np.ndarray) -> pd.DataFrame:
    """Return a row for each factor, and one for the means of positions."""
    layers: list[Values] = [read_values(x_WTD, gain_D)[TOP] for x_WTD in x_LWTD]
    inner = inner_mean(layers)
    rows, whole_R = describe(inner), inner[frozenset()]
    left_R = np.mean([without_positions(x_WTD) for x_WTD in x_LWTD[1:-1]], axis=0)
    names = ("alone", "alone_low", "alone_high")
    alone = dict(zip(names, with_interval((whole_R - left_R) / whole_R, -9, 9), strict=True))
    return pd.DataFrame([*rows, {"factor": "position", "height": whole_R[0]} | alone])


def read_run(folder: str) -> pd.DataFrame:
    """Return the rows of all checkpoints of a run."""
    run = anisoscope.open_run(folder)
    tokens_WT, parts = run.windows(WINDOWS), []
    for step in run.steps:
        params = run.params(step)
        gain_D = np.asarray(params["norm_final"]["scale"], np.float64)
        x_LWTD = np.asarray(run.vectors(params, tokens_WT))
        parts.append(read_step(x_LWTD, gain_D).assign(step=step))
    return pd.concat(parts).assign(run=pathlib.Path(folder).name)


def judge(table: pd.DataFrame) -> dict[str, tuple[float, bool]]:
    """Return the number and whether it holds, of each claim."""
    means = table.groupby(["step", "factor"])[["share", "alone"]].mean()
    last = means.loc[table.step.max()]
    token, position = last.share["first"], last.alone["position"]
    mean = means.share.xs("mean", level="factor").max()
    alone = last.alone["mean"]
    return {
        "token_little": (token, abs(token) <= SMALL),
        "positions_most": (position, position >= HALF and alone < HALF * position),
        "mean_first": (mean, mean >= HALF),
    }


def draw(table: pd.DataFrame) -> None:
    """Draw the parts of the height over steps, means over runs and their range."""
    figure = style.new_figure(style.PAGE_WIDTH, 3.2)
    ax = figure.subplots()
    for factor, (words, color, column) in LINES.items():
        own = table[table.factor == factor].groupby("step")[column]
        steps = own.mean().index.to_numpy(float)
        ends = (part.to_numpy() for part in (own.mean(), own.min(), own.max()))
        style.plot_with_interval(ax, np.maximum(steps, 0.5), *ends, color=color, label=words)
    ax.set(xscale="log", ylim=(-0.1, 1), xlabel="training step (0 at the left edge)")
    ax.set_ylabel("part of the leading direction's\nshare, mean of inner layers")
    panel_axes.logarithmic(ax.xaxis)
    figure.legend(*style.legend_entries([ax]), loc="outside lower center", ncols=2)
    save_figure(figure, "bell_over_training", TITLE)


def main(*folders: str) -> None:
    table = pd.concat([read_run(folder) for folder in folders], ignore_index=True)
    joined_files.write_csv(table.round(6), TABLE)
    print(
        table.groupby(["step", "factor"])[["share", "alone"]].mean().round(3).unstack().to_string()
    )
    for claim, (value, holds) in judge(table).items():
        print(claim, round(value, 3), "holds" if holds else "does not hold")
    with style.context():
        draw(table)


if __name__ == "__main__":
    main(*sys.argv[1:])
