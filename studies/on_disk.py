"""What is read from tables, written beside them: correlations of a run; runs joined, contrasted, and split."""

import pathlib

import numpy as np
import pandas as pd

from studies import correlations, runs
from studies.components import components
from studies.contrasts import COLUMNS, Change, contrasts
from tables import files
from training import log
from workdir.errors import RunError
from workdir.files import read_json


def write_run(name: str, folder: pathlib.Path) -> None:
    """correlations.csv of one run."""
    correlations.write({name: files.read(folder / "results.nc")}, folder / "correlations.csv")


def write(folders: dict[str, pathlib.Path], to: pathlib.Path) -> list[pathlib.Path]:
    """runs.nc and runs.csv; contrasts.csv where one setting differs; components.csv where seeds are crossed."""
    tables = {name: files.read(folder / "results.nc") for name, folder in folders.items()}
    joined = runs.join(tables, {name: bits(folder) for name, folder in folders.items()})
    files.write(joined, to / "runs.nc")
    paths = [to / "runs.nc"]
    for name, frame in (
        ("runs", runs.rows(tables, joined)),
        ("contrasts", contrasts(joined)),
        ("components", components(joined)),
    ):
        path = to / f"{name}.csv"
        if frame.empty:
            path.unlink(missing_ok=True)  # of an experiment that had other runs
        else:
            files.write_csv(frame, path)
            paths.append(path)
    return paths


def read(folder: pathlib.Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """runs.csv and contrasts.csv, as `write` left them; the second without rows where there is none.

    Only an empty field is a missing number: "None" is a setting, and a variant may be named "nan".
    """
    texts = dict.fromkeys(("run", "condition", *COLUMNS), str)
    path = folder / "runs.csv"
    rows = pd.read_csv(path, dtype=texts, keep_default_na=False, na_values=[""])
    if "condition" not in rows:
        raise _of_old(path)
    path = folder / "contrasts.csv"
    if not path.exists():
        return rows, pd.DataFrame(columns=[*COLUMNS, *Change._fields]).astype(dict.fromkeys(Change._fields, float))
    missing = {name: [""] for name in Change._fields}  # text may be empty
    changes = pd.read_csv(path, dtype=texts, keep_default_na=False, na_values=missing)
    if list(changes) != [*COLUMNS, *Change._fields]:
        raise _of_old(path)
    return rows, changes


def _of_old(path: pathlib.Path) -> RunError:
    return RunError(f"{path} has other columns than are written now; --stages=measure writes it again")


def bits(folder: pathlib.Path) -> dict[str, float]:
    """Bits per character of a finished run on the test split, and of the last validation; NaN where there is none."""
    path, advice = folder / "test.json", "move it elsewhere and run --stages=train again"
    test = read_json(path, advice).get("bits_per_character", np.nan) if path.exists() else np.nan
    lines = log.read(folder) if (folder / "train.jsonl").exists() else []
    valid = [line["bits_per_character"] for line in lines if line["kind"] == "valid"]
    return {"test_bits": test, "valid_bits": valid[-1] if valid else np.nan}
