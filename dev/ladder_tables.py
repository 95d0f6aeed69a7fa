"""Join the ladder's sizes that are done: runs.csv and layers.csv in docs/results/scale_ladder.

    .venv/bin/python -m dev.ladder_tables RUNS

RUNS holds a folder for each size, as 220k or 220k_rotary, of `experiments/scale_ladder.py:220k` and
`:220k,rotary`, trained and measured. The dimension, and that of a Gaussian cloud of the same
covariance, are TwoNN's of the last checkpoint.
"""

import pathlib
import sys

import pandas as pd
import xarray as xr

from anisoscope.experiments.scale_ladder import SHAPES
from anisoscope.results import joined_files
from dev.shared_tables import RESULTS

SHOWN = [
    *("test_bits", "test_gain_over_unigram", "growth", "bell_blocks", "bell_with_embedding"),
    *("std_over_layers", "expansion", "compression", "expansion_microscope"),
    *("compression_microscope", "drift_growth", "cosine_growth", "entropy_decrease"),
    *("largest_norm_ratio", "largest_attention_first_token", "sink_head_share"),
]
WITHOUT = ["growth", "bell_blocks", "bell_with_embedding", "std_over_layers", "largest_norm_ratio"]


def main(root: pathlib.Path) -> None:
    runs, layers = [], []
    for size, (depth, width) in SHAPES.items():
        for encoding, suffix in {"learned": "", "rotary": "_rotary"}.items():
            folder = root / f"{size}{suffix}"
            if not (folder / "runs.csv").exists():
                continue
            labels = {"size": size, "position_encoding": encoding, "layers": depth, "width": width}
            table = pd.read_csv(folder / "runs.csv")
            columns = [*SHOWN, *(f"{name}_without_first_token" for name in WITHOUT)]
            rows = table[["run", "condition", "train.seed", *columns]]
            last = pd.DataFrame([read_last(folder / run) for run in rows.run])
            runs.append(rows.join(last).assign(**labels))
            layers.append(pd.read_csv(folder / "layers.csv").assign(**labels))
    for name, frames in {"runs": runs, "layers": layers}.items():
        joined_files.write_csv(pd.concat(frames), RESULTS / "scale_ladder" / f"{name}.csv")
    print(pd.concat(runs).drop(columns="run").round(3).T.to_string())


def read_last(folder: pathlib.Path) -> dict[str, float]:
    """Return the dimension of the last checkpoint, its null, and drift beside the norm."""
    with xr.open_dataset(folder / "results.nc") as table:
        last = table.isel(step=-1).sel(positions="all", statistic="mean").load()
    dimension = float(last.twonn_over_blocks)
    excess = float(last.twonn_over_blocks_excess.sel(null="gaussian"))
    ratio = float(last.drift_over_blocks / last.mean_norm_over_blocks)
    return {"dimension": dimension, "dimension_null": dimension - excess, "drift_share": ratio}


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
