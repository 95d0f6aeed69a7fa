"""Write analyses next to their tables: correlations of a run; runs joined and contrasted."""

import functools
import hashlib
import pathlib

import numpy as np
import pandas as pd

from anisoscope.analysis import correlations, loss_matched, primary, run_summaries
from anisoscope.analysis.contrasts import CONTRAST_COLUMNS, Change, contrast_conditions
from anisoscope.analysis.loss_matched import LOSS_MATCHED_COLUMNS
from anisoscope.results import digests, joined_files
from anisoscope.training import log
from anisoscope.utils import checksums

Folders = dict[str, pathlib.Path]  # folders of runs, by name
RUNS_CSV, TANGENTS_CSV, LOSS_MATCHED_CSV = "runs.csv", "tangents.csv", "contrasts_loss_matched.csv"
TABLE_OF = {RUNS_CSV: "results.nc", TANGENTS_CSV: "tangents.nc"}
STAGE_OF = {RUNS_CSV: "measure", TANGENTS_CSV: "tangents"}
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
    """Write correlations.csv of a run, unless it is up to date."""
    source, path = folder / "results.nc", folder / "correlations.csv"

    def write() -> list[pathlib.Path]:
        correlations.write_correlations({name: joined_files.read_table(source)}, path)
        return [path]

    made_from = {source.name: checksums.digest(source)}
    digests.write_outdated(folder, path.name, made_from, name, write)


def write_experiment(
    folders: Folders, to: pathlib.Path, named: primary.Named
) -> list[pathlib.Path]:
    """Write the tables over all runs that are not empty, unless they are up to date; return paths.

    These are runs.nc, runs.csv and layers.csv; contrasts.csv and contrasts_loss_matched.csv if
    settings differ; primary.csv if contrasts are prespecified.
    """
    settings, write = [[*folders], named], functools.partial(_write_experiment, folders, to, named)
    paths = digests.write_outdated(to, RUNS_CSV, _digest_runs(RUNS_CSV, folders), settings, write)
    rows = joined_files.read_csv(to / RUNS_CSV, "run")
    if unfinished := [*rows.run[rows.unfinished]]:
        names = ", ".join(unfinished)
        print(f"not in contrasts, since they are not measured to their last step: {names}")
    return paths


def _write_experiment(
    folders: Folders, to: pathlib.Path, named: primary.Named
) -> list[pathlib.Path]:
    tables = {run: joined_files.read_table(path / "results.nc") for run, path in folders.items()}
    joined = run_summaries.join_runs(tables, {run: bits(path) for run, path in folders.items()})
    joined, unfinished = run_summaries.without_unfinished(joined, tables)
    done = {name: table for name, table in tables.items() if name not in unfinished}
    matched = loss_matched.contrast_at_equal_gain(joined, done)
    frames = {
        "runs": run_summaries.run_rows(tables, joined, unfinished),
        "layers": run_summaries.layers(tables, joined),
        "contrasts": primary.with_roles(contrast_conditions(joined), named, joined, "last"),
        "contrasts_loss_matched": primary.with_roles(matched, named, joined, "matched"),
        "primary": primary.primary_table(named, joined, matched),
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
    """Write tangents.csv, unless it is up to date; return its path.

    It holds the early semi-NMF subspace of the largest rank by run, step, layer.
    """
    made_from = _digest_runs(TANGENTS_CSV, folders)
    write = functools.partial(_write_tangents, folders, to / TANGENTS_CSV)
    (path,) = digests.write_outdated(to, TANGENTS_CSV, made_from, [*folders], write)
    return path


def _write_tangents(folders: Folders, path: pathlib.Path) -> list[pathlib.Path]:
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
    joined_files.write_csv(pd.concat(frames, ignore_index=True)[order], path)
    return [path]


def why_outdated(folder: pathlib.Path, table: str, folders: Folders) -> str:
    """Say that `table` was made from other tables of its runs than today's; '' if it was not.

    Without the table, or without the runs' tables, nothing can be said.
    """
    current = _digest_runs(table, folders)
    made_from = digests.read_made_from(folder, table)
    if not current or not (folder / table).exists() or made_from == current:
        return ""
    why = "tables of its runs have changed since, or it has no record of them"
    return f"{folder / table} is outdated: {why}; run --stages={STAGE_OF[table]} again"


def _digest_runs(table: str, folders: Folders) -> digests.Digests:
    """Digest what `table` reads of each run; runs without their table are left out."""
    names = [TABLE_OF[table], *[log.SCORE_NAME, log.LOG_NAME] * (table == RUNS_CSV)]
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
