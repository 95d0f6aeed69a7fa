"""Share of heads with a sink over what counts as one: results/sink_curve/curve.csv and figures/sink_curve.png.

    .venv/bin/python -m dev.sink_curve [MODELS PAIR]

MODELS is a folder of `experiments/shape_of_learning.py`, PAIR one of `matched_pair_small.py`, both measured with the
family sinks (docs/findings/pretrained.md has the commands); their last tables are written to curve.csv first.
"""

import pathlib
import sys

import numpy as np
import pandas as pd
import scipy.stats
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anisoscope.measurement.families.attention import SINK_FROM
from anisoscope.measurement.tables import files
from anisoscope.plot import style
from anisoscope.utils.files import read_json
from dev.real_models import FIGURES, RESULTS, all_models

TABLE = RESULTS / "sink_curve" / "curve.csv"
PLACES = {"sink_rate": "position 0", "sink_rate_anywhere": "any one position"}
OURS = "our {}, 4 layers"


def rates(path: pathlib.Path) -> pd.DataFrame:
    """Share of all heads by place and threshold, with its interval by windows, at the last step."""
    with xr.open_dataset(path) as table:
        last = table.isel(step=-1).load()
    rows = []
    for quantity, place in PLACES.items():
        share = last[f"{quantity}_over_blocks"].sel(positions="all")
        curves = {part: share.sel(statistic=part).values for part in ("mean", "low", "high")}
        rows.append(pd.DataFrame({"place": place, "threshold": share.threshold.values} | curves))
    return pd.concat(rows)


def of_models(root: pathlib.Path) -> pd.DataFrame:
    labels = read_json(root / "models.json", "name a folder of shape_of_learning.py")
    labels = [label for label in labels if (root / label / "results.nc").exists()]
    return pd.concat([rates(root / label / "results.nc").assign(model=label, n=1) for label in labels])


def of_pair(root: pathlib.Path) -> pd.DataFrame:
    """Means over seeds, with Student's intervals within the range of a share."""
    runs = pd.read_csv(root / "runs.csv")[["run", "condition"]].itertuples(index=False)
    each = pd.concat([rates(root / run / "results.nc").assign(model=OURS.format(kind)) for run, kind in runs])
    groups = each.groupby(["model", "place", "threshold"])["mean"]
    frame = groups.agg(["mean", "sem", "count"]).reset_index()
    half = frame["sem"] * scipy.stats.t.ppf(0.975, frame["count"] - 1)
    low, high = (frame["mean"] - half).clip(lower=0), (frame["mean"] + half).clip(upper=1)
    return frame.assign(low=low, high=high, n=frame["count"])[
        ["place", "threshold", "mean", "low", "high", "model", "n"]
    ]


def draw(frame: pd.DataFrame) -> Figure:
    """A panel for each place, a labelled curve for each model, in the colours of real_models.png."""
    looks = style.inks(dict.fromkeys(all_models().model))
    figure = style.new(style.PAGE, 3.2)
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    for ax, place in zip(axes, PLACES.values(), strict=True):
        ends = {}
        for model, own in frame[frame.place == place].groupby("model", sort=False):
            style.banded(ax, own.threshold, own["mean"], own.low, own.high, markersize=3, **looks[model])
            ends[model] = own
        label(ax, ends, looks)
        ax.axvline(SINK_FROM, color="0.4", linewidth=0.9, linestyle="--")
        ax.set(title=f"on {place}", xlabel="mean attention weight from which a head counts")
    axes[0].set(ylabel="share of all heads", ylim=(-0.03, 1.03), xlim=(0.07, 0.93))
    style.title(figure, message(frame))
    return figure


def label(ax: Axes, curves: dict[str, pd.DataFrame], looks: dict[str, dict[str, str]]) -> None:
    """Names in the empty corner, in the order and the colours of the curves, each with its share at the threshold."""
    at = {model: float(np.interp(SINK_FROM, own.threshold, own["mean"])) for model, own in curves.items()}
    for place, (model, share) in enumerate(sorted(at.items(), key=lambda one: -one[1])):
        about = {"transform": ax.transAxes, "ha": "right", "va": "top", "fontsize": style.SMALL}
        ax.text(
            0.99,
            0.99 - 0.085 * place,
            f"{model}: {100 * share:.3g} % at {SINK_FROM}",
            color=looks[model]["color"],
            **about,
        )


def message(frame: pd.DataFrame) -> str:
    at = frame[np.isclose(frame.threshold, SINK_FROM) & (frame.place == PLACES["sink_rate"])].set_index("model")["mean"]
    ours = at[[name for name in at.index if name.startswith("our")]].max()
    pretrained = ", ".join(
        f"{100 * share:.3g} % of {model}'s" for model, share in at.items() if not model.startswith("our")
    )
    return f"Heads that give position 0 more than {SINK_FROM}: {pretrained}, {100 * ours:.3g} % of our small models'"


def main(given: list[str]) -> None:
    if given:
        models, pair = map(pathlib.Path, given)
        TABLE.parent.mkdir(exist_ok=True)
        files.write_csv(pd.concat([of_models(models), of_pair(pair)]), TABLE)
    frame = pd.read_csv(TABLE)
    with style.context():
        figure = draw(frame)
        said = "Windows of 256 tokens (ours: 128 characters). Bands: 95 % intervals by windows; of ours over seeds. "
        said += f"Dashed: {SINK_FROM}, from which a head counts as a sink elsewhere."
        style.small_print(figure, [said])
        figure.savefig(FIGURES / "sink_curve.png", dpi=150)
    print(frame.pivot_table(index="threshold", columns=["place", "model"], values="mean").round(3).to_string())


if __name__ == "__main__":
    main(sys.argv[1:])
