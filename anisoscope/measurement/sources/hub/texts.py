"""Texts as somebody gives them: a file, a list, or a column of a Dataset."""

import hashlib
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from anisoscope.utils.errors import UserError

SHOWN = 40  # characters of what is no path
BREAK = "\n\n"  # between texts that are joined


class Text(NamedTuple):
    """As much of a corpus as tables record."""

    name: str
    content: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content.encode()).hexdigest()


def text_of(texts: Any) -> Text:
    """All of a file, or of texts one after another; UserError where there is none."""
    return parts_of(texts)[0]


def parts_of(texts: Any) -> tuple[Text, list[str]]:
    """Each by itself, of a file its lines; and what tables record of all."""
    if isinstance(texts, str | os.PathLike):
        text = _of_file(texts)
        return text, [line for line in text.content.splitlines() if line.strip()]
    parts = _parts(texts)
    return Text(f"{len(parts)} texts", BREAK.join(parts)), parts


def _of_file(texts: Any) -> Text:
    if not os.path.isfile(texts):
        said = repr(os.fspath(texts)[:SHOWN])
        raise UserError(f"texts: there is no file {said}; pass a list of texts, or the path of a file")
    path = pathlib.Path(texts)
    try:
        return Text(path.name, path.read_bytes().decode())
    except UnicodeDecodeError as error:
        raise UserError(f"texts: {path} is no UTF-8 ({error.reason} at {error.start}); pass a list") from error


def _parts(texts: Any) -> list[str]:
    columns = getattr(texts, "column_names", None)
    if isinstance(texts, Mapping) or isinstance(columns, Mapping):
        said = ", ".join(map(str, texts))
        raise UserError(f"texts: there is no column text, but {said[:SHOWN]}; pass a list of texts, or one split")
    if columns is not None and "text" not in columns:
        said = ", ".join(map(str, columns))[:SHOWN]
        raise UserError(f'texts: there is no column text, but {said}; pass one, as texts["{columns[0]}"]')
    if not isinstance(texts, Iterable):
        raise UserError(f"texts is a {type(texts).__name__}; pass a list of texts, or the path of a file")
    parts = list(texts if columns is None else texts["text"])
    for number, part in enumerate(parts):
        if not isinstance(part, str):
            raise UserError(f"texts: number {number} is a {type(part).__name__}, no string")
    return parts
