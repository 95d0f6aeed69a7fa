"""Read texts as users pass them: a file, a list, or a column of a Dataset."""

import codecs
import hashlib
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from anisoscope.utils.errors import UserError

BREAK = "\n\n"  # separates joined texts
LINE_ENDS = re.compile(r"\r\n|\r|\n")  # str.splitlines would also split at form feeds and U+2028


class Text(NamedTuple):
    """Joined texts, with the name that tables record, and each text."""

    name: str
    content: str
    parts: list[str]

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content.encode()).hexdigest()


def read_texts(texts: Any) -> Text:
    """Read all texts; the texts of a file are its lines."""
    if isinstance(texts, str | os.PathLike):
        path = pathlib.Path(texts)
        if not os.path.isfile(path):
            raise UserError(
                f"texts: no file {os.fspath(texts)[:40]!r} exists; pass a list of texts, or a file's path"
            )
        try:
            content = path.read_bytes().removeprefix(codecs.BOM_UTF8).decode()
        except UnicodeDecodeError as error:
            where = f"{error.reason} at {error.start}"
            raise UserError(
                f"texts: {path} is not UTF-8 ({where}); pass a list of texts"
            ) from error
        return Text(path.name, content, [x for x in LINE_ENDS.split(content) if x.strip()])
    columns = getattr(texts, "column_names", None)
    if isinstance(texts, Mapping) or (columns is not None and "text" not in columns):
        names = ", ".join(map(str, texts if isinstance(texts, Mapping) else columns))[:40]
        raise UserError(
            f"texts: no column is named text, only {names}; pass a list of texts, one split or a "
            "column"
        )
    parts = list(texts if columns is None else texts["text"])
    for number, part in enumerate(parts):
        if not isinstance(part, str):
            raise UserError(f"texts: number {number} is a {type(part).__name__}; pass strings")
    return Text(f"{len(parts)} texts", BREAK.join(parts), parts)
