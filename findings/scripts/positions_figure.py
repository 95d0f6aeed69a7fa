"""Draw anisotropy over training, by positions and optimizer.

    .venv/bin/python -m findings.scripts.positions_figure    # findings/figures/positions.png

It reads steps.csv of findings/tables/position_optimizer (findings/claims/positions_by_optimizer.py).
"""

import pandas as pd
from matplotlib.figure import Figure

from anisoscope.plot import panel_axes, style
from findings.claims.positions_by_optimizer import PRIMARY, TABLES
from findings.scripts.shared_tables import save_figure

PANELS = {"muon": "Muon", "adamw": "AdamW"}
POSITIONS = {"learned": "learned positions", "rotary": "rotary positions"}
TITLE = "Under Muon learned positions end twice as anisotropic; the gap opens after step 256"
NOTE = (
    "Decoders of 0.2 million parameters; means over 4 blocks, all positions. Thin: five seeds; thick: "
    "their mean."
)


def draw(steps: pd.DataFrame) -> Figure:
    figure = style.new_figure(style.PAGE_WIDTH, 2.6)
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    for ax, (optimizer, title) in zip(axes, PANELS.items(), strict=True):
        for (kind, words), color in zip(POSITIONS.items(), style.COLORS, strict=False):
            own = steps[steps.condition == f"{optimizer}_{kind}"]
            for _, run in own.groupby("seed"):
                ax.plot(run.step, run[PRIMARY], color=color, lw=0.5, alpha=0.6)
            mean = own.groupby("step")[PRIMARY].mean()
            ax.plot(mean.index, mean, color=color, label=words)
        panel_axes.step_axis(ax, int(steps["step"].max()))
        ax.set_title(title)
    axes[0].set_ylabel("anisotropy")
    style.legend(axes)
    return figure


def main() -> None:
    with style.context():
        save_figure(draw(pd.read_csv(TABLES / "steps.csv")), "positions", TITLE, NOTE)


if __name__ == "__main__":
    main()
