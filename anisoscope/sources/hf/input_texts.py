"""Read the texts of a user: strings, rows, a column or a file; and draw pieces of long ones.

U are the blocks of a long text.
"""

import codecs
import dataclasses
import functools
import hashlib
import os
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from anisoscope.utils.errors import UserError
from anisoscope.utils.files import user_path

BREAK = "\n\n"  # separates joined texts
LINE_ENDS = re.compile(r"\r\n|\r|\n")  # str.splitlines would also split at form feeds and U+2028
LONGEST_NAME = 255  # bytes that a file system allows between two slashes
LARGEST_FILE = 2**30  # bytes
READ_OF_STREAMS = 100_000_000  # characters that are read of texts without an end that is known
READ_WHOLE = 1_000_000  # characters up to which a text is read whole
COLUMN = "text"


@dataclasses.dataclass
class Text:
    """Texts, with the name that tables record."""

    name: str
    parts: list[str]  # each text
    blocks: list[str]  # what is joined by `BREAK`: each text, or a whole file

    @functools.cached_property
    def content(self) -> str:
        """All texts, joined."""
        return BREAK.join(self.blocks)

    @functools.cached_property
    def size(self) -> int:
        """The number of characters of `content`."""
        return sum(map(len, self.blocks)) + len(BREAK) * (len(self.blocks) - 1)

    @functools.cached_property
    def sha256(self) -> str:
        """The digest of `content`."""
        digest = hashlib.sha256(self.blocks[0].encode())
        for block in self.blocks[1:]:
            digest.update((BREAK + block).encode())
        return digest.hexdigest()

    def draw(self, characters: int, piece: int, seed: int) -> str:
        """Return the whole text, or of a long one pieces from random places, in order.

        They have at least `characters` characters in all, and each has at most `piece`.
        """
        needed = max(characters, READ_WHOLE)
        if self.size <= needed:
            return self.content
        pieces_U = np.array([-(-len(block) // piece) for block in self.blocks])
        end_U, chosen, size = np.cumsum(pieces_U), [], 0
        for number in np.random.default_rng(seed).permutation(int(end_U[-1])).tolist():
            u = int(np.searchsorted(end_U, number, side="right"))
            start = (number - int(end_U[u] - pieces_U[u])) * piece
            chosen.append((u, start))
            size += min(piece, len(self.blocks[u]) - start)
            if size >= needed:
                break
        return BREAK.join(self.blocks[u][start : start + piece] for u, start in sorted(chosen))


def read_texts(texts: Any) -> Text:
    """Read all texts; the texts of a file are its lines."""
    if isinstance(texts, str) and not _may_be_a_path(texts):
        texts = [texts]
    if isinstance(texts, str | os.PathLike):
        return _read_file(user_path(texts))
    parts = list(_walk(_find_column(texts)))
    if not parts:
        raise UserError("texts are empty; pass at least one text")
    text = Text(f"{len(parts)} texts", parts, parts)
    if not hasattr(texts, "__len__") and text.size > READ_OF_STREAMS:
        text.name = f"first {text.name}"
    return text


def _may_be_a_path(text: str) -> bool:
    """Return whether a string is short enough for a path, and has no line break."""
    longest = max(len(name.encode(errors="replace")) for name in text.split("/"))
    return longest <= LONGEST_NAME and not LINE_ENDS.search(text) and "\0" not in text


def _read_file(path: pathlib.Path) -> Text:
    """Read a file of UTF-8; what never ends, such as a pipe or a device, is refused."""
    if not path.is_file():
        what = f"texts: no file {os.fspath(path)[:40]!r} exists"
        if path.exists():
            what = f"texts: {os.fspath(path)[:40]!r} is no file but a folder, a pipe or a device"
        raise UserError(f"{what}; pass a list of texts, or a file's path")
    if (size := path.stat().st_size) > LARGEST_FILE:
        what = f"texts: {path} has {size:,} bytes, above {LARGEST_FILE:,}"
        raise UserError(f"{what}; take a part")
    try:
        content = path.read_bytes().removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        raise UserError(f"texts: {path} is not UTF-8; pass a list of texts") from error
    except OSError as error:
        raise UserError(f"texts: {path} cannot be read ({error.strerror})") from error
    lines = [line for line in LINE_ENDS.split(content) if line.strip()]
    return Text(path.name, lines, [content])


def _find_column(texts: Any) -> Any:
    """Return the column of texts of a data set, or the texts themselves."""
    columns = getattr(texts, "column_names", getattr(texts, "columns", None))
    if isinstance(texts, Mapping):
        columns = texts
    if columns is None:
        return texts
    if COLUMN not in columns:
        what = f"no column is named {COLUMN}, only {', '.join(map(str, columns))[:40]}"
        raise UserError(f"texts: {what}; pass a list of texts, one split or a column")
    if not hasattr(texts, "__len__"):  # a stream, whose rows are read one after another
        return texts
    column = texts[COLUMN]
    return [column] if isinstance(column, str) else column


def _walk(texts: Any) -> Iterator[str]:
    """Yield strings, or the texts of rows, and check each; a stream is read to its limit."""
    if not isinstance(texts, Iterable):
        raise UserError(f"texts are a {type(texts).__name__}; pass strings, or a file's path")
    size, endless = 0, not hasattr(texts, "__len__")
    for number, part in enumerate(texts):
        if isinstance(part, Mapping):
            part = part.get(COLUMN)
        if not isinstance(part, str):
            advice = "pass strings"
            if isinstance(part, list | tuple | np.ndarray):
                advice = "pass strings: batch_decode of the tokenizer makes them of tokens"
            raise UserError(f"texts: number {number} is a {type(part).__name__}; {advice}")
        try:
            part.encode()
        except UnicodeEncodeError as error:
            what = f"texts: number {number} holds half a character ({part[error.start]!a})"
            raise UserError(f"{what}; decode it with errors='replace'") from error
        yield part
        size += len(part) + len(BREAK)
        if endless and size > READ_OF_STREAMS + 2 * len(BREAK):
            return
