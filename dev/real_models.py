"""The positive control, pretrained models beside ours: results/real_models/layers.csv and
figures/real_models.png.

    .venv/bin/python -m dev.real_models [RUN]

RUN is a folder of `experiments/shape_of_learning.py` (docs/findings/pretrained.md has the command);
its last tables are written to layers.csv first. Our models are those of
docs/results/matched_pair_adamw, means over five seeds.
"""

import pathlib
import sys

import pandas as pd
import scipy.stats
import xarray as xr
from matplotlib.figure import Figure

from anisoscope.plot import style
from anisoscope.results import joined_files
from anisoscope.utils.files import read_json

RESULTS, FIGURES = pathlib.Path("docs/results"), pathlib.Path("docs/figures")
TABLE = RESULTS / "real_models" / "layers.csv"
SIDES = {"all": "all positions", "without_first": "without position 0"}
PARTS = ("mean", "low", "high")


def read(root: pathlib.Path) -> pd.DataFrame:
    """A row for each model, set of positions and layer."""
    rows = []
    for label, about in read_json(
        root / "models.json", "name a folder of shape_of_learning.py"
    ).items():
        with xr.open_dataset(root / label / "results.nc") as table:
            last = table.isel(step=-1).load()
        for side in SIDES:
            curves = {
                part: last.anisotropy.sel(positions=side, statistic=part).values for part in PARTS
            }
            longest = last.norm_ratio.sel(positions=side, statistic="mean").values
            about_side = {"model": label, "kind": about["kind"], "positions": side}
            own = pd.DataFrame(
                about_side | {"layer": last.layer.values, "depth": last.depth.values} | curves
            )
            rows.append(own.assign(norm_ratio=longest, bits_per_byte=last.attrs["bits_per_byte"]))
    return pd.concat(rows)


def ours() -> pd.DataFrame:
    """The matched pair: means over seeds, with Student's intervals."""
    groups = pd.read_csv(RESULTS / "matched_pair_adamw" / "layers.csv").groupby(
        ["condition", "positions", "layer"]
    )["anisotropy"]
    frame = groups.agg(["mean", "sem", "count"]).reset_index()
    half = frame["sem"] * scipy.stats.t.ppf(0.975, frame["count"] - 1)
    frame = frame.assign(
        low=frame["mean"] - half, high=frame["mean"] + half, depth=frame.layer / frame.layer.max()
    )
    return frame.assign(kind=frame["condition"], model="our " + frame["condition"] + ", 4 layers")


def draw(frame: pd.DataFrame) -> Figure:
    """Encoders beside decoders on equal scales, with token 0 and without."""
    frame = frame[frame.positions.isin(SIDES)]
    looks = style.run_styles(dict.fromkeys(frame.model))
    figure = style.new_figure(style.PAGE, 4.6)
    axes = figure.subplots(len(SIDES), 2, sharex=True, sharey=True)
    for row, (side, words) in zip(axes, SIDES.items(), strict=True):
        for ax, kind in zip(row, ("encoder", "decoder"), strict=True):
            for model, own in frame[(frame.kind == kind) & (frame.positions == side)].groupby(
                "model", sort=False
            ):
                style.plot_with_interval(
                    ax, own.depth, own["mean"], own.low, own.high, label=model, **looks[model]
                )
            ax.set_title(f"{kind}s, {words}")
        row[0].set_ylabel("anisotropy\n(largest eigenvalue's share)")
    for ax in axes[-1]:
        ax.set_xlabel("relative depth (0 = embedding)")
    axes[0, 0].set_ylim(0, 1.02)
    style.title(figure, "Pretrained decoders beside a pretrained encoder and our small models")
    style.legend(axes)
    return figure


if __name__ == "__main__":
    if len(sys.argv) > 1:
        joined_files.write_csv(read(pathlib.Path(sys.argv[1])), TABLE)
    with style.context():
        draw(pd.concat([pd.read_csv(TABLE), ours()])).savefig(FIGURES / "real_models.png", dpi=150)
    print(pd.read_csv(TABLE).groupby(["model", "positions"])["mean"].max())
