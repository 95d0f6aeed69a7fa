"""Lead links between docs/ and findings/ to where their pages stand in the site, and turn links to
other files of the repository, as examples/, into downloads.

On the site findings/ is a folder of docs/, through a link of that name.
"""

import os
import pathlib
import re

from sphinx.application import Sphinx

LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")
FINDINGS = "findings"


def lead_links(app: Sphinx, docname: str, source: list[str]) -> None:
    page, pages = pathlib.Path(app.env.doc2path(docname)), pathlib.Path(app.srcdir)
    source[0] = lead(source[0], page, pages)


def lead(text: str, page: pathlib.Path, pages: pathlib.Path) -> str:
    """Rewrite the links of a page's text; `pages` is the folder of all pages."""
    moved = pages.parent / FINDINGS

    def link(found: re.Match[str]) -> str:
        mark, words, address, place = found.groups()
        target = pathlib.Path(os.path.normpath(page.resolve().parent / address))
        if not target.is_file():
            return found[0]
        if target.is_relative_to(moved):
            target = pages / FINDINGS / target.relative_to(moved)
        to = os.path.relpath(target, page.parent)
        if target.is_relative_to(pages):
            return f"{mark}[{words}]({to}{place or ''})"
        return f"{{download}}`{words.strip('`')} <{to}>`"

    return LINK.sub(link, text)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", lead_links)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
