"""Write analyses next to their tables: correlations of a run; runs joined and contrasted."""

import hashlib
import pathlib

import numpy as np
import pandas as pd

from anisoscope.analysis import correlations, loss_matched, primary, run_summaries
from anisoscope.analysis.contrasts import CONTRAST_COLUMNS, Change, contrast_conditions
from anisoscope.analysis.loss_matched import LOSS_MATCHED_COLUMNS
from anisoscope.results import joined_files
from anisoscope.training import log
from anisoscope.utils.files import read_json, write_json

Folders = dict[str, pathlib.Path]  # folders of runs, by name
RUNS_CSV, TANGENTS_CSV, LOSS_MATCHED_CSV = "runs.csv", "tangents.csv", "contrasts_loss_matched.csv"
TABLE_OF = {RUNS_CSV: "results.nc", TANGENTS_CSV: "tangents.nc"}
STAGE_OF = {RUNS_CSV: "measure", TANGENTS_CSV: "tangents"}
# {table: {run: sha256 of its TABLE_OF, for RUNS_CSV of its score too, when the table was written}}
DIGESTS = "digests.json"
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

    These are runs.nc, runs.csv and layers.csv; contrasts.csv and contrasts_loss_matched.csv if
    settings differ; primary.csv if contrasts are prespecified.
    """
    tables = {run: joined_files.read_table(path / "results.nc") for run, path in folders.items()}
    joined = run_summaries.join_runs(tables, {run: bits(path) for run, path in folders.items()})
    joined, unfinished = run_summaries.without_unfinished(joined, tables)
    if unfinished:
        names = ", ".join(unfinished)
        print(f"not in contrasts, since they are not measured to their last step: {names}")
    done = {name: table for name, table in tables.items() if name not in unfinished}
    matched = loss_matched.contrast_at_equal_gain(joined, done)
    frames = {
        "runs": run_summaries.run_rows(tables, joined, unfinished),
        "layers": run_summaries.layers(tables, joined),
        "contrasts": primary.with_roles(contrast_conditions(joined), named, joined, "last"),
        "contrasts_loss_matched": primary.with_roles(matched, named, joined, "matched"),
        "primary": primary.primary_table(named, joined, matched),
    }
    forget_digests(to, RUNS_CSV)
    joined_files.write_table(joined, to / "runs.nc")
    paths = [to / "runs.nc"]
    for name, frame in frames.items():
        path = to / f"{name}.csv"
        if frame.empty:
            path.unlink(missing_ok=True)  # from an earlier version of the experiment
        else:
            joined_files.write_csv(frame, path)
            paths.append(path)
    record_digests(to, RUNS_CSV, folders)
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
    forget_digests(to, TANGENTS_CSV)
    joined_files.write_csv(pd.concat(frames, ignore_index=True)[order], to / TANGENTS_CSV)
    record_digests(to, TANGENTS_CSV, folders)
    return to / TANGENTS_CSV


def record_digests(to: pathlib.Path, table: str, folders: Folders) -> None:
    """Record the runs' tables that `table` in folder `to` was made from, once it is written."""
    write_json(to / DIGESTS, _read_digests(to) | {table: _digests(table, folders)})


def forget_digests(to: pathlib.Path, table: str) -> None:
    """Remove the record of a table that is about to be written."""
    recorded = _read_digests(to)
    if recorded.pop(table, None):
        write_json(to / DIGESTS, recorded)


def why_outdated(folder: pathlib.Path, table: str, folders: Folders) -> str:
    """Say that `table` was made from other tables of its runs than today's; '' if it was not.

    Without the table, or without the runs' tables, nothing can be said.
    """
    current = _digests(table, folders)
    if not current or not (folder / table).exists() or _read_digests(folder).get(table) == current:
        return ""
    why = "tables of its runs have changed since, or it has no record of them"
    return f"{folder / table} is outdated: {why}; run --stages={STAGE_OF[table]} again"


def _read_digests(folder: pathlib.Path) -> dict[str, dict[str, str]]:
    path = folder / DIGESTS
    return read_json(path, "delete it, and repeat the command") if path.exists() else {}


def _digests(table: str, folders: Folders) -> dict[str, str]:
    names = [TABLE_OF[table], *[log.SCORE_NAME] * (table == RUNS_CSV)]
    found = {}
    for run, folder in folders.items():
        paths = [folder / name for name in names]
        if paths[0].exists():
            content = b"".join(path.read_bytes() for path in paths if path.exists())
            found[run] = hashlib.sha256(content).hexdigest()
    return found


def read_runs(folder: pathlib.Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read runs.csv and contrasts.csv; the latter without rows if absent."""
    rows = joined_files.read_csv(folder / RUNS_CSV, "run", "condition")
    return rows, read_contrasts(folder, "contrasts.csv")


def read_contrasts(folder: pathlib.Path, name: str) -> pd.DataFrame:
    """Read a table of contrasts; no rows if it is absent."""
    if (path := folder / name).exists():
        return joined_files.read_csv(path, *CONTRAST_COLUMNS, "without")
    empty = pd.DataFrame(
        columns=[*CONTRAST_COLUMNS, *Change._fields, *LOSS_MATCHED_COLUMNS, primary.ROLE]
    )
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
