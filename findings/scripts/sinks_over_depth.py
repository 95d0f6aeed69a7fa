"""Draw sinks, the longest vector and the entropy of the spectrum over one depth axis.

    .venv/bin/python -m findings.scripts.sinks_over_depth

It reads findings/tables/real_models, writes sinks_over_depth.csv there and draws
findings/figures/sinks_over_depth.png. Queipo-de-Llano et al. 2025 (arXiv 2510.06477, second-hand):
massive norms of the first token, sinks and a valley of entropy appear at the same layers. Written
before it was run: in each decoder Spearman's rho over layers is at most -LEAST between the largest
norm over the median and the entropy, and at least LEAST between that norm in the input of a block
and the mean weight of its heads on the first token. Entropy is ln of the participation ratio, the
Rényi entropy of order 2 of the eigenvalues' shares.
"""

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure
from scipy import stats

from anisoscope.plot import panel_axes, style
from anisoscope.results import joined_files
from findings.scripts.shared_tables import COLORS, MODELS, NAMES, save_figure

LEAST = 0.5
ROWS = {
    "weight": "attention on the\nfirst token",
    "norm_ratio": "largest norm\nover the median",
    "entropy": "entropy of the\nspectrum (nats)",
}
NOTE = (
    "Residual stream of 8 windows of 256 tokens of enwik8 with all positions; the attention of a block, mean over "
    "heads, stands at the layer that the block reads. Entropy: logarithm of the participation ratio."
)


def read_depth(name: str) -> pd.DataFrame:
    """Return a row for each layer of a model: norm ratio, entropy, and attention of the next block."""
    layers = pd.read_csv(MODELS / "layers.csv").query("model == @name and positions == 'all'")
    heads = pd.read_csv(MODELS / "heads.csv").query("model == @name")
    with xr.open_dataset(MODELS / f"{name}.nc") as table:
        ratio = table["participation_ratio"].sel(positions="all", statistic="mean").to_series()
    frame = layers.set_index("layer")[["depth", "norm_ratio"]].astype(float)
    frame = frame.assign(entropy=np.log(ratio), weight=heads.groupby("block")["weight"].mean())
    return frame.reset_index().assign(model=name)


def correlate(own: pd.DataFrame) -> dict[str, float]:
    known = own.dropna(subset=["weight"])
    return {
        "norm_and_entropy": stats.spearmanr(own["norm_ratio"], own["entropy"]).statistic,
        "norm_and_attention": stats.spearmanr(known["norm_ratio"], known["weight"]).statistic,
        "layers": len(own),
    }


def draw(frames: dict[str, pd.DataFrame]) -> Figure:
    """Draw a column for each model, and a row for each quantity."""
    figure = style.new_figure(style.PAGE_WIDTH, 4.2)
    axes = figure.subplots(len(ROWS), len(frames), sharex=True, sharey="row")
    for column, (name, own) in zip(axes.T, frames.items(), strict=True):
        for ax, quantity in zip(column, ROWS, strict=True):
            ax.plot(own["depth"], own[quantity], ".-", color=COLORS[name])
        column[0].set_title(NAMES[name])
        column[-1].set_xlabel("relative depth")
    for row, label in zip(axes, ROWS.values(), strict=True):
        row[0].set_ylabel(label)
    axes[1, 0].set_yscale("log")
    panel_axes.logarithmic(axes[1, 0].yaxis)
    return figure


def main() -> None:
    names = set(pd.read_csv(MODELS / "heads.csv")["model"])
    names = [name for name in NAMES if name in names and (MODELS / f"{name}.nc").exists()]
    frames = {name: read_depth(name) for name in names}
    found = pd.DataFrame([{"model": name} | correlate(own) for name, own in frames.items()])
    joined_files.write_csv(found, MODELS / "sinks_over_depth.csv")
    with style.context():
        title = "In decoders, where one vector grows long, the entropy of the spectrum falls"
        save_figure(draw(frames), "sinks_over_depth", title, NOTE)
    print(found.round(3).to_string(index=False))


if __name__ == "__main__":
    main()
