"""The command `anisoscope measure FILE`: print the table of a file of vectors, and write it."""

import pathlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import anisoscope
from anisoscope.cli import flags
from anisoscope.config.measure_config import CLOUD_NULLS, FIRST_LOOK, SEARCHED
from anisoscope.utils import files
from anisoscope.utils.errors import UserError

FILE_USAGE = (
    "Measure a file of vectors: anisoscope measure acts.npz [--clusters=labels] [--out=table.csv]\n"
)
FILE_FLAGS: dict[str, tuple[Any, str]] = {
    "vectors": (
        [],
        "Array of the file to measure, or several, each a layer; default: `vectors`, or the only one.",
    ),
    "clusters": (
        None,
        "Array or column with the sentence, image or window of each point; default: `clusters`.",
    ),
    "axes": ([], "What three axes hold: layer,point,width or text,token,width."),
    "families": ([*FIRST_LOOK], "Families of quantities to measure, or all."),
    "nulls": ([*CLOUD_NULLS], "Null models to compare with."),
    "folds": (8, "Folds of whole clusters that are resampled for intervals; 1: no intervals."),
    "num_chunks": (1, "Parts to measure one after another, if not all points fit into memory."),
    "search_among": (SEARCHED, "Neighbors are searched among at most about this many points."),
    "without_massive": (False, "Measure also without points that are massive in any layer."),
    "quantities": ([], "Columns to print, such as twonn,twonn_excess; default: the best known."),
    "seed": (0, "Random seed of folds and null models."),
    "out": (None, "New file for the whole table: .csv, .json, or .nc (NetCDF)."),
    "help": (False, "Show these flags."),
}
OPTIONS = ("families", "nulls", "folds", "num_chunks", "search_among", "without_massive", "seed")
SUFFIXES = (".csv", ".json", ".nc")
STOPPED = "interrupted; no table was written"


def run(argv: list[str]) -> None:
    """Measure the file that `argv` names."""
    try:
        _run(argv)
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(STOPPED) from error


def _run(argv: list[str]) -> None:
    values = flags.define_flags(FILE_FLAGS)
    words = flags.parse_words(values, argv)[1:]
    if values.help:
        print(*format_usage(), sep="\n")
        return
    if len(words) != 1:
        raise UserError("name one file, as in: anisoscope measure acts.npz; see measure --help")
    out = values.out and check_new(files.user_path(values.out))
    with warnings.catch_warnings():
        warnings.showwarning = print_warning
        table = measure_arrays(words[0], values)
    if out:  # before a column that does not exist is refused
        write_format(table, out)
    print(format_table(table, values.quantities))
    print(f"every number: {out}" if out else "--out=table.csv writes every number")


def print_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning as one line, without the place in the code."""
    print(f"warning: {' '.join(str(message).split())}", file=sys.stderr)


def measure_arrays(path: str, values: Any) -> Any:
    """Measure a file; raise UserError where it cannot be read or measured."""
    from anisoscope.sources import vector_files  # late: bad flags are refused before JAX loads

    options = {name: values[name].value for name in OPTIONS}
    try:
        file = vector_files.load_vectors(path, values.vectors, values.clusters)
        labels = {"mask": file.mask, "token_positions": file.token_positions}
        axes = values.axes or None
        return anisoscope.measure(file.vectors, file.clusters, axes=axes, **labels, **options)
    except ValueError as error:
        raise UserError(str(error)) from error


def format_table(table: Any, quantities: list[str]) -> str:
    """Format the printed table; raise UserError where it has no such columns."""
    try:
        return anisoscope.to_text(table, quantities=quantities)
    except ValueError as error:
        raise UserError(str(error)) from error


def check_new(path: pathlib.Path) -> pathlib.Path:
    """Return the path of a file that can be written; UserError if it exists, or has no format."""
    if path.suffix not in SUFFIXES:
        raise UserError(f"--out={path}: name a file that ends with {', '.join(SUFFIXES)}")
    if path.exists() or path.is_symlink():
        raise UserError(f"--out={path} exists, and nothing is overwritten; name another file")
    if not path.parent.is_dir():
        raise UserError(f"--out={path}: the folder {path.parent} does not exist; create it first")
    return path


def write_format(table: Any, path: pathlib.Path) -> None:
    """Write the table in the format that its name ends with."""
    from anisoscope.results import joined_files

    if path.suffix == ".nc":
        joined_files.write_table(table, path)
    elif path.suffix == ".csv":
        joined_files.write_csv(anisoscope.to_frame(table), path)
    else:
        rows = anisoscope.to_frame(table)
        files.write_file(path, rows.to_json(orient="records", double_precision=15, indent=1))


def format_usage() -> Iterator[str]:
    """List the flags with their defaults and meanings."""
    yield FILE_USAGE
    yield "FILE is .npy, .npz, .safetensors, .nc, .parquet or .csv: vectors, a row for each point.\n"
    for name, (default, meaning) in FILE_FLAGS.items():
        value = ",".join(default) if isinstance(default, list) else default
        shown = f"={value}" if value not in (None, False, "") else ""
        yield f"  --{name}{shown}: {meaning}"
