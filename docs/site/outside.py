"""Turn links to files of the repository that are no pages, as examples/, into downloads."""

import os
import pathlib
import re

from sphinx.application import Sphinx

LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#:]+)(?:#[^)\s]*)?\)")


def link_downloads(app: Sphinx, docname: str, source: list[str]) -> None:
    page = pathlib.Path(app.env.doc2path(docname))
    pages = pathlib.Path(app.srcdir)

    def link(found: re.Match[str]) -> str:
        target = pathlib.Path(os.path.normpath(page.parent / found[2]))
        if target.is_relative_to(pages) or not target.is_file():
            return found[0]
        return f"{{download}}`{found[1].strip('`')} <{os.path.relpath(target, page.parent)}>`"

    source[0] = LINK.sub(link, source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", link_downloads)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
