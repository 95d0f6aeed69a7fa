"""report.html: every quantity of a table to be looked at in a browser, in one file that fetches nothing."""

import os
import pathlib
import re
from html import escape

import xarray as xr

from anisoscope.measurement.tables.frame import whole
from anisoscope.plot.report import about, embed
from anisoscope.plot.run import Run
from anisoscope.utils import files

HERE = pathlib.Path(__file__).parent
SCRIPTS = ("data.js", "selection.js", "words.js", "axes.js", "lines.js", "figure.js", "controls.js", "page.js")
NAME = "report.html"
MARK = '<script type="application/json" id="known">'  # which no other page has


def write(
    runs: dict[str, Run], drawn: dict[str, Run], folders: dict[str, pathlib.Path], root: pathlib.Path
) -> pathlib.Path:
    """Into the folder of an experiment: of its runs, and `drawn` as the figures show them, seeds as one."""
    path = root / NAME
    files.write(path, build(runs, drawn, folders, root))
    return path


def build(
    runs: dict[str, Run], drawn: dict[str, Run], folders: dict[str, pathlib.Path], root: pathlib.Path, title: str = ""
) -> str:
    """The page; of tables that are in no folder by the title they have, without links to files."""
    from plotly.offline import get_plotlyjs, get_plotlyjs_version  # where it is needed alone

    heading = title or f"{root.resolve().name}: representations while training"
    title = title or root.resolve().name
    origin = about.origin(runs, drawn, folders)
    known, blocks = embed.known(runs, drawn, {"title": title, "origin": about.lines(drawn)})
    numbers = (f'<script type="text/plain" id="numbers-{n}">{block}</script>' for n, block in enumerate(blocks))
    parts = {
        "title": escape(heading),
        "style": (HERE / "page.css").read_text("utf-8"),
        "known": known,
        "numbers": "\n".join(numbers),
        "library": embed.packed(get_plotlyjs().encode()),
        "library_version": escape(get_plotlyjs_version()),
        "scripts": "\n".join((HERE / name).read_text("utf-8") for name in SCRIPTS),
        "origin": origin,
        "links": f"<section><h2>Files</h2>\n{about.links(folders, root)}\n</section>" if folders else "",
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], (HERE / "page.html").read_text("utf-8"))


def report(table: xr.Dataset, to: str | os.PathLike[str] = NAME) -> pathlib.Path:
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
    if path.exists() and (not path.is_file() or MARK.encode() not in path.read_bytes()):
        raise ValueError(f"{path} is there and is no page of this kind: name another path")
    results, names = whole(table)
    title = str(results.attrs.get("title", "")) or path.stem
    said = [title] + [f"{dim} {place}: {name}" for dim, of_dim in names.items() for place, name in enumerate(of_dim)]
    defaults = {"provenance": "; ".join(said), "config": "{}", "points": 0, "batches": 1, "folds": 1}
    results.attrs = defaults | results.attrs | ({"corpus": title} if not results.attrs["corpus"] else {})
    runs = {title: Run(results, [])}
    files.write(path, build(runs, runs, {}, path, title))
    return path
