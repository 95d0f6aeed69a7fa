"""Check that the built site loads nothing from another host, and that its links lead somewhere.

python docs/site/check.py FOLDER
"""

import pathlib
import re
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

LOADED = {
    "script": "src",
    "img": "src",
    "link": "href",
    "iframe": "src",
    "source": "srcset",
    "video": "src",
}
STYLE_ADDRESS = re.compile(r"""(?:url\(|@import)\s*['"]?(?:https?:)?//""")


class Page(HTMLParser):
    """What a page loads, where its links lead, and the places in it that links can lead to."""

    def __init__(self, text: str):
        super().__init__()
        self.loaded, self.links, self.places = [], [], {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.places |= {value for name in ("id", "name") if (value := attributes.get(name))}
        if value := attributes.get(LOADED.get(tag, "")):
            self.loaded.append(value)
        if tag == "a" and (value := attributes.get("href")):
            self.links.append(value)


def find_faults(folder: pathlib.Path) -> list[str]:
    """List what pages load from elsewhere, and links that lead nowhere."""
    pages = {path: Page(path.read_text()) for path in sorted(folder.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        where = path.relative_to(folder)
        for address in page.loaded:
            parts = urlsplit(address)
            if parts.netloc:
                found.append(f"{where} loads {address}")
            elif (
                parts.scheme != "data"
                and not (path.parent / unquote(parts.path)).resolve().exists()
            ):
                found.append(f"{where} loads {address}, which does not exist")
        for address in page.links:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                found.append(f"{where} links to {address}, which does not exist")
            elif target in pages and unquote(parts.fragment) not in pages[target].places:
                found.append(f"{where} links to {address}, a place that the page lacks")
    for style in folder.rglob("*.css"):
        if STYLE_ADDRESS.search(style.read_text()):
            found.append(f"{style.relative_to(folder)} loads from another host")
    return found


if __name__ == "__main__":
    faults = find_faults(pathlib.Path(sys.argv[1]).resolve())
    print(*faults, sep="\n")
    sys.exit(bool(faults))
