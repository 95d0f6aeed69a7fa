"""A local text: plain, .zip, .gz, .bz2 or .xz, told apart by content."""

import bz2
import gzip
import lzma
import os
import re
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from workdir.errors import UserError

_OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_MAGIC = {  # how the formats begin: those that are read, and those that must not pass for a text
    ".zip": rb"PK(?:\x03\x04|\x05\x06)",
    ".gz": rb"\x1f\x8b",
    ".bz2": rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)",
    ".xz": rb"\xfd7zXZ\x00",
    ".zst": rb"(?:\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18)",
    ".lz4": rb"(?:\x04\x22\x4d\x18|\x02\x21\x4c\x18)",
    ".lzma": rb"\x5d\x00\x00[\x00-\xff]{2}\xff{7}",
    ".lz": rb"LZIP\x01",
    ".z": rb"\x1f\x9d",
    ".7z": rb"7z\xbc\xaf\x27\x1c",
    ".rar": rb"Rar!\x1a\x07",
    ".tar": rb"[\x00-\xff]{257}ustar",
}
_HEAD = 262  # bytes, enough for each of them


def read(path: Path) -> bytes:
    """The uncompressed text of `path`, or a UserError that says what is wrong with it."""
    try:
        if not path.exists():
            raise UserError(f"data.path {path} does not exist: check --config.data.path=")
        if not path.is_file():
            raise UserError(f"data.path {path} is not a file: name the text itself with --config.data.path=")
        with open(path, "rb") as file:
            before = os.fstat(file.fileno())
            text = _decompressed(file, path)
            after = os.fstat(file.fileno())
    except (EOFError, OSError, RuntimeError, UnicodeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError) as error:
        # RuntimeError: a zip with a password or an unknown method. The OSError of a decompressor has no number.
        if isinstance(error, RuntimeError) or getattr(error, "errno", None):
            raise UserError(f"data.path {path} cannot be read ({error}): check its rights and format") from error
        raise UserError(f"data.path {path} is damaged or cut short ({error}): copy or download it again") from error
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise UserError(f"data.path {path} changed while it was read: start again when it is complete")
    if not text:
        raise UserError(f"data.path {path} is empty: name a file that holds a text with --config.data.path=")
    _expect_text(text[:_HEAD], path)
    return text


def _kind(head: bytes) -> str | None:
    return next((kind for kind, magic in _MAGIC.items() if re.match(magic, head)), None)


def _expect_text(head: bytes, path: Path) -> None:
    if kind := _kind(head):
        raise UserError(
            f"data.path {path} holds {kind} data where the text should begin: "
            "unpack it first and name the text with --config.data.path="
        )


def _decompressed(file: BinaryIO, path: Path) -> bytes:
    head = file.read(_HEAD)
    file.seek(0)
    kind = _kind(head)
    if kind is None and head and path.suffix.lower() in _MAGIC:
        raise UserError(f"data.path {path} is no {path.suffix} file: copy it again, or rename it if it is plain text")
    if kind == ".zip":
        with zipfile.ZipFile(file) as archive:
            return archive.read(_member(archive, path))
    if kind in _OPENERS:
        with _OPENERS[kind](file) as unpacked:
            return unpacked.read()
    _expect_text(head, path)  # before the whole of it is read
    return file.read()


def _member(archive: zipfile.ZipFile, path: Path) -> zipfile.ZipInfo:
    """The one text of a zip file, or the one called enwik8 among several."""
    files = [info for info in archive.infolist() if not info.is_dir() and not info.filename.startswith("__MACOSX/")]
    named = [info for info in files if PurePosixPath(info.filename).name == "enwik8"]
    for choice in (files, named):
        if len(choice) == 1:
            return choice[0]
    raise UserError(
        f"data.path {path} holds {len(files)} files and not one alone called enwik8: "
        "unpack it and name the text with --config.data.path="
    )
