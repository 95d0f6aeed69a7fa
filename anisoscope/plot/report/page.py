"""report.html: every quantity of a table to be looked at in a browser, in one file that fetches nothing."""

import pathlib
import re
from html import escape

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
