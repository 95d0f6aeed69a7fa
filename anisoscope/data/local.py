"""A local text: plain, .zip, .gz, .bz2 or .xz, told apart by content; or a folder of such texts."""

import bz2
import gzip
import lzma
import os
import re
import sys
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from anisoscope.utils import memory
from anisoscope.utils.errors import UserError

_STREAMS = {".bz2": bz2.BZ2Decompressor, ".xz": lzma.LZMADecompressor}
_PACKED = {  # how compressed formats begin: those that are read, and those that must not pass for a text
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
_OTHERS = {  # how formats begin that hold no text at all
    "NumPy (.npy)": rb"\x93NUMPY",
    "pickle": rb"\x80[\x02-\x05]",
    "safetensors": rb"[\x00-\xff]{6}\x00\x00\{\"",
    "HDF5": rb"\x89HDF",
    "NetCDF": rb"CDF[\x01\x02\x05]",
    "Parquet": rb"PAR1",
    "GGUF": rb"GGUF",
    "PDF": rb"%PDF-",
    "PNG": rb"\x89PNG",
    "JPEG": rb"\xff\xd8\xff",
    "WAV": rb"RIFF[\x00-\xff]{4}WAVE",
}
_WIDE = {  # characters of two or four bytes: marks at the beginning, or every second byte 0
    "UTF-32": rb"\xff\xfe\x00\x00|\x00\x00\xfe\xff",
    "UTF-16": rb"\xff\xfe|\xfe\xff|(?:[^\x00]\x00){24}|(?:\x00[^\x00]){24}",
}
_NAMED = re.compile(r"^[^.].*\.txt(\.(zip|gz|bz2|xz))?$", re.IGNORECASE)  # files of a folder that are read
_HEAD = 262  # bytes, enough for each of them
_CHUNK = 1 << 20  # bytes unpacked at a time
COPIES = 3  # of a text, that are in memory at once while it is split
TIMES, LEAST = 50, 100_000_000  # what an archive may unpack to: so many times its size, or so many bytes


def read(path: Path, most: int | None = None, longest: int | None = None) -> bytes:
    """The uncompressed text of `path`, or a UserError that says what is wrong with it.

    `most` is how many bytes may be unpacked, where it is not for this file to say: no text is packed to a 50th.
    `longest` is how long a text may be at all; it is as long as memory is large where that is not given.
    """
    there = memory.of_machine()
    room = [count for count in (longest, there and there // COPIES) if count is not None]
    longest = min(room, default=sys.maxsize - 1)
    try:
        if not path.exists():
            raise UserError(f"data.path {path} does not exist: check --config.data.path=")
        if path.is_dir():
            return _of_folder(path, most, longest)
        if not path.is_file():
            raise UserError(f"data.path {path} is not a file: name the text itself with --config.data.path=")
        with open(path, "rb") as file:
            before = os.fstat(file.fileno())
            if not before.st_size:  # files of /proc say no size either
                raise UserError(_empty(path))
            if before.st_size > longest:
                raise UserError(_too_long(path, before.st_size, longest))
            text = _decompressed(file, path, min(longest, most or max(LEAST, TIMES * before.st_size)), longest)
            after = os.fstat(file.fileno())
    except gzip.BadGzipFile as error:
        raise UserError(_trailing(path) if "Not a gzipped file" in str(error) else _damaged(path, error)) from error
    except (EOFError, OSError, RuntimeError, UnicodeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError) as error:
        # RuntimeError: a zip with a password or an unknown method. The OSError of a decompressor has no number.
        if isinstance(error, RuntimeError) or getattr(error, "errno", None):
            raise UserError(f"data.path {path} cannot be read ({error}): check its rights and format") from error
        raise UserError(_damaged(path, error)) from error
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise UserError(f"data.path {path} changed while it was read: start again when it is complete")
    if not text:
        raise UserError(_empty(path))
    _expect_text(text[:_HEAD], path)
    return text


def _of_folder(path: Path, most: int | None, longest: int) -> bytes:
    """Its texts in the order of their names, an empty line between two."""
    texts = sorted(one for one in path.iterdir() if _NAMED.search(one.name) and not one.is_dir())
    if not texts:
        raise UserError(
            f"data.path {path} is a folder without texts (*.txt, or packed as *.txt.gz, say): "
            "name a text with --config.data.path="
        )
    found, left = [], longest
    for one in texts:
        found.append(read(one, most, left))
        left -= len(found[-1])
    return b"\n\n".join(found)


def _empty(path: Path) -> str:
    return f"data.path {path} is empty: name a file that holds a text with --config.data.path="


def _too_long(path: Path, size: int, longest: int) -> str:
    return f"data.path {path} holds {size:,} bytes or more, and {longest:,} at most can be read here: take a part"


def _damaged(path: Path, why: Exception) -> str:
    return f"data.path {path} is damaged or cut short ({why}): copy or download it again"


def _trailing(path: Path) -> str:
    return f"data.path {path} has other bytes behind its compressed text: copy or download it again, or cut them off"


def _kind(head: bytes, kinds: dict[str, bytes] = _PACKED) -> str | None:
    return next((kind for kind, magic in kinds.items() if re.match(magic, head)), None)


def _expect_text(head: bytes, path: Path) -> None:
    if kind := _kind(head):
        raise UserError(
            f"data.path {path} holds {kind} data where the text should begin: "
            "unpack it first and name the text with --config.data.path="
        )
    if kind := _kind(head, _OTHERS):
        raise UserError(f"data.path {path} holds {kind} data and no text: name a text with --config.data.path=")
    if kind := _kind(head, _WIDE):
        advice = f"convert it, as with iconv -f {kind} -t UTF-8, and name the result with --config.data.path="
        raise UserError(f"data.path {path} is {kind} text, where a character takes several bytes: {advice}")


def _decompressed(file: BinaryIO, path: Path, most: int, longest: int) -> bytes:
    head = file.read(_HEAD)
    file.seek(0)
    kind = _kind(head)
    if kind is None and head and path.suffix.lower() in _PACKED:
        raise UserError(f"data.path {path} is no {path.suffix} file: copy it again, or rename it if it is plain text")
    if kind == ".zip":
        text = _of_zip(file, path, most)
    elif kind == ".gz":
        with gzip.open(file) as unpacked:
            text = unpacked.read(most + 1)
    elif kind in _STREAMS:
        text = _of_streams(file, path, kind, most)
    else:
        _expect_text(head, path)  # before the whole of it is read
        return file.read(os.fstat(file.fileno()).st_size + 1)  # by one more where it grows, which is told
    if len(text) > longest:
        raise UserError(_too_long(path, len(text), longest))
    if len(text) > most:
        advice = "if all of it is meant, allow more with --config.data.unpack="
        raise UserError(f"data.path {path} unpacks to more than {most:,} bytes: {advice}")
    return text


def _of_zip(file: BinaryIO, path: Path, most: int) -> bytes:
    with zipfile.ZipFile(file) as archive:
        file.seek(-len(archive.comment) - 22, os.SEEK_END)  # the directory's end is 22 bytes and a comment
        if not file.read(4) == b"PK\x05\x06":
            raise UserError(_trailing(path))
        with archive.open(_member(archive, path)) as unpacked:
            return unpacked.read(most + 1)


def _of_streams(file: BinaryIO, path: Path, kind: str, most: int) -> bytes:
    """Of one compressed stream, or of several one after another; of more than `most` bytes no more is unpacked.

    Python's own readers take whatever follows the first stream for nothing, and say no word.
    """
    text, rest = bytearray(), file.read()
    while rest:
        stream = _STREAMS[kind]()
        while not stream.eof and len(text) <= most:
            if stream.needs_input and not rest:
                raise EOFError("it ends within the compressed text")
            text += stream.decompress(rest, _CHUNK)
            rest = b""
        if len(text) > most:
            break
        rest = stream.unused_data.lstrip(b"\0")  # .xz may be filled up with zeros
        if rest and _kind(rest) != kind:
            raise UserError(_trailing(path))
    return bytes(text)


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
