"""Compare all layers of two decoders by CKA, beside the null of permuted windows.

    .venv/bin/python -m findings.scripts.calibrated_layers RUNS    # those of findings/claims/phases.py
    .venv/bin/python -m findings.scripts.calibrated_layers         # draws the tables that are there

It writes findings/tables/similarity/calibrated_layers.csv and calibrated_best.csv and draws
findings/figures/calibrated_layers.png. Algorithms 1 and 2 of Gröger, Wen and Brbić 2026 (arXiv
2602.14486), linear CKA of 1,024 points of 32 windows, 200 permutations of whole windows, which are
the same for all pairs of layers. The best pair is calibrated by the largest value of each
permutation, so that choosing it counts.
"""

import math
import pathlib
import sys
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import anisoscope
from anisoscope.plot import style
from anisoscope.results import joined_files
from findings.scripts.shared_tables import RESULTS, save_figure

FOLDER = RESULTS / "similarity"
PERMUTATIONS, LEVEL = 200, 0.05  # as in the paper
WINDOWS, CONTEXT, EVERY = 32, 128, 4  # windows, their length, and one position of so many
UNTRAINED = "two seeds, untrained"
PAIRS = {  # run and step, twice; texts are the same at the same places
    UNTRAINED: (("many_natural_0", 0), ("many_natural_1", 0)),
    "two seeds, step 512": (("many_natural_0", 512), ("many_natural_1", 512)),
    "100 and 27 characters, step 512": (("many_natural_0", 512), ("few_natural_0", 512)),
}
PANELS = {"value": "CKA", "null_mean": "mean of the null", "score": "calibrated"}
NOTE = (
    "Linear CKA of the residual stream, 0 the embedding. Decoders of 0.2 million parameters, 1,024 points in 32 "
    "windows of the validation text. Null: 200 permutations of whole windows. Framed: the best pair; beside it the "
    "score that is left when each permutation may choose its best pair too."
)
TITLE = (
    "Chance takes at most {:.1%} from the best pair of layers, but untrained models reach {:.2f}"
)
Clouds = list[np.ndarray]  # (P, D) of each layer, window after window


def read_layers(folder: pathlib.Path, step: int) -> Clouds:
    run = anisoscope.open_run(folder)
    tokens_WT = run.corpus.valid[: WINDOWS * CONTEXT].reshape(WINDOWS, CONTEXT)
    resid_LWTD = np.asarray(run.vectors(run.params(step), tokens_WT))[:, :, ::EVERY]
    return [layer_WTD.reshape(-1, layer_WTD.shape[-1]) for layer_WTD in resid_LWTD]


def normalize(cloud_PD: np.ndarray) -> np.ndarray:
    """Center a cloud, and scale it so that CKA is the squared norm of a product."""
    cloud_PD = cloud_PD - cloud_PD.mean(0)
    return cloud_PD / np.sqrt(np.linalg.norm(cloud_PD.T @ cloud_PD))


def compare_layers(x_L: Clouds, y_M: Clouds, orders_K: list[np.ndarray]) -> np.ndarray:
    """Return CKA of every layer of x with every one of y, its points in each order; (K, L, M)."""
    edges_L, edges_M = (np.cumsum([0, *[z.shape[1] for z in z_L]])[:-1] for z_L in (x_L, y_M))
    x_PD, y_PD = (np.hstack([normalize(z) for z in z_L]) for z_L in (x_L, y_M))
    squares_K = (np.square(x_PD.T @ y_PD[order_P]) for order_P in orders_K)
    parts_K = (np.add.reduceat(square, edges_L) for square in squares_K)
    return np.array([np.add.reduceat(part, edges_M, axis=1) for part in parts_K])


