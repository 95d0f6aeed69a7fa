"""What is read from tables, written beside them: correlations of a run; runs joined, contrasted,
and split.
"""

import hashlib
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from anisoscope.analysis import correlations, loss_matched, primary, run_summaries
from anisoscope.analysis.components import components
from anisoscope.analysis.contrasts import COLUMNS, Change, contrasts
from anisoscope.results import joined_files
from anisoscope.training import finished, log
from anisoscope.utils.errors import RunError
from anisoscope.utils.files import read_json, remove, write_json

Named = dict[str, dict[str, Any]]  # the contrasts that an experiment calls primary
DIGESTS = "loss_matched.json"
BY_LEVEL = "contrasts_by_level.csv"
TANGENTS = "tangents.csv"
OF_TANGENTS = (
    "energy",
    "variance",
    "excess",
    "control_energy",
    "isoscore_gain",
    "isoscore_gain_normal",
)
# columns, from the least frequent quarter to the most
ENRICHMENT = tuple(f"enrichment_{i}" for i in range(1, 5))


def write_run(name: str, folder: pathlib.Path) -> None:
    """correlations.csv of one run."""
    correlations.write(
        {name: joined_files.read_table(folder / "results.nc")}, folder / "correlations.csv"
    )


def write(folders: dict[str, pathlib.Path], to: pathlib.Path, named: Named) -> list[pathlib.Path]:
    """runs.nc, runs.csv and layers.csv; contrasts.csv where settings differ; components.csv where
    seeds are crossed.

    And primary.csv of the contrasts that are prespecified, some of which may be loss-matched.
    """
    tables = {
        name: joined_files.read_table(folder / "results.nc") for name, folder in folders.items()
    }
    joined = run_summaries.join(tables, {name: bits(folder) for name, folder in folders.items()})
    if unfinished := run_summaries.unfinished(tables):
        joined = run_summaries.without_shapes(joined, unfinished)
        print(
            f"left out of contrasts, as they are not measured to their last step: {', '.join(unfinished)}"
        )
    matched = read_loss_matched(to, folders)
    joined_files.write(joined, to / "runs.nc")
    paths = [to / "runs.nc"]
    for name, frame in (
        ("runs", run_summaries.rows(tables, joined)),
        ("layers", run_summaries.layers(tables, joined)),
        ("contrasts", primary.with_roles(contrasts(joined), named, joined, "last")),
        ("components", components(joined)),
        ("primary", primary.table(named, joined, matched)),
    ):
        path = to / f"{name}.csv"
        if frame.empty:
            remove(path)  # of an experiment that had other runs
        else:
            joined_files.write_csv(frame, path)
            paths.append(path)
    return paths


def write_tangents(folders: dict[str, pathlib.Path], to: pathlib.Path) -> pathlib.Path:
    """tangents.csv: means by run, step and layer, of the early semi-NMF subspace of the largest
    rank, raw gradients.
    """
    frames = []
    for name, folder in folders.items():
        table = joined_files.read_table(folder / "tangents.nc").isel(rank=-1).sel(statistic="mean")
        table = table.sel(fit="early", kind="semi-NMF", rows="raw")
        quarters = {
            column: table["enrichment_in_bin"].isel(bin=i, drop=True)
            for i, column in enumerate(ENRICHMENT)
        }
        columns = (
            xr.Dataset({one: table[one] for one in OF_TANGENTS})
            .assign(quarters)
            .reset_coords(drop=True)
        )
        frames.append(columns.to_dataframe().reset_index().assign(run=name))
    frame = pd.concat(frames, ignore_index=True)
    joined_files.write_csv(
        frame[["run", "step", "layer", *OF_TANGENTS, *ENRICHMENT]], to / TANGENTS
    )
    return to / TANGENTS


def digests(folders: dict[str, pathlib.Path]) -> dict[str, str]:
    """Of what is read of each run."""
    return {
        name: hashlib.sha256((folder / "results.nc").read_bytes()).hexdigest()
        for name, folder in folders.items()
    }


def read_digests(folder: pathlib.Path) -> dict[str, str]:
    """Those of the tables that loss-matched contrasts were read from; none where there are none."""
    path = folder / DIGESTS
    return read_json(path, "run --stages=matched again") if path.exists() else {}


def write_loss_matched(
    planned: list[loss_matched.Matched],
    tables: dict[tuple[str, float], xr.Dataset],
    folders: dict[str, pathlib.Path],
    to: pathlib.Path,
    runs: xr.Dataset,
    named: Named,
) -> list[pathlib.Path]:
    """contrasts_loss_matched.csv, loss_matched.csv with a row per contrast and run, and of which
    tables these are.

    `tables` holds the table of each run up to where it has a level: {(run, level): table}; `runs`
    joins all of them.
    """
    changes, each = (
        pd.concat(frames, ignore_index=True)
        for frames in zip(*_contrasted(planned, tables), strict=True)
    )
    remove(to / DIGESTS)  # it vouches for what is written before it
    paths = [to / "contrasts_loss_matched.csv", to / "loss_matched.csv"]
    joined_files.write_csv(primary.with_roles(changes, named, runs, "matched"), paths[0])
    joined_files.write_csv(each, paths[1])
    write_json(to / DIGESTS, digests(folders))
    return paths


