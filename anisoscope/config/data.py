"""Which text: every setting and its default."""

from dataclasses import dataclass

from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import at_least, choose

SOURCES = ("enwik8", "pydoc")
CACHE = "~/.cache/anisoscope"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    source: str = "enwik8"  # enwik8, or pydoc (the language reference inside every CPython, needs no network)
    path: str | None = None  # a local enwik8, or any text: plain, .zip, .gz, .bz2 or .xz; of some models a folder
    unpack: int | None = None  # most bytes that such an archive may hold; left out: 50 times its own, or 100 million
    clean: bool = False  # strip markup, code and media, as The Shape of Learning does
    cache: str = CACHE  # where a downloaded enwik8 and compiled programs are kept


def check_data(data: DataConfig) -> None:
    """Raise UserError, one line, where a setting cannot be."""
    choose("data.source", data.source, SOURCES)
    at_least("data.unpack", data.unpack, 1)
    if not data.cache:
        raise UserError("data.cache is empty; name a folder, or leave it out")