def calibrate_layers(
    x_L: Clouds, y_M: Clouds, together: int, permutations: int = PERMUTATIONS, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return CKA of all pairs of layers, (L, M), and under each permutation, (K, L, M)."""
    places_WT = np.arange(len(x_L[0])).reshape(-1, together)
    generator = np.random.default_rng(seed)
    orders_K = [generator.permutation(places_WT).ravel() for _ in range(permutations)]
    values_KLM = compare_layers(x_L, y_M, [places_WT.ravel(), *orders_K])
    return values_KLM[0], values_KLM[1:]


def describe(value: float, null_K: np.ndarray) -> dict[str, float]:
    """Return the value, its score and p, and the mean of the null.

    score: max(0, (s - t) / (1 - t)), t the ceil((1 - LEVEL) (K + 1))-th smallest of the value s and
    its K permutations. p: (1 + number of the K that reach s) / (K + 1).
    """
    rank = math.ceil((1 - LEVEL) * (len(null_K) + 1) - 1e-9)
    threshold = np.sort([*null_K, value])[rank - 1]
    score = max(0.0, (value - threshold) / (1 - threshold))
    p = (1 + (null_K >= value).sum()) / (len(null_K) + 1)
    return {"value": float(value), "score": score, "p": p, "null_mean": null_K.mean()}


def draw(layers: pd.DataFrame, best: pd.DataFrame) -> Figure:
    """Draw a row for each pair of models: raw, null model and calibrated, layer by layer."""
    figure = style.new_figure(style.PAGE_WIDTH, 6.2)
    axes = figure.subplots(len(PAIRS), len(PANELS), sharex=True, sharey=True)
    for row, pair in zip(axes, PAIRS, strict=True):
        own, chosen = layers[layers.pair == pair], best[best.pair == pair].iloc[0]
        for ax, (column, title) in zip(row, PANELS.items(), strict=True):
            values = own.pivot(index="layer", columns="other", values=column).to_numpy()
            ax.imshow(values, vmin=0, vmax=1, cmap="Blues", origin="lower")
            for (y, x), value in np.ndenumerate(values):
                best_pair = (y, x) == (chosen.layer, chosen.other)
                look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 6.5}
                look |= {"color": "white" if value > 0.6 else "0.2"}
                look |= {"bbox": {"fill": False, "edgecolor": look["color"]}} if best_pair else {}
                ax.text(x, y, f"{value:.2f}", **look)
            ax.grid(visible=False)
            ax.set_title(title if column != "score" else f"{title}; best pair {chosen.score:.2f}")
        row[0].set_ylabel(f"{style.wrap(pair, 1.7, 8)}\nlayer of the first")
    for ax in axes[-1]:
        ax.set_xlabel("layer of the second")
    return figure


def measure(root: str) -> None:
    """Write both tables."""
    rows, best = [], []
    for name, ends in PAIRS.items():
        x_L, y_M = (read_layers(pathlib.Path(root, run), step) for run, step in ends)
        values_LM, null_KLM = calibrate_layers(x_L, y_M, CONTEXT // EVERY)
        for place, value in np.ndenumerate(values_LM):
            about = {"pair": name, "layer": place[0], "other": place[1]}
            rows.append(about | describe(value, null_KLM[:, *place]))
        place = np.unravel_index(values_LM.argmax(), values_LM.shape)
        about = {"pair": name, "layer": place[0], "other": place[1]}
        best.append(about | describe(values_LM.max(), null_KLM.max((1, 2))))
    layers, chosen = pd.DataFrame(rows), pd.DataFrame(best)
    joined_files.write_csv(layers, FOLDER / "calibrated_layers.csv")
    joined_files.write_csv(chosen, FOLDER / "calibrated_best.csv")


def main(*roots: str) -> None:
    for root in roots:
        measure(root)
    layers, chosen = (pd.read_csv(FOLDER / f"calibrated_{x}.csv") for x in ("layers", "best"))
    lost = (1 - chosen.score / chosen.value).max()
    title = TITLE.format(lost, chosen[chosen.pair == UNTRAINED].value.max())
    with style.context():
        save_figure(draw(layers, chosen), "calibrated_layers", title.replace("%", " %"), NOTE)
    print(chosen.round(4).to_string(index=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
