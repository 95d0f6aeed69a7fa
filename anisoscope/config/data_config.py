"""Settings of the text that is read."""

from dataclasses import dataclass

from anisoscope.utils.compiled import CACHE
from anisoscope.utils.settings import setting

SOURCES = ("enwik8", "pydoc")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    source: str = setting(
        "enwik8", "text to read; pydoc: CPython's language reference", choices=SOURCES
    )
    path: str | None = setting(
        None, "local file of text: plain, .zip, .gz, .bz2 or .xz; None: `data.source`"
    )
    max_unpacked_bytes: int | None = setting(
        None,
        "limit on the unpacked size of `data.path` in bytes; None: 50 × the file, at least 100 MB",
        low=1,
    )
    clean: bool = setting(
        False, "remove wiki markup, code and media links, as The Shape of Learning does"
    )
    cache: str = setting(CACHE, "folder for downloaded text and compiled programs")
