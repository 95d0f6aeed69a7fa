"""Compare pretrained models, the positive control, with the models trained here.

It writes layers.csv and bells.csv in docs/results/real_models, and docs/figures/real_models.png.

    .venv/bin/python -m dev.real_models [RUN]

RUN is a folder of `experiments/shape_of_learning.py` (docs/findings/pretrained.md has the command);
its last tables replace those of the same models in layers.csv first. Our models are those of
docs/results/matched_pair_adamw, means over five seeds.
"""

import pathlib
import sys

import pandas as pd
import scipy.stats
import xarray as xr
from matplotlib.figure import Figure

from anisoscope.analysis.shapes import SHAPES
from anisoscope.plot import style
from anisoscope.results import joined_files
from anisoscope.utils.files import read_json

RESULTS, FIGURES = pathlib.Path("docs/results"), pathlib.Path("docs/figures")
TABLE = RESULTS / "real_models" / "layers.csv"
SIDES = {"all": "all positions", "without_first_token": "without the first token"}
PARTS = ("mean", "low", "high")
WIDEST_BAND = 0.5  # a wider interval is drawn by dotted lines at its ends


def read(root: pathlib.Path) -> pd.DataFrame:
    """Return a row for each model, set of positions and layer."""
    rows = []
    models = read_json(root / "models.json", "name a folder of shape_of_learning.py")
    for label, about in models.items():
        with xr.open_dataset(root / label / "results.nc") as table:
            last = table.isel(step=-1).load()
        for side in SIDES:
            own = last.sel(positions=side)
            columns = {"model": label, "kind": about["kind"], "positions": side}
            columns |= {"layer": last.layer.values, "depth": last.depth.values}
            columns |= {part: own.anisotropy.sel(statistic=part).values for part in PARTS}
            columns["norm_ratio"] = own.norm_ratio.sel(statistic="mean").values
            rows.append(pd.DataFrame(columns).assign(bits_per_byte=last.attrs["bits_per_byte"]))
    return pd.concat(rows)


def ours() -> pd.DataFrame:
    """Return means over the seeds of the matched pair, with Student's intervals."""
    rows = pd.read_csv(RESULTS / "matched_pair_adamw" / "layers.csv")
    groups = rows.groupby(["condition", "positions", "layer"])["anisotropy"]
    frame = groups.agg(["mean", "sem", "count"]).reset_index()
    half = frame["sem"] * scipy.stats.t.ppf(0.975, frame["count"] - 1)
    frame = frame.assign(low=frame["mean"] - half, high=frame["mean"] + half)
    model = "our " + frame["condition"] + ", 4 layers"
    return frame.assign(depth=frame.layer / frame.layer.max(), kind=frame["condition"], model=model)


def bells(frame: pd.DataFrame) -> pd.DataFrame:
    """Compute both definitions of a bell, with the functions used for the project's own models."""
    rows = []
    for (model, kind, side), own in frame[frame.positions.isin(SIDES)].groupby(
        ["model", "kind", "positions"], sort=False
    ):
        profile = xr.DataArray(own["mean"].values[None, None], dims=("step", "positions", "layer"))
        values = {
            name: SHAPES[name].read(profile).item()
            for name in ("bell_blocks", "bell_with_embedding")
        }
        rows.append({"model": model, "kind": kind, "positions": side} | values)
    return pd.DataFrame(rows)


def draw(frame: pd.DataFrame) -> Figure:
    """Draw encoders beside decoders on equal scales, with the first token and without."""
    frame = frame[frame.positions.isin(SIDES)]
    looks = style.run_styles(dict.fromkeys(frame.model))
    figure = style.new_figure(style.PAGE, 4.6)
    axes = figure.subplots(len(SIDES), 2, sharex=True, sharey=True, width_ratios=(3, 2))
    for row, (side, words) in zip(axes, SIDES.items(), strict=True):
        for ax, kind in zip(row, ("decoder", "encoder"), strict=True):
            for model, own in frame[(frame.kind == kind) & (frame.positions == side)].groupby(
                "model", sort=False
            ):
                wide = own.high - own.low > WIDEST_BAND
                look = looks[model]
                low, high = own.low.mask(wide), own.high.mask(wide)
                style.plot_with_interval(ax, own.depth, own["mean"], low, high, label=model, **look)
                first_block = own[own.layer == 1]
                open_marker = {"marker": look["marker"], "color": look["color"], "mfc": "white"}
                ax.plot(first_block.depth, first_block["mean"], zorder=3, **open_marker)
                for end in (own.low, own.high):
                    ax.plot(own.depth, end.where(wide), ":", color=look["color"], linewidth=1)
            ax.set_title(f"{kind}s, {words}")
        row[0].set_ylabel("anisotropy\n(largest eigenvalue's share)")
    for ax in axes[-1]:
        ax.set_xlabel("relative depth (0 = embedding)")
    axes[0, 0].set_ylim(0, 1.02)
    style.title(
        figure, "Anisotropy over depth: pretrained models, and two trained here (open: block 1)"
    )
    style.legend(axes)
    return figure


if __name__ == "__main__":
    if len(sys.argv) > 1:
        new, old = read(pathlib.Path(sys.argv[1])), pd.read_csv(TABLE)
        joined_files.write_csv(pd.concat([old[~old.model.isin(new.model)], new]), TABLE)
    table = pd.concat([pd.read_csv(TABLE), ours()])
    joined_files.write_csv(bells(table), TABLE.with_name("bells.csv"))
    with style.context():
        draw(table).savefig(FIGURES / "real_models.png", dpi=150)
    print(bells(table).round(3).to_string(index=False))
