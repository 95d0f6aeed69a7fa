"""Load the text of a run as one array of tokens per split."""

import hashlib
import platform
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from anisoscope.config.run_config import DataConfig
from anisoscope.data import clean, enwik8, local
from anisoscope.data.enwik8 import enwik8_dataset_builder, prepare
from anisoscope.utils.errors import UserError
from anisoscope.utils.progress import bar

# A text with these first million characters begins as enwik8 does.
HEAD = 1_000_000
HEAD_SHA256 = "369b688978f649681136198fb96db14c1616756260c55fb4b65e9bc049552cad"
LARGEST = 2**31 - 1  # positions in a text are int32 on every device
MASK = "[MASK]"


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """A text as tokens, split for training, validation and test."""

    name: str  # for figures: "enwik8", "pydoc (Python 3.11.7)", a file's name; "…, cleaned"
    vocabulary: bytes  # the byte values in use, ascending; token i is byte vocabulary[i]
    train: np.ndarray  # uint8 token ids
    valid: np.ndarray
    test: np.ndarray
    sha256: str  # of the text that is split
    origin: str  # path, address or Python version

    @property
    def mask_token(self) -> int:
        """The id of [MASK], after the ids of the bytes."""
        return len(self.vocabulary)

    @property
    def vocab_size(self) -> int:
        """Number of bytes in use and [MASK], for every mask, so that shapes agree."""
        return len(self.vocabulary) + 1

    def characters(self, token_C: np.ndarray) -> list[str]:
        r"""Format tokens as Python writes bytes: a line break is \n, a byte beyond ASCII \xc3."""
        return [
            MASK if token == self.mask_token else repr(bytes([self.vocabulary[token]]))[2:-1]
            for token in token_C
        ]

    def record(self) -> dict:
        """Describe the text for environment.json."""
        record = {name: getattr(self, name) for name in ("name", "origin", "sha256")}
        sizes = {name: getattr(self, name).size for name in ("train", "valid", "test")}
        return record | {"vocabulary": list(self.vocabulary), "characters": sizes}


def load(config: DataConfig, context: int) -> Corpus:
    """Read, verify, clean if configured, and split a text.

    Raises:
        UserError: The text cannot be read, is too long, or a split is shorter than context + 1.
    """
    text, name, origin = _read(config)
    if config.clean:
        with bar(None, "cleaning", "B", total=len(text), unit_scale=True, leave=False) as shown:
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
    if len(train) > LARGEST:
        what = f"its training split has {len(train):,} characters, {LARGEST:,} at most"
        raise UserError(f"{name} ({origin}): {what}; take a part")
    sha256 = hashlib.sha256(text).hexdigest()
    return Corpus(name, vocabulary, train, valid, test, sha256, origin)


def _read(config: DataConfig) -> tuple[bytes | bytearray, str, str]:
    """Read the text, its name and its origin."""
    if config.source == "pydoc":
        if config.path is not None:
            raise UserError("data.source=pydoc takes no data.path; leave out one of the two")
        try:
            from pydoc_data.topics import topics
        except ImportError as error:
            advice = "this Python lacks pydoc_data; pass a text by data.path="
            raise UserError(f"data.source=pydoc: {advice}") from error
        python = f"Python {platform.python_version()}"
        text = "\n\n".join(topics[topic] for topic in sorted(topics)).encode()
        return text, f"pydoc ({python})", python
    if config.path is None:
        return prepare.read_enwik8(_expand(config.cache)), "enwik8", enwik8_dataset_builder.URL
    path = _expand(config.path)
    text = local.read_text(path, None if config.clean else LARGEST * 100 // 90 + 1)
    return text, _identify(text, path), str(path)


def _expand(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError as error:  # the user has no home folder, or does not exist
        raise UserError(f"{path}: ~ is no folder here; pass the full path") from error


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
    if HEAD <= len(text) < enwik8.SIZE and hashlib.sha256(text[:HEAD]).hexdigest() == HEAD_SHA256:
        return f"{path.name} (begins as enwik8)"
    return path.name
