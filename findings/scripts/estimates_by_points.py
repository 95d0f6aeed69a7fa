"""Draw estimates over the number of points: findings/figures/estimates_by_points.png.

    .venv/bin/python -m findings.scripts.estimates_by_points RUN STEP    # a run and one of its steps
    .venv/bin/python -m findings.scripts.estimates_by_points             # draws the table that is there

It writes findings/tables/estimates_by_points.csv: the last layer of a decoder, points drawn from
256 windows of its validation text, and Gaussian clouds of the covariance of all points.
"""

import pathlib
import sys

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.spatial import cKDTree

import anisoscope
from anisoscope.plot import panel_axes, style
from anisoscope.results import joined_files
from findings.scripts.shared_tables import RESULTS, save_figure

TABLE = RESULTS / "estimates_by_points.csv"
WINDOWS, POINTS, DRAWS = 256, tuple(2**power for power in range(6, 14)), 3
ESTIMATES = {
    "anisotropy": "anisotropy",
    "participation_ratio": "participation ratio",
    "rankme": "RankMe",
    "twonn": "dimension (TwoNN)",
}
TITLE = "Spectra settle at a thousand points, the dimension does not"
CLOUDS = {"model": style.COLORS[0], "Gaussian": "0.5"}
NOTE = (
    "Last block of a decoder of 0.2 million parameters, width 64. Lines: means of 3 draws of points; bands: their "
    "range. Copies count once. Gaussian: of the covariance of all 32,768 points of the model."
)


def estimate(points_PD: np.ndarray) -> dict[str, float]:
    """Read what is drawn off one cloud, in float64."""
    centered_PD = points_PD - points_PD.mean(0)
    lambda_D = np.linalg.eigvalsh(centered_PD.T @ centered_PD / len(points_PD)).clip(0)[::-1]
    share_D = lambda_D / lambda_D.sum()
    root_D = np.sqrt(lambda_D) / np.sqrt(lambda_D).sum() + 1e-7
    distance_P3 = cKDTree(centered_PD).query(centered_PD, k=3)[0]
    ratio_P = np.sort(distance_P3[:, 2] / distance_P3[:, 1])[: int(0.9 * len(points_PD))]
    log_P, rank_P = np.log(ratio_P), np.arange(1, len(ratio_P) + 1) / len(points_PD)
    return {
        "anisotropy": share_D[0],
        "participation_ratio": 1 / np.square(share_D).sum(),
        "rankme": float(np.exp(-(root_D * np.log(root_D)).sum())),
        "twonn": float(-(log_P @ np.log1p(-rank_P)) / (log_P @ log_P)),
    }


def draw(frame: pd.DataFrame) -> Figure:
    figure = style.new_figure(style.PAGE_WIDTH, 2.6)
    axes = figure.subplots(1, len(ESTIMATES))
    for ax, (column, title) in zip(axes, ESTIMATES.items(), strict=True):
        for cloud, color in CLOUDS.items():
            found = (
                frame[frame.cloud == cloud].groupby("points")[column].agg(["mean", "min", "max"])
            )
            ends = (found["mean"], found["min"], found["max"])
            style.plot_with_interval(ax, found.index.to_numpy(), *ends, color=color, label=cloud)
        panel_axes.logarithmic(ax.xaxis)
        ax.set(title=title, xlabel="points")
    style.legend(axes)
    return figure


def measure(folder: str, step: str) -> None:
    """Write the table."""
    run = anisoscope.open_run(pathlib.Path(folder))
    context = run.config.model.context
    tokens_WT = run.corpus.valid[: WINDOWS * context].reshape(WINDOWS, context)
    resid_WTD = run.vectors(run.params(int(step)), tokens_WT)[-1]
    all_PD = np.asarray(resid_WTD, np.float64).reshape(-1, resid_WTD.shape[-1])
    all_PD = np.unique(all_PD.round(5), axis=0)  # a window's first characters are often the same
    generator, rows = np.random.default_rng(0), []
    root_DD = np.linalg.cholesky(np.cov(all_PD.T))
    for points in POINTS:
        for number in range(DRAWS):
            own_PD = all_PD[generator.choice(len(all_PD), points, replace=False)]
            normal_PD = generator.standard_normal((points, all_PD.shape[1])) @ root_DD.T
            for cloud, cloud_PD in (("model", own_PD), ("Gaussian", normal_PD)):
                about = {"cloud": cloud, "points": points, "draw": number}
                rows.append(about | estimate(cloud_PD))
    joined_files.write_csv(pd.DataFrame(rows), TABLE)


def main(*run: str) -> None:
    if run:
        measure(*run)
    frame = pd.read_csv(TABLE)
    with style.context():
        save_figure(draw(frame), "estimates_by_points", TITLE, NOTE)
    print(frame.groupby(["cloud", "points"])[list(ESTIMATES)].mean().round(3).to_string())


if __name__ == "__main__":
    main(*sys.argv[1:])
