"""Clean wikitext to plain text: no code, media or HTML tags, as in The Shape of Learning.

Of an XML dump only titles (a line above each article) and texts remain; redirects are dropped.
Wikitext is treated as follows:

    dropped          comments, references, <math> <code> <pre> <nowiki> and similar elements, tables,
                     templates, images and other media with their captions, categories, links to
                     other languages
    reduced to text  [[target|text]], [http://address text], ''quotes'', == headings ==, indents,
                     HTML tags, entities

An entity may spell markup ("&lt;math&gt;" is how a dump stores a tag), and removals may create new
markup. Therefore a text is processed until nothing changes. Markers without a partner are deleted,
and the text after them stays. Text that is not a dump is treated as wikitext. Prose stays as it is,
except for line ends, blank lines and characters that read as markup (an empty '' in program code,
for example).

The text is cut after every page, or in long texts at a blank line. No marker survives, and a
pattern that crosses a blank line begins with such a marker. So cleaning a cleaned text changes
nothing.
"""

import functools
import html
import re
from collections.abc import Callable, Iterator
from html.entities import html5

UNIT = 1 << 20  # characters after which a text without pages is cut at a blank line
DEEPEST = 40  # nesting beyond this is taken for stray markers

_ATTRIBUTES = rb"\b[^<>\n]*+(?:\n(?!\n)[^<>\n]*+)*+"
_DROPPED = (
    rb"math|code|pre|nowiki|source|syntaxhighlight|timeline|hiero|score|chem|ce|graph|script|style|"
    rb"gallery|imagemap|ref|references"
)
_TAGS = (
    rb"a|abbr|acronym|b|base|bdi|bdo|big|blockquote|body|br|caption|center|cite|col|colgroup|dd|del|dfn|dir|div|dl|dt|"
    rb"em|font|form|h[1-6]|head|hr|html|i|img|includeonly|input|ins|kbd|li|link|mark|meta|noinclude|o|ol|onlyinclude|p|"
    rb"q|rb|rp|rt|ruby|s|samp|select|small|span|strike|strong|sub|sup|table|tbody|td|tfoot|th|thead|tr|tt|u|ul|var|wbr|"
    rb"mediawiki|siteinfo|page|revision|text|title|" + _DROPPED
)

_PAGE_END = b"</page>"
_PAGE_TEXT = re.compile(rb'<text\b[^<>\n]*xml:space="preserve"[^<>\n]*(?:/>|>([^<]*))')
_TITLE = re.compile(rb"<title>([^<]*)</title>")
_PAGE_START = re.compile(rb"<page>\s*<title>")
_REDIRECT = re.compile(rb"\s*#redirect\b", re.I)

_ENTITY = re.compile(rb"&(?:amp;)*(#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_ELEMENT = re.compile(
    rb"<!--[^-<]*+(?:(?:-(?!->)|<(?!!--))[^-<]*+)*+-->"
    rb"|<(" + _DROPPED + rb")" + _ATTRIBUTES + rb"(?<!/)>[^<]*+(?:<(?!/?\1\b)[^<]*+)*+</\1\s*>",
    re.I,
)
_INDENT = re.compile(rb"\n(?:[ \t:;]*[:;][ \t]*|[ \t]+(?=\{\||\|\}))")
_MARKER = re.compile(
    # table markers count only at the beginning of a line
    rb"(\[\[|\]\]|\n\n|\{\{|\}\}|\{\|(?<![^\n]\{\|)|\|\}(?<![^\n]\|\})(?!\})"
    rb"|<(?i:table)" + _ATTRIBUTES + rb">|</(?i:table)\s*>)"
)
_HIDDEN_LINK = re.compile(
    rb"\s*(?:(?i:image|file|media|category)|[a-z]{2,3}(?:-[a-z]+)*|simple)\s*:"
)
_BREAK = re.compile(rb"<(?:br|hr|p|li|tr|dd|dt|blockquote)" + _ATTRIBUTES + rb">\n?", re.I)
_TAG = re.compile(rb"</?(?:" + _TAGS + rb")" + _ATTRIBUTES + rb">|<!--", re.I)
_ADDRESS = re.compile(
    rb"\[(?:(?:https?|ftp|irc|gopher)://|mailto:|news:)[^\s\[\]]*+[ \t]*+"
    rb"(?:((?:[^\[\]\n]++|\[[^\[\]\n]*+\])*+)\])?"
)
_QUOTES = re.compile(rb"''+")
_HEADING = re.compile(rb"\n=+[ \t]*([^=\s](?:[^\n]*[^=\s])?)[ \t]*=+[ \t]*(?=\n)")
_SWITCH = re.compile(rb"__(?:NO|FORCE)?(?:TOC|EDITSECTION)__")
_EMPTY = re.compile(rb"\n(?:-{4,}|[*#]{1,3}|\|[^\n]*)(?=\n)")
_BLANK = re.compile(rb"\n\n\n+")

