"""A local text: plain, .zip, .gz, .bz2 or .xz, told apart by content; or a folder of such texts."""

import bz2
import codecs
import gzip
import lzma
import os
import re
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from anisoscope.utils import memory
from anisoscope.utils.errors import UserError
from anisoscope.utils.files import check_regular

_PACKED = {  # how compressed formats begin
    ".zip": rb"PK(?:\x03\x04|\x05\x06)",
    ".gz": rb"\x1f\x8b",
    ".bz2": rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)",
    ".xz": rb"\xfd7zXZ\x00",
}
_STREAMS: dict[str, Callable[[], Any]] = {".bz2": bz2.BZ2Decompressor, ".xz": lzma.LZMADecompressor}
_CONTROL = rb"[\x01-\x06\x0e-\x1a\x1c-\x1f]"  # characters that begin no text
_BINARY = re.compile(
    rb"\x00|\A[\x00-\xff]{0,7}" + _CONTROL + rb"|\A(?:%PDF-|\xff\xd8\xff|\xff\xfe|\xfe\xff)"
)
# files of a folder that are read
_NAMED = re.compile(r"^[^.].*\.txt(\.(zip|gz|bz2|xz))?$", re.IGNORECASE)
_HEAD = 262  # bytes that tell
COPIES = 3  # of a text, that are in memory at once while it is split
# what an archive may unpack to: so many times its size, or so many bytes
TIMES, LEAST = 50, 100_000_000
_DAMAGED = (
    EOFError,
    OSError,
    RuntimeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)


def read_text(path: Path, most: int | None = None, longest: int | None = None) -> bytes:
    """The uncompressed text, of `longest` bytes and unpacked to `most` at most; UserError where
    something is wrong.
    """
    there = memory.of_machine()
    limits = [longest, None if there is None else there // COPIES]
    longest = min((limit for limit in limits if limit is not None), default=sys.maxsize - 1)
    try:
        if path.is_dir():
            return _of_folder(path, most, longest)
        size = check_regular(path)
        if size > longest:
            raise UserError(_too_long(path, longest))
        with open(path, "rb") as file:
            before = os.fstat(file.fileno())
            most = min(longest, most or max(LEAST, TIMES * size))
            text = _unpacked(file, path, size, most).removeprefix(codecs.BOM_UTF8)
            after = os.fstat(file.fileno())
        if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
            raise UserError(
                f"data.path {path} changed while it was read: start again when it is complete"
            )
    except _DAMAGED as error:  # RuntimeError: a zip with a password or an unknown method
        advice = "check the path and its rights, or copy it again"
        raise UserError(f"data.path {path} cannot be read ({error}): {advice}") from error
    if not text:
        raise UserError(
            f"data.path {path} is empty: name a file that holds a text with --config.data.path="
        )
    if len(text) > longest:
        raise UserError(_too_long(path, longest))
    if len(text) > most:
        advice = "if all of it is meant, allow more with --config.data.unpack="
        raise UserError(f"data.path {path} unpacks to more than {most:,} bytes: {advice}")
    return text


def _of_folder(path: Path, most: int | None, longest: int) -> bytes:
    """Its texts in the order of their names, an empty line between two."""
    texts = sorted(one for one in path.iterdir() if _NAMED.search(one.name) and not one.is_dir())
    if not texts:
        words = "is a folder without texts (*.txt, or packed as *.txt.gz, say)"
        raise UserError(f"data.path {path} {words}: name a text with --config.data.path=")
    contents = []
    for one in texts:
        contents.append(read_text(one, most, longest - sum(map(len, contents))))
    return b"\n\n".join(contents)


def _too_long(path: Path, longest: int) -> str:
    return f"data.path {path} is too long: {longest:,} bytes at most can be read here: take a part"


def _unpacked(file: BinaryIO, path: Path, size: int, most: int) -> bytes:
    """The text; of one that unpacks to more than `most` bytes, no more than one of those further is
    unpacked.
    """
    head = file.read(_HEAD)
    file.seek(0)
    kind = next((kind for kind, begins in _PACKED.items() if re.match(begins, head)), None)
    if kind is None:
        if head and path.suffix.lower() in _PACKED:
            advice = "copy it again, or rename it if it is plain text"
            raise UserError(f"data.path {path} is no {path.suffix} file: {advice}")
        _expect_text(head, path)  # before the whole of it is read
        return file.read(size)
    if kind == ".zip":
        text = _of_zip(file, path, most)
    elif kind == ".gz":
        with gzip.open(file) as unpacked:
            text = unpacked.read(most + 1)
    else:
        text = _of_streams(file.read(), kind, most)
    _expect_text(text[:_HEAD], path)
    return text


def _expect_text(head: bytes, path: Path) -> None:
    if _BINARY.search(head) or any(re.match(begins, head) for begins in _PACKED.values()):
        advice = "unpack it, or convert it to UTF-8, and name the text with --config.data.path="
        raise UserError(f"data.path {path} holds binary data where the text should begin: {advice}")


def _of_zip(file: BinaryIO, path: Path, most: int) -> bytes:
    """The one text, or the one called enwik8 among several."""
    with zipfile.ZipFile(file) as archive:
        # the directory's end is 22 bytes and a comment
        file.seek(-len(archive.comment) - 22, os.SEEK_END)
        if file.read(4) != b"PK\x05\x06":
            raise zipfile.BadZipFile("there are other bytes behind it")
        files = [info for info in archive.infolist() if not info.is_dir()]
        members = [info for info in files if not info.filename.startswith("__MACOSX/")]
        named = [info for info in members if PurePosixPath(info.filename).name == "enwik8"]
        chosen = members if len(members) == 1 else named
        if len(chosen) != 1:
            words = f"holds {len(members)} files and not one alone called enwik8"
            raise UserError(
                f"data.path {path} {words}: unpack it and name the text with --config.data.path="
            )
        with archive.open(chosen[0]) as unpacked:
            return unpacked.read(most + 1)


def _of_streams(packed: bytes, kind: str, most: int) -> bytes:
    """Of one stream, or of several one after another. Python's own readers take what follows the
    first for nothing.
    """
    text = b""
    while packed and len(text) <= most:
        stream = _STREAMS[kind]()
        text += stream.decompress(packed, most + 1 - len(text))
        if len(text) <= most and not stream.eof:
            raise EOFError("it ends within the compressed text")
        packed = stream.unused_data.lstrip(b"\0")  # .xz may be filled up with zeros
        if packed and not re.match(_PACKED[kind], packed):
            raise EOFError("there are other bytes behind it")
    return text
