"""Which text: every setting and its default."""

from dataclasses import dataclass

from anisoscope.utils.compiled import CACHE
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import check_fields, setting

SOURCES = ("enwik8", "pydoc")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    source: str = setting(
        "enwik8", "pydoc is the language reference inside CPython", choices=SOURCES
    )
    path: str | None = setting(None, "an enwik8, or any text: plain, .zip, .gz, .bz2, .xz")
    max_unpacked_bytes: int | None = setting(
        None, "most bytes of such an archive; left out: 50 × its own, or 100 MB", low=1
    )
    clean: bool = setting(False, "strip markup, code and media, as The Shape of Learning does")
    cache: str = setting(CACHE, "where a downloaded enwik8 and compiled programs are kept")


def check_data(data: DataConfig) -> None:
    """Raise UserError, one line, where a setting cannot be."""
    check_fields(data, "data.")
    if not data.cache:
        raise UserError("data.cache is empty; name a folder, or leave it out")
