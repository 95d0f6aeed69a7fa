"""Load the text of a run as one array of tokens per split.

A local text is plain, .zip, .gz, .bz2 or .xz by its content, or a folder of such texts.
"""

import bz2
import codecs
import gzip
import hashlib
import lzma
import platform
import re
import stat
import sys
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import numpy as np

from anisoscope.config.run_config import DataConfig
from anisoscope.data import clean, enwik8
from anisoscope.utils import memory
from anisoscope.utils.errors import UserError
from anisoscope.utils.extras import required_by
from anisoscope.utils.progress import progress_bar

# A text with these first million characters begins as enwik8 does.
CHECKED_BYTES = 1_000_000
HEAD_SHA256 = "369b688978f649681136198fb96db14c1616756260c55fb4b65e9bc049552cad"
LONGEST_TEXT = 2**31 - 1  # positions in a text are int32 on every device


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """A text as tokens, split for training, validation and test."""

    name: str  # for figures: "enwik8", "pydoc (Python 3.11.7)", a file's name; "…, cleaned"
    vocabulary: bytes  # the byte values in use, ascending; token i is byte vocabulary[i]
    train: np.ndarray  # uint8 token ids
    valid: np.ndarray
    test: np.ndarray
    sha256: str  # digest of the text that is split
    origin: str  # path, address or Python version

    @property
    def mask_token(self) -> int:
        """The id of [MASK], after the ids of the bytes."""
        return len(self.vocabulary)

    @property
    def vocab_size(self) -> int:
        """Number of bytes in use and [MASK], for every mask, so that shapes agree."""
        return len(self.vocabulary) + 1

    def record(self) -> dict:
        """Describe the text for environment.json."""
        record = {name: getattr(self, name) for name in ("name", "origin", "sha256")}
        sizes = {name: getattr(self, name).size for name in ("train", "valid", "test")}
        return record | {"vocabulary": list(self.vocabulary), "characters": sizes}


def load_corpus(config: DataConfig, context: int, download: bool = True) -> Corpus:
    """Read, verify, clean if configured, and split a text; `download` allows a download.

    Raises:
        UserError: The text cannot be read, is too long, or a split is shorter than context + 1.
    """
    text, name, origin = _read(config, download)
    if config.clean:
        with progress_bar(
            None, "cleaning", "B", total=len(text), unit_scale=True, leave=False
        ) as shown:
            text, name = clean.clean(bytes(text), shown.update), f"{name}, cleaned"
    vocabulary = bytes(value for value in range(256) if value in text)
    token_of = bytes(max(vocabulary.find(value), 0) for value in range(256))
    tokens_N = np.frombuffer(text.translate(token_of), np.uint8)
    # 90, 5 and 5 per cent: the customary 90M, 5M and 5M characters of enwik8
    train, valid, test = np.split(tokens_N, [len(text) * 90 // 100, len(text) * 95 // 100])
    for split, split_N in (("train", train), ("valid", valid), ("test", test)):
        if len(split_N) < context + 1:
            what = f"its {split} split has {len(split_N):,} characters"
            need = f"one window needs {context + 1:,} (model.context + 1)"
            advice = "take a longer text or a smaller --config.model.context="
            raise UserError(f"{name} ({origin}): {what}, {need}; {advice}")
    if len(train) > LONGEST_TEXT:
        what = f"its training split has {len(train):,} characters, {LONGEST_TEXT:,} at most"
        raise UserError(f"{name} ({origin}): {what}; take a part")
    sha256 = hashlib.sha256(text).hexdigest()
    return Corpus(name, vocabulary, train, valid, test, sha256, origin)


def load_local(config: DataConfig, context: int) -> Corpus:
    """Load a text as `load_corpus` does; zeros of its size stand for the published enwik8."""
    if config.path is not None or config.source == "pydoc":
        return load_corpus(config, context)
    train, rest = (np.zeros(enwik8.SIZE * part // 100, np.uint8) for part in (90, 5))
    return Corpus(
        "enwik8",
        bytes(range(1, 1 + enwik8.DISTINCT_BYTES)),
        train,
        rest,
        rest,
        "",
        "zeros, not yet downloaded",
    )


def _read(config: DataConfig, download: bool) -> tuple[bytes | bytearray, str, str]:
    """Read the text, its name and its origin."""
    if config.source == "pydoc":
        if config.path is not None:
            raise UserError("data.source=pydoc takes no data.path; leave out one of the two")
        from pydoc_data.topics import topics

        python = f"Python {platform.python_version()}"
        text = "\n\n".join(topics[topic] for topic in sorted(topics)).encode()
        return text, f"pydoc ({python})", python
    if config.path is None:
        with required_by("data.source=enwik8"):
            from anisoscope.data.enwik8 import enwik8_dataset_builder  # imports TFDS
        text = enwik8_dataset_builder.read_enwik8(Path(config.cache).expanduser(), download)
        return text, "enwik8", enwik8_dataset_builder.URL
    path = Path(config.path).expanduser()
    text = read_text(path, None if config.clean else LONGEST_TEXT * 100 // 90 + 1)
    return text, _identify(text, path), str(path)


def _identify(text: bytes, path: Path) -> str:
    """Name a local text: "enwik8", or its file name and whether it begins as enwik8 does."""
    if len(text) == enwik8.SIZE:
        if hashlib.sha256(text).hexdigest() != enwik8.SHA256:
            what = f"has the size of enwik8 ({enwik8.SIZE:,} bytes) but not its sha256"
            advice = "copy or download it again; if it is another text, add or cut a character"
            raise UserError(f"data.path {path} {what}: {advice}")
        return "enwik8"
    if path.name in ("enwik8", "enwik8.zip", "enwik8.gz", "enwik8.bz2", "enwik8.xz"):
        what = f"holds {len(text):,} of the {enwik8.SIZE:,} bytes of enwik8"
        advice = "copy or download it again, or rename it if a part is meant"
        raise UserError(f"data.path {path} {what}: {advice}")
    digest = hashlib.sha256(text[:CHECKED_BYTES]).hexdigest()
    if CHECKED_BYTES <= len(text) < enwik8.SIZE and digest == HEAD_SHA256:
        return f"{path.name} (begins as enwik8)"
    return path.name


_OPENERS = {  # {first bytes of a compressed file: function that opens it}
    rb"\x1f\x8b": gzip.open,
    rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)": bz2.open,
    rb"\xfd7zXZ\x00": lzma.open,
}
_ZIP = rb"PK(?:\x03\x04|\x05\x06)"
_TEXTS = re.compile(r"^[^.].*\.txt(\.(zip|gz|bz2|xz))?$", re.IGNORECASE)  # file names in a folder
_HEAD = 262  # bytes by which the format is recognized
COPIES_OF_TEXT = 3  # copies of a text in memory while it is split
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
    limits = (longest, None if room is None else room // COPIES_OF_TEXT)
    longest = min((limit for limit in limits if limit is not None), default=sys.maxsize - 1)
    too_long = f"data.path {path} is too long: {longest:,} bytes at most can be read here"
    try:
        if path.is_dir():
            return _read_folder(path, longest)
        state = path.stat()
        if not stat.S_ISREG(state.st_mode):
            what = "is a device or a pipe, not a file"
            raise UserError(f"data.path {path} {what}; name a text with --config.data.path=")
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
