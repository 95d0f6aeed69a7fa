"""A local text: plain, .zip, .gz or .xz, told apart by content."""

import gzip
import lzma
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from errors import UserError

_MAGIC = {b"PK\x03\x04": ".zip", b"PK\x05\x06": ".zip", b"\x1f\x8b": ".gz", b"\xfd7zXZ\x00": ".xz"}


def read(path: Path) -> bytes:
    """The uncompressed text of `path`, or a UserError that says what is wrong with it."""
    try:
        if not path.exists():
            raise UserError(f"data.path {path} does not exist: check --config.data.path=")
        if not path.is_file():
            raise UserError(f"data.path {path} is not a file: name the text itself with --config.data.path=")
        text = _decompressed(path)
    except (EOFError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise UserError(f"data.path {path} is damaged or cut short ({error}): copy or download it again") from error
    except (OSError, RuntimeError) as error:  # RuntimeError: a zip with a password or an unknown method
        raise UserError(f"data.path {path} cannot be read ({error}): check its rights and format") from error
    if not text:
        raise UserError(f"data.path {path} is empty: name a file that holds a text with --config.data.path=")
    return text


def _decompressed(path: Path) -> bytes:
    with open(path, "rb") as file:
        head = file.read(6)
    kind = next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)
    if kind is None and head and path.suffix.lower() in _MAGIC.values():
        raise UserError(f"data.path {path} is no {path.suffix} file: copy it again, or rename it if it is plain text")
    if kind == ".zip":
        with zipfile.ZipFile(path) as archive:
            return archive.read(_member(archive, path))
    opener = {".gz": gzip.open, ".xz": lzma.open, None: open}[kind]
    with opener(path, "rb") as file:
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