# the partner of each closing marker
_OPENS = {b"]]": b"[[", b"}}": b"{{", b"|}": b"{|", b"</": b"<t"}


def clean(text: bytes, progress: Callable[[int], None] = lambda size: None) -> bytes:
    """Clean a text; `progress` is called with the size of each part that is done."""
    parts = []
    for unit in _units(text.replace(b"\r", b"")):
        if cleaned := _strip(_readable(unit)):
            parts.append(cleaned)
        progress(len(unit))
    return b"\n\n".join(parts)


def _units(text: bytes) -> Iterator[bytes]:
    """Yield the text cut after every page, or at the last blank line within UNIT characters."""
    start = 0
    while start < len(text):
        end = _find_end(text, start)
        yield text[start:end]
        start = end


def _find_end(text: bytes, start: int) -> int:
    limit = start + UNIT
    if (page := text.find(_PAGE_END, start, limit)) >= 0:
        return page + len(_PAGE_END)
    if len(text) < limit:
        return len(text)
    if (blank := text.rfind(b"\n\n", start, limit)) >= 0:
        return blank + 2
    places = {end: text.find(end, limit - len(end) + 1) for end in (b"\n\n", _PAGE_END)}
    return min((at + len(end) for end, at in places.items() if at >= 0), default=len(text))


def _readable(unit: bytes) -> bytes:
    """Return the title and text of a page of a dump, or the whole unit if it has no such page."""
    if page := _PAGE_TEXT.search(unit):
        if not page[1] or _REDIRECT.match(page[1]):
            return b""
        title = _TITLE.search(unit, 0, page.start())
        return (title[1] + b"\n\n" if title else b"") + page[1]
    head = _PAGE_START.search(unit)  # the page ends before its text
    return unit[: head.start()] if head else unit


def _strip(text: bytes) -> bytes:
    """Convert wikitext to plain text, repeated until nothing changes."""
    before = None
    while text != before:
        before = text
        text = _ENTITY.sub(_character, text)
        text = _ELEMENT.sub(b"", text)
        text = _INDENT.sub(b"\n", b"\n" + text + b"\n")
        text = _resolve(text)
        text = _ADDRESS.sub(rb"\1", text)
        text = _BREAK.sub(b"\n", text)
        text = _TAG.sub(b"", text)
        text = _QUOTES.sub(b"", text)
        text = _HEADING.sub(rb"\n\1", text)
        text = _SWITCH.sub(b"", text)
        text = b"\n".join(map(bytes.rstrip, text.split(b"\n")))
        text = _EMPTY.sub(b"", text)
        text = _BLANK.sub(b"\n\n", text).strip(b"\n")
    return text


def _resolve(text: bytes) -> bytes:
    """Drop templates and tables, and reduce links to their visible text.

    A marker without a partner is deleted alone.
    """
    first, *rest = _MARKER.split(text)
    kept, opened = [first], []  # opened: (kind of a marker, number of parts kept before it)
    for marker, after in zip(rest[::2], rest[1::2], strict=True):
        kind = marker[:2].lower()
        if kind == b"\n\n":
            kept.append(kind)
            while opened and opened[-1][0] == b"[[":  # a link ends with its paragraph
                opened.pop()
        elif kind in _OPENS:
            _close(_OPENS[kind], kept, opened)
        elif len(opened) < DEEPEST:
            opened.append((kind, len(kept)))
        kept.append(after)
    return b"".join(kept)


def _close(kind: bytes, kept: list[bytes], opened: list[tuple[bytes, int]]) -> None:
    """Replace the text since the last marker of this kind by what a reader sees of it."""
    for depth in range(len(opened) - 1, -1, -1):
        if opened[depth][0] == kind:
            start = opened[depth][1]
            inside = kept[start:]
            del kept[start:], opened[depth:]
            if kind == b"[[":
                kept.append(_shown(b"".join(inside)))
            return
        if kind == b"[[":  # a link lies wholly inside its template or table
            return


def _shown(link: bytes) -> bytes:
    """Return the visible text of a link, given the text between [[ and ]]."""
    target, _, label = link.partition(b"|")
    if _HIDDEN_LINK.match(target):
        return b""
    return label if label.strip() else target.strip().removeprefix(b":")


@functools.lru_cache(maxsize=4096)
def _decode(entity: bytes) -> bytes | None:
    """Decode an entity's name or number to UTF-8; None where there is no such entity."""
    name = f"{entity.decode()};"
    text = html.unescape(f"&{name}") if name[0] == "#" else html5.get(name)
    if text is None:
        return None
    return "".join(c for c in text.replace("\xa0", " ") if c >= " " or c in "\t\n").encode()


def _character(entity: re.Match[bytes]) -> bytes:
    decoded = _decode(entity[1])
    return b"&" + entity[1] + b";" if decoded is None else decoded
