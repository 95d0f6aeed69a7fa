"""Write analyses next to their tables: correlations of a run; runs joined and contrasted."""

import hashlib
import pathlib

import numpy as np
import pandas as pd

from anisoscope.analysis import correlations, primary, run_summaries
from anisoscope.analysis.contrasts import COLUMNS, Change, contrast_conditions
from anisoscope.results import joined_files
from anisoscope.training import log
from anisoscope.utils.files import read_json

Folders = dict[str, pathlib.Path]  # folders of runs, by name
DIGESTS = "loss_matched.json"
LOSS_MATCHED_COLUMNS = ("level", "without")  # columns of loss-matched contrasts: bits; skipped runs
TANGENTS = "tangents.csv"
TANGENT_COLUMNS = (
    "energy",
    "variance",
    "excess",
    "control_energy",
    "isoscore_gain",
    "isoscore_gain_normal",
)
ENRICHMENT = tuple(f"enrichment_{i}" for i in range(1, 5))  # from the rarest quarter of characters


def write_run(name: str, folder: pathlib.Path) -> None:
    """Write correlations.csv of a run."""
    table = joined_files.read_table(folder / "results.nc")
    correlations.write_correlations({name: table}, folder / "correlations.csv")


def write_experiment(
    folders: Folders, to: pathlib.Path, named: primary.Named
) -> list[pathlib.Path]:
    """Write the tables over all runs that are not empty; return their paths.

    These are runs.nc, runs.csv and layers.csv; contrasts.csv if settings differ; primary.csv if
    contrasts are prespecified.
    """
    tables = {run: joined_files.read_table(path / "results.nc") for run, path in folders.items()}
    joined = run_summaries.join_runs(tables, {run: bits(path) for run, path in folders.items()})
    joined, unfinished = run_summaries.without_unfinished(joined, tables)
    if unfinished:
        names = ", ".join(unfinished)
        print(f"not in contrasts, since they are not measured to their last step: {names}")
    frames = {
        "runs": run_summaries.rows(tables, joined),
        "layers": run_summaries.layers(tables, joined),
        "contrasts": primary.with_roles(contrast_conditions(joined), named, joined, "last"),
        "primary": primary.primary_table(named, joined, read_loss_matched(to, folders)),
    }
    joined_files.write_table(joined, to / "runs.nc")
    paths = [to / "runs.nc"]
    for name, frame in frames.items():
        path = to / f"{name}.csv"
        if frame.empty:
            path.unlink(missing_ok=True)  # from an earlier version of the experiment
        else:
            joined_files.write_csv(frame, path)
            paths.append(path)
    return paths


def write_tangents(folders: Folders, to: pathlib.Path) -> pathlib.Path:
    """Write tangents.csv: the early semi-NMF subspace of the largest rank by run, step, layer."""
    frames = []
    for name, folder in folders.items():
        table = joined_files.read_table(folder / "tangents.nc").isel(rank=-1)
        table = table.sel(statistic="mean", fit="early", kind="semi-NMF", rows="raw")
        bins = {
            part: table["enrichment_in_bin"].isel(bin=i, drop=True)
            for i, part in enumerate(ENRICHMENT)
        }
        columns = table[list(TANGENT_COLUMNS)].assign(bins).reset_coords(drop=True)
        frames.append(columns.to_dataframe().reset_index().assign(run=name))
    order = ["run", "step", "layer", *TANGENT_COLUMNS, *ENRICHMENT]
    joined_files.write_csv(pd.concat(frames, ignore_index=True)[order], to / TANGENTS)
    return to / TANGENTS


def digests(folders: Folders) -> dict[str, str]:
    """Return the sha256 of each run's results.nc."""
    return {
        name: hashlib.sha256((folder / "results.nc").read_bytes()).hexdigest()
        for name, folder in folders.items()
    }


def read_loss_matched(folder: pathlib.Path, folders: Folders) -> pd.DataFrame:
    """Read contrasts_loss_matched.csv; no rows if it is absent or outdated."""
    frame = _read_contrasts(folder / "contrasts_loss_matched.csv")
    path = folder / DIGESTS
    read = read_json(path, "run --stages=matched again") if path.exists() else {}
    if frame.empty or not folders or digests(folders) == read:
        return frame
    print("loss-matched contrasts are outdated, since tables changed; run --stages=matched again")
    return frame.iloc[:0]


def read_runs(folder: pathlib.Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read runs.csv and contrasts.csv; the latter without rows if absent."""
    rows = joined_files.read_csv(folder / "runs.csv", "run", "condition")
    return rows, _read_contrasts(folder / "contrasts.csv")


def _read_contrasts(path: pathlib.Path) -> pd.DataFrame:
    """Read a table of contrasts; no rows if it is absent."""
    if path.exists():
        return joined_files.read_csv(path, *COLUMNS, "without")
    empty = pd.DataFrame(columns=[*COLUMNS, *Change._fields, *LOSS_MATCHED_COLUMNS, primary.ROLE])
    return empty.astype(dict.fromkeys(Change._fields, float))


def read_primary(folder: pathlib.Path) -> pd.DataFrame:
    """Read primary.csv; no rows if nothing was prespecified."""
    path = folder / "primary.csv"
    if not path.exists():
        return pd.DataFrame(columns=list(primary.READ))
    return joined_files.read_csv(path, "name", "before", "after")


def bits(folder: pathlib.Path) -> dict[str, float]:
    """Return a finished run's scores on the test split and at its last validation, by `BITS`.

    Bits per character are NaN without a score.
    """
    validations = [line for line in log.read_log(folder) if line["kind"] == "valid"]
    scores = {"test": log.read_score(folder), "valid": validations[-1] if validations else {}}
    values = {}
    for split, score in scores.items():
        score = {"bits": score.get("bits_per_character", np.nan)} | score
        values |= {f"{split}_{name}": value for name, value in score.items()}
    return {name: value for name, value in values.items() if name in run_summaries.BITS}
