"""Read tables of numbers, .csv and .parquet: a row for each point."""

import csv
import pathlib
from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd

from anisoscope.utils.extras import MissingLibraryError

LISTS = (list, tuple, np.ndarray)


def open_columns(path: pathlib.Path, labels: Collection[str], name: str) -> dict[str, np.ndarray]:
    """Read a table as arrays by name: labels, and the other columns as one array `name`.

    A column of lists of numbers is an array by itself, as data sets keep embeddings.

    Raises:
        ValueError: a column is no coordinate of vectors; the message is one line.
    """
    frame = read_parquet(path) if path.suffix.lower() == ".parquet" else read_comma_rows(path)
    if not len(frame):
        raise ValueError("it has no rows")
    arrays: dict[str, np.ndarray] = {x: frame[x].to_numpy() for x in frame if x in labels}
    rest = frame.drop(columns=[*arrays])
    lists = [x for x in rest if isinstance(rest[x].iloc[0], LISTS)]
    for column in lists:
        lengths = {len(row) if isinstance(row, LISTS) else 0 for row in rest[column]}
        if len(lengths) > 1:
            raise ValueError(
                f"lists of column {column} have {min(lengths)} to {max(lengths)} numbers"
            )
        arrays[column] = np.stack([np.asarray(row) for row in rest[column]])
    rest = rest.drop(columns=lists)
    if lists:
        return arrays | {x: rest[x].to_numpy() for x in rest}
    check_coordinates(rest)
    return arrays | {name: rest.to_numpy()}


def check_coordinates(frame: pd.DataFrame) -> None:
    """Raise ValueError where a column is an index, or labels, and no coordinate."""
    advice = "name labels by --clusters, or write the file without them"
    if any(str(name).startswith("Unnamed: ") for name in frame):
        raise ValueError(
            "a column has no name, as pandas writes an index: write it with index=False"
        )
    kinds = {name: frame[name].dtype.kind for name in frame}
    if words := [str(name) for name, kind in kinds.items() if kind not in "iuf"]:
        raise ValueError(f"{_columns(words)} no numbers; {advice}")
    # one number in all rows labels nothing: a coordinate that is dead
    whole = [str(x) for x, kind in kinds.items() if kind in "iu" and frame[x].nunique() > 1]
    if whole and "f" in kinds.values():
        raise ValueError(f"{_columns(whole)} whole numbers, and others fractions; {advice}")


def _columns(names: list[str]) -> str:
    some = ", ".join(names[:5]) + " …" * (len(names) > 5)
    return f"column{'s' * (len(names) > 1)} {some} hold{'s' * (len(names) == 1)}"


def read_comma_rows(path: pathlib.Path) -> pd.DataFrame:
    """Read a CSV file, with a line of names or without: numbers are names only where they count."""
    with open(path, newline="") as file:
        first = next(csv.reader(file), [])
    try:
        named = [*map(float, first)] == [*range(len(first))]
    except ValueError:
        named = True
    return pd.read_csv(path, header=0 if named else None)


def read_parquet(path: pathlib.Path) -> Any:
    """Read a Parquet file; the core has no library for it."""
    try:
        import pyarrow  # noqa: F401, as pandas will, whose error has several lines
    except ImportError as error:
        raise MissingLibraryError(f"{path}: {error}; pip install pyarrow") from error
    return pd.read_parquet(path, engine="pyarrow")