def _contrasted(
    planned: list[loss_matched.Matched], tables: dict[tuple[str, float], xr.Dataset]
) -> list[tuple[pd.DataFrame, pd.DataFrame]]:
    return [
        loss_matched.contrast(one, {name: tables[name, one.level] for name in one.runs})
        for one in planned
    ]


def write_by_level(
    planned: list[loss_matched.Matched],
    tables: dict[tuple[str, float], xr.Dataset],
    to: pathlib.Path,
) -> pathlib.Path:
    """contrasts_by_level.csv: contrasts at several shares of the gain that all their runs reach."""
    contrasted = zip(planned, _contrasted(planned, tables), strict=True)
    frames = [changes.assign(share=one.share) for one, (changes, _) in contrasted]
    joined_files.write_csv(pd.concat(frames, ignore_index=True), to / BY_LEVEL)
    return to / BY_LEVEL


def read_by_level(folder: pathlib.Path, folders: dict[str, pathlib.Path]) -> pd.DataFrame:
    """contrasts_by_level.csv; without rows where there is none, or where it is of other tables than
    these folders'.
    """
    columns = [*COLUMNS, *Change._fields, *loss_matched.FURTHER, loss_matched.SHARE]
    if not (folder / BY_LEVEL).exists() or (folders and digests(folders) != read_digests(folder)):
        return pd.DataFrame(columns=columns)
    return _read(folder / BY_LEVEL, columns, ("without",))


def _read(path: pathlib.Path, columns: Sequence[str], texts: tuple[str, ...]) -> pd.DataFrame:
    """Of a table of contrasts: text may be empty, and an empty number is missing."""
    kinds = dict.fromkeys((*COLUMNS, *texts), str)
    missing = {name: [""] for name in columns if name not in kinds}
    return pd.read_csv(path, dtype=kinds, keep_default_na=False, na_values=missing)


def read_loss_matched(folder: pathlib.Path, folders: dict[str, pathlib.Path]) -> pd.DataFrame:
    """contrasts_loss_matched.csv as `write_loss_matched` left it; without rows where there is none,
    or of others.
    """
    path = folder / "contrasts_loss_matched.csv"
    matched = _read_changes(
        path, (*COLUMNS, *Change._fields, *loss_matched.FURTHER), ("without",), "matched"
    )
    if matched.empty or digests(folders) == read_digests(folder):
        return matched
    print("loss-matched contrasts are of other tables than now: --stages=matched reads them again")
    return matched.iloc[:0]


def read_runs(folder: pathlib.Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """runs.csv and contrasts.csv, as `write` left them; the second without rows where there is
    none.

    Only an empty field is a missing number: "None" is a setting, and a variant may be named "nan".
    """
    texts = dict.fromkeys(("run", "condition", *COLUMNS), str)
    path = folder / "runs.csv"
    rows = pd.read_csv(path, dtype=texts, keep_default_na=False, na_values=[""])
    return rows, _read_changes(folder / "contrasts.csv", (*COLUMNS, *Change._fields), (), "measure")


def _read_changes(
    path: pathlib.Path, columns: tuple[str, ...], texts: tuple[str, ...], stage: str
) -> pd.DataFrame:
    if not path.exists():
        empty = pd.DataFrame(columns=[*columns, primary.ROLE])
        return empty.astype(dict.fromkeys(Change._fields, float))
    changes = _read(path, columns, texts)
    if list(changes) != [*columns, primary.ROLE]:
        raise _other_columns(path, stage)
    return changes


def read_primary(folder: pathlib.Path) -> pd.DataFrame:
    """primary.csv, as `write` left it; without rows where nothing was prespecified."""
    path = folder / "primary.csv"
    if not path.exists():
        return pd.DataFrame(columns=list(primary.READ))
    texts = dict.fromkeys(("name", "before", "after"), str)
    frame = pd.read_csv(path, keep_default_na=False, na_values=[""], dtype=texts)
    if list(frame) != list(primary.READ):
        raise _other_columns(path)
    return frame


def _other_columns(path: pathlib.Path, stage: str = "measure") -> RunError:
    return RunError(
        f"{path} has other columns than are written now; --stages={stage} writes it again"
    )


def bits(folder: pathlib.Path) -> dict[str, float]:
    """Scores of a finished run on the test split, and of its last validation, by the names of
    `run_summaries.BITS`.

    Bits per character are NaN where there is no score; what a score of old does not tell is left
    out.
    """
    lines = log.read_log(folder) if (folder / "train.jsonl").exists() else []
    validations = [line for line in lines if line["kind"] == "valid"]
    values = {}
    for split, score in (
        ("test", finished.read_score(folder)),
        ("valid", validations[-1] if validations else {}),
    ):
        told = {"bits": score.get("bits_per_character", np.nan)} | score
        values |= {
            f"{split}_{name}": value
            for name, value in told.items()
            if f"{split}_{name}" in run_summaries.BITS
        }
    return values
