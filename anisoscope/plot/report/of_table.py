"""The page of a single table, wherever it comes from."""

import os
import pathlib

import xarray as xr

from anisoscope.measurement.tables.frame import whole
from anisoscope.plot.report import page
from anisoscope.plot.run import Run
from anisoscope.utils import files


def report(table: xr.Dataset, to: str | os.PathLike[str] = page.NAME) -> pathlib.Path:
    """A page of every quantity of a table, for a browser: one file that fetches nothing.

    Args:
        table: of `measure`, `measure_model`, `measure_attention`, or results.nc of a run.
        to: the page's path, as "page.html". An earlier page there is replaced, no other file is.

    Returns:
        The path.

    Raises:
        ValueError: there is a file that is no page, or no folder to write into; in one line.
    """
    path = pathlib.Path(to)
    if not path.parent.is_dir():
        raise ValueError(f"{path}: there is no folder {path.parent} to write the page into")
    if path.exists() and (not path.is_file() or page.MARK.encode() not in path.read_bytes()):
        raise ValueError(f"{path} is there and is no page of this kind: name another path")
    results, names = whole(table)
    title = str(results.attrs.get("title", "")) or path.stem
    said = [title] + [f"{dim} {place}: {name}" for dim, of_dim in names.items() for place, name in enumerate(of_dim)]
    defaults = {"provenance": "; ".join(said), "config": "{}", "points": 0, "batches": 1, "folds": 1}
    results.attrs = defaults | results.attrs | ({"corpus": title} if not results.attrs["corpus"] else {})
    runs = {title: Run(results, [])}
    files.write(path, page.build(runs, runs, {}, path, title))
    return path
