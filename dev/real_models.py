"""Compare pretrained models, the positive control, with the models trained here.

It writes layers.csv and bells.csv in docs/results/real_models, and docs/figures/real_models.png.

    .venv/bin/python -m dev.real_models [RUN]

RUN is a folder of `experiments/shape_of_learning.py` (docs/findings/pretrained.md has the command);
its last tables replace those of the same models in layers.csv first. Our models are those of
docs/results/matched_pair_adamw, means over five seeds.
"""

import pathlib
import sys

import numpy as np
import pandas as pd
import scipy.stats
import xarray as xr
from matplotlib.figure import Figure

from anisoscope.analysis.claims.claim_entries import CLAIMS
from anisoscope.analysis.shapes import SHAPES, Curve
from anisoscope.plot import style
from anisoscope.results import joined_files
from anisoscope.utils.files import read_json

RESULTS, FIGURES = pathlib.Path("docs/results"), pathlib.Path("docs/figures")
TABLE = RESULTS / "real_models" / "layers.csv"
SIDES = {"all": "all positions", "without_first_token": "without the first token"}
PARTS = ("mean", "low", "high")
WIDEST_BAND = 0.5  # a wider interval is no band: its line is dashed
NAMES = {
    "SmolLM2-135M-Instruct": "SmolLM2 135M",
    "Qwen2.5-Coder-0.5B-Instruct": "Qwen2.5 0.5B",
    "Gemma-3-270M": "Gemma 3 270M",
    "our decoder, 4 layers": "own decoder",
    "MPNet-base": "MPNet",
    "MiniLM": "MiniLM",
    "Whisper-base": "Whisper (speech)",
    "our encoder, 4 layers": "own encoder",
}
COLORS = dict(zip(NAMES, style.COLORS, strict=False))
ENDS = {"bell_blocks": "block 1", "bell_with_embedding": "the embedding"}


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


def read_shape(name: str, profile_L: np.ndarray) -> float:
    """Read a shape off a profile over layers, the embedding first."""
    return SHAPES[name].read(Curve(profile_L[None, None], np.zeros(1), layered=True)).item()


def student(rows: pd.DataFrame, by: str, value: str) -> pd.DataFrame:
    """Return means over seeds with Student's intervals, a row for each of `by`."""
    frame = rows.groupby(by)[value].agg(["mean", "sem", "count"]).reset_index()
    half = frame["sem"] * scipy.stats.t.ppf(0.975, frame["count"] - 1)
    return frame.assign(low=frame["mean"] - half, high=frame["mean"] + half)


def ours() -> pd.DataFrame:
    """Return means over the seeds of the matched pair, with Student's intervals."""
    rows = pd.read_csv(RESULTS / "matched_pair_adamw" / "layers.csv")
    frames = []
    for (kind, side), own in rows.groupby(["condition", "positions"]):
        frame = student(own, "layer", "anisotropy").assign(kind=kind, positions=side)
        frames.append(frame.assign(model=f"our {kind}, 4 layers"))
    frame = pd.concat(frames)
    return frame.assign(depth=frame.layer / frame.layer.max())


def bells(frame: pd.DataFrame) -> pd.DataFrame:
    """Compute both definitions of a bell, with the functions used for the project's own models."""
    rows = []
    for (model, kind, side), own in frame[frame.positions.isin(SIDES)].groupby(
        ["model", "kind", "positions"], sort=False
    ):
        values = {name: read_shape(name, own["mean"].to_numpy()) for name in ENDS}
        rows.append({"model": model, "kind": kind, "positions": side} | values)
    return pd.DataFrame(rows)


def draw(frame: pd.DataFrame, bell: pd.DataFrame) -> Figure:
    """Draw profiles, decoders in color and encoders in gray, beside both definitions of a bell."""
    decoders = {*frame.model[frame.kind == "decoder"]}
    colors = {model: color for model, color in COLORS.items() if model in decoders}
    figure = style.new_figure(style.PAGE, 5.2)
    axes = figure.subplots(len(SIDES), 2, sharex="col", width_ratios=(5, 2))
    for (profile, dots), (side, words) in zip(axes, SIDES.items(), strict=True):
        for model, own in frame[frame.positions == side].groupby("model", sort=False):
            color, wide = colors.get(model, "0.6"), own.high - own.low > WIDEST_BAND
            look = {"color": color, "linewidth": 1.6 if model in colors else 1}
            low, high = own.low.mask(wide), own.high.mask(wide)
            profile.plot(own.depth, own["mean"], "--", label=NAMES[model], **look)
            style.plot_with_interval(profile, own.depth, own["mean"].mask(wide), low, high, **look)
        profile.set(ylim=(0, 1.02), ylabel=f"anisotropy, {words}", xlim=(0, 1))
        style.label_ends(profile)
        rows = bell[bell.positions == side].set_index("model").loc[[*reversed(NAMES)]]
        for y, (model, row) in enumerate(rows.iterrows()):
            color = colors.get(model, "0.6")
            ends = [row[name] for name in ENDS]
            dots.plot(ends, [y, y], color=color, linewidth=0.8)
            for (name, label), size, face in zip(
                ENDS.items(), (3, 6), (color, "none"), strict=True
            ):
                look = {"color": color, "markerfacecolor": face, "markersize": size}
                dots.plot(row[name], y, "o", label=label if y == len(rows) - 1 else "", **look)
        dots.axvline(CLAIMS["decoder_bell"].smallest, color="0.3", linewidth=0.9, linestyle=":")
        dots.set_yticks(range(len(rows)), [NAMES[model] for model in rows.index])
        dots.set(ylim=(-0.6, len(rows) - 0.4), xlim=(-0.15, 1))
        dots.grid(axis="y", visible=False)
    axes[-1, 0].set_xlabel("relative depth (0 = embedding)")
    axes[-1, 1].set_xlabel("bell: middle minus\nthe higher end")
    axes[0, 1].legend(loc="lower center", bbox_to_anchor=(0.3, 1), title="first end")
    notes = (
        "Bands: 95 % intervals over windows, or over five seeds; dashed where an interval is wider "
        f"than {WIDEST_BAND}. Gray: encoders. Dotted: the smallest bell of interest."
    )
    style.add_footer(figure, [notes])
    style.title(figure, "Anisotropy over depth, and the bell by two definitions")
    return figure


if __name__ == "__main__":
    if len(sys.argv) > 1:
        new, old = read(pathlib.Path(sys.argv[1])), pd.read_csv(TABLE)
        joined_files.write_csv(pd.concat([old[~old.model.isin(new.model)], new]), TABLE)
    table = pd.concat([pd.read_csv(TABLE), ours()])
    bell = bells(table)
    joined_files.write_csv(bell, TABLE.with_name("bells.csv"))
    with style.context():
        draw(table, bell).savefig(FIGURES / "real_models.png", dpi=150)
    print(bell.round(3).to_string(index=False))
