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


def write(
    runs: dict[str, Run], drawn: dict[str, Run], folders: dict[str, pathlib.Path], root: pathlib.Path
) -> pathlib.Path:
    """Into the folder of an experiment: of its runs, and `drawn` as the figures show them, seeds as one."""
    path = root / NAME
    files.write(path, build(runs, drawn, folders, root))
    return path


def build(runs: dict[str, Run], drawn: dict[str, Run], folders: dict[str, pathlib.Path], root: pathlib.Path) -> str:
    from plotly.offline import get_plotlyjs, get_plotlyjs_version  # where it is needed alone

    title = root.resolve().name
    origin = about.origin(runs, drawn, folders)
    known, blocks = embed.known(runs, drawn, {"title": title, "origin": about.lines(drawn)})
    numbers = (f'<script type="text/plain" id="numbers-{n}">{block}</script>' for n, block in enumerate(blocks))
    parts = {
        "title": escape(title),
        "style": (HERE / "page.css").read_text("utf-8"),
        "known": known,
        "numbers": "\n".join(numbers),
        "library": embed.packed(get_plotlyjs().encode()),
        "library_version": escape(get_plotlyjs_version()),
        "scripts": "\n".join((HERE / name).read_text("utf-8") for name in SCRIPTS),
        "origin": origin,
        "links": about.links(folders, root),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], (HERE / "page.html").read_text("utf-8"))
