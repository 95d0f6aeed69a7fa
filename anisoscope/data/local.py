"""Read a local text: plain, .zip, .gz, .bz2 or .xz by its content, or a folder of such texts."""

import bz2
import codecs
import gzip
import lzma
import re
import sys
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from anisoscope.utils import memory
from anisoscope.utils.errors import UserError

_OPENERS = {  # {first bytes of a compressed file: function that opens it}
    rb"\x1f\x8b": gzip.open,
    rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)": bz2.open,
    rb"\xfd7zXZ\x00": lzma.open,
}
_ZIP = rb"PK(?:\x03\x04|\x05\x06)"
_TEXTS = re.compile(r"^[^.].*\.txt(\.(zip|gz|bz2|xz))?$", re.IGNORECASE)  # file names in a folder
_HEAD = 262  # bytes by which the format is recognized
COPIES = 3  # of a text that are in memory at once while it is split
# RuntimeError: a zip with a password or an unknown method
_DAMAGED = (EOFError, OSError, RuntimeError, ValueError)
_DAMAGED += (zipfile.BadZipFile, zlib.error, lzma.LZMAError)


def read_text(path: Path, longest: int | None = None) -> bytes:
    """Read a file, or the texts of a folder, joined in the order of their names.

    It may have `longest` bytes, unpacked, and never more than fit into memory.

    Raises:
        UserError: There is no text, or it is damaged or too long.
    """
    room = memory.machine_memory()
    limits = (longest, None if room is None else room // COPIES)
    longest = min((limit for limit in limits if limit is not None), default=sys.maxsize - 1)
    too_long = f"data.path {path} is too long: {longest:,} bytes at most can be read here"
    try:
        if path.is_dir():
            return _read_folder(path, longest)
        state = path.stat()
        if state.st_size > longest:
            raise UserError(f"{too_long}; take a part")
        with open(path, "rb") as file:
            text = _read_file(file, path, longest).removeprefix(codecs.BOM_UTF8)
        now = path.stat()
        if (state.st_size, state.st_mtime_ns) != (now.st_size, now.st_mtime_ns):
            raise UserError(f"data.path {path} changed while it was read; start again")
    except _DAMAGED as error:
        advice = "check the path and its rights, or copy it again"
        raise UserError(f"data.path {path} cannot be read ({error}); {advice}") from error
    if not text:
        raise UserError(f"data.path {path} is empty; name a text with --config.data.path=")
    if len(text) > longest:
        raise UserError(f"{too_long}; take a part")
    return text


def _read_folder(path: Path, longest: int) -> bytes:
    """Join the texts of a folder, with an empty line between two."""
    files = sorted(file for file in path.iterdir() if _TEXTS.search(file.name) and file.is_file())
    if not files:
        what = "is a folder without texts (*.txt, or packed, such as *.txt.gz)"
        raise UserError(f"data.path {path} {what}; name a text with --config.data.path=")
    texts = []
    for file in files:
        texts.append(read_text(file, longest - sum(map(len, texts))))
    return b"\n\n".join(texts)


def _read_file(file: BinaryIO, path: Path, most: int) -> bytes:
    """Read the text of a file; a file that unpacks to more than `most` bytes, up to `most` + 1."""
    head = file.read(_HEAD)
    file.seek(0)
    if re.match(_ZIP, head):
        text = _read_zip(file, path, most)
    else:
        opener = next((opener for magic, opener in _OPENERS.items() if re.match(magic, head)), None)
        if opener is None and b"\0" not in head:
            return file.read()
        text = head if opener is None else opener(file).read(most + 1)
    if b"\0" in text[:_HEAD]:
        advice = "unpack it, or convert it to UTF-8, and name the text with --config.data.path="
        raise UserError(f"data.path {path} holds binary data where the text should begin; {advice}")
    return text


def _read_zip(file: BinaryIO, path: Path, most: int) -> bytes:
    """Read the only text of an archive, or the text called enwik8 among several."""
    with zipfile.ZipFile(file) as archive:
        files = [info for info in archive.infolist() if not info.is_dir()]
        members = [info for info in files if not info.filename.startswith("__MACOSX/")]
        named = [info for info in members if PurePosixPath(info.filename).name == "enwik8"]
        chosen = members if len(members) == 1 else named
        if len(chosen) != 1:
            what = f"holds {len(members)} files, and not exactly one is called enwik8"
            advice = "unpack it and name the text with --config.data.path="
            raise UserError(f"data.path {path} {what}; {advice}")
        with archive.open(chosen[0]) as unpacked:
            return unpacked.read(most + 1)
