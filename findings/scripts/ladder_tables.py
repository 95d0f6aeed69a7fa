"""Join the ladder's sizes that are done: tables in findings/tables/scale_ladder.

    .venv/bin/python -m findings.scripts.ladder_tables RUNS

RUNS holds a folder for each size, as 220k or 220k_rotary, of `experiments/scale_ladder.py:220k` and
`:220k,rotary`, trained and measured. runs.csv has a row for each run, layers.csv for each layer of
its last checkpoint, steps.csv for each checkpoint; runs that are still trained are left out. Rows
of folders that RUNS lacks are kept. The dimension, and that of a Gaussian cloud of the same
covariance, are TwoNN's.
"""

import pathlib
import sys

import pandas as pd
import xarray as xr

from anisoscope.experiments.scale_ladder import SHAPES
from anisoscope.results import joined_files
from findings.scripts.shared_tables import RESULTS, read_shape

SHOWN = [
    *("test_bits", "test_gain_over_unigram", "growth", "bell_blocks", "bell_with_embedding"),
    *("std_over_layers", "expansion", "compression", "expansion_microscope"),
    *("compression_microscope", "drift_growth", "cosine_growth", "entropy_decrease"),
    *("largest_norm_ratio", "largest_attention_first_token", "sink_head_share"),
]
WITHOUT = ["growth", "bell_blocks", "bell_with_embedding", "std_over_layers", "largest_norm_ratio"]
STEPS = {  # column of steps.csv: quantity, mean over the outputs of blocks
    "anisotropy": "anisotropy_over_blocks",
    "mean_cosine": "mean_cosine_over_blocks",
    "relative_drift": "relative_drift_over_blocks",
    "attention_entropy": "attention_entropy_over_blocks",
    "dimension": "twonn_over_blocks",
}
LAST = ["dimension", "dimension_null", "relative_drift"]  # of runs.csv too
PROFILES = ("bell_blocks", "bell_with_embedding", "std_over_layers")


def main(root: pathlib.Path) -> None:
    frames: dict[str, list[pd.DataFrame]] = {"runs": [], "layers": [], "steps": []}
    for size, (depth, width) in SHAPES.items():
        for encoding, suffix in {"learned": "", "rotary": "_rotary"}.items():
            folder = root / f"{size}{suffix}"
            if not (folder / "runs.csv").exists():
                continue
            labels = {"size": size, "position_encoding": encoding, "layers": depth, "width": width}
            table = pd.read_csv(folder / "runs.csv")
            columns = [*SHOWN, *(f"{name}_without_first_token" for name in WITHOUT)]
            rows = table.dropna(subset="test_bits")[["run", "condition", "train.seed", *columns]]
            pairs = zip(rows.run, rows.condition, strict=True)
            steps = [read_steps(folder, run, kind) for run, kind in pairs]
            last = [own[LAST].iloc[-1] for own in steps]
            rows = rows.join(pd.DataFrame(last, index=rows.index))
            frames["runs"].append(rows.assign(**labels))
            layers = pd.read_csv(folder / "layers.csv").query("run in @rows.run")
            frames["layers"].append(layers.assign(**labels))
            frames["steps"].append(pd.concat(steps).assign(size=size, position_encoding=encoding))
    for name, parts in frames.items():
        keep_and_write(pd.concat(parts), RESULTS / "scale_ladder" / f"{name}.csv")
    print(pd.concat(frames["runs"]).drop(columns="run").round(3).T.to_string())


def keep_and_write(new: pd.DataFrame, path: pathlib.Path) -> None:
    """Write rows into a table, in place of those of the same size and position encoding."""
    rows = [new]
    if path.exists():
        old, folder = pd.read_csv(path), ["size", "position_encoding"]
        done = pd.MultiIndex.from_frame(new[folder])
        rows.insert(0, old[~pd.MultiIndex.from_frame(old[folder]).isin(done)])
    joined_files.write_csv(pd.concat(rows), path)


def read_steps(folder: pathlib.Path, run: str, condition: str) -> pd.DataFrame:
    """Return bits, quantities and shapes of each checkpoint of a run."""
    with xr.open_dataset(folder / run / "results.nc") as table:
        own = table.sel(positions="all", statistic="mean").load()
    columns = {"run": run, "condition": condition, "step": own.step.values}
    columns |= {"validation_bits": own.validation_bits.values}
    columns |= {"gain_over_unigram": own.validation_gain_over_unigram.values}
    columns |= {name: own[quantity].values for name, quantity in STEPS.items()}
    excess = own.twonn_over_blocks_excess.sel(null="gaussian").values
    columns |= {"dimension_null": columns["dimension"] - excess}
    columns |= {"largest_norm_ratio": own.norm_ratio.max("layer").values}
    profiles = own.anisotropy.transpose("step", "layer").values
    columns |= {name: [read_shape(name, row) for row in profiles] for name in PROFILES}
    return pd.DataFrame(columns)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
