"""Lead links between docs/ and findings/ to where their pages stand in the site, and turn links to
other files of the repository, as examples/, into downloads.

The pages, figures and tables of findings/ are copied to docs/made/findings before a build, since
Sphinx reads a single folder.
"""

import os
import pathlib
import re
import shutil

from sphinx.application import Sphinx

LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")
COPY = pathlib.Path("made") / "findings"
PROGRAMS = ("claims", "scripts", "__pycache__")


def copy_findings(app: Sphinx) -> None:
    pages = pathlib.Path(app.srcdir)
    shutil.rmtree(pages / COPY, ignore_errors=True)
    origin, ignored = pages.parent / "findings", shutil.ignore_patterns(*PROGRAMS)
    shutil.copytree(origin, pages / COPY, ignore=ignored)


def lead_links(app: Sphinx, docname: str, source: list[str]) -> None:
    page, pages = pathlib.Path(app.env.doc2path(docname)), pathlib.Path(app.srcdir)
    source[0] = lead(source[0], page, pages)


def lead(text: str, page: pathlib.Path, pages: pathlib.Path) -> str:
    """Rewrite the links of a page's text; `pages` is the folder of all pages."""
    findings, folder = pages.parent / "findings", page.parent
    if page.is_relative_to(pages / COPY):
        folder = findings / folder.relative_to(pages / COPY)

    def link(found: re.Match[str]) -> str:
        mark, words, address, place = found.groups()
        target = pathlib.Path(os.path.normpath(folder / address))
        if not target.is_file():
            return found[0]
        if target.is_relative_to(findings):
            target = pages / COPY / target.relative_to(findings)
        to = os.path.relpath(target, page.parent)
        if target.is_relative_to(pages):
            return f"{mark}[{words}]({to}{place or ''})"
        return f"{{download}}`{words.strip('`')} <{to}>`"

    return LINK.sub(link, text)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", copy_findings)
    app.connect("source-read", lead_links)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
