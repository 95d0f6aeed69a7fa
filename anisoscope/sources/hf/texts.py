"""Texts as somebody gives them: a file, a list, or a column of a Dataset."""

import codecs
import hashlib
import os
import pathlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from anisoscope.utils.errors import UserError

SHOWN = 40  # characters of what is no path
BREAK = "\n\n"  # between texts that are joined
LINE_ENDS = re.compile(r"\r\n|\r|\n")  # str.splitlines would also split at form feeds and U+2028


class Text(NamedTuple):
    """As much of a corpus as tables record."""

    name: str
    content: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content.encode()).hexdigest()


def read_texts(texts: Any) -> tuple[Text, list[str]]:
    """Return all texts as one, as tables record it, and each by itself: of a file its lines."""
    if isinstance(texts, str | os.PathLike):
        text = _of_file(texts)
        return text, [line for line in LINE_ENDS.split(text.content) if line.strip()]
    parts = _parts(texts)
    return Text(f"{len(parts)} texts", BREAK.join(parts)), parts


def _of_file(texts: Any) -> Text:
    if not os.path.isfile(texts):
        said = repr(os.fspath(texts)[:SHOWN])
        raise UserError(
            f"texts: there is no file {said}; pass a list of texts, or the path of a file"
        )
    path = pathlib.Path(texts)
    try:
        return Text(path.name, path.read_bytes().removeprefix(codecs.BOM_UTF8).decode())
    except UnicodeDecodeError as error:
        raise UserError(
            f"texts: {path} is no UTF-8 ({error.reason} at {error.start}); pass a list"
        ) from error


def _parts(texts: Any) -> list[str]:
    columns = getattr(texts, "column_names", None)
    if isinstance(texts, Mapping) or isinstance(columns, Mapping):
        said = ", ".join(map(str, texts))
        raise UserError(
            f"texts: there is no column text, but {said[:SHOWN]}; pass a list of texts, or one split"
        )
    if columns is not None and "text" not in columns:
        said = ", ".join(map(str, columns))[:SHOWN]
        raise UserError(
            f'texts: there is no column text, but {said}; pass one, as texts["{columns[0]}"]'
        )
    if not isinstance(texts, Iterable):
        raise UserError(
            f"texts is a {type(texts).__name__}; pass a list of texts, or the path of a file"
        )
    parts = list(texts if columns is None else texts["text"])
    for number, part in enumerate(parts):
        if not isinstance(part, str):
            raise UserError(f"texts: number {number} is a {type(part).__name__}, no string")
        try:
            part.encode()
        except UnicodeEncodeError as error:
            raise UserError(
                f"texts: number {number} holds half of a surrogate pair at character {error.start}, "
                "which is no character; leave it out"
            ) from error
    return parts
