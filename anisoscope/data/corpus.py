"""The text a run is trained on, as one array of tokens per split."""

import hashlib
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from anisoscope.config.data_config import DataConfig
from anisoscope.data import clean, enwik8, local
from anisoscope.data.enwik8 import enwik8_dataset_builder, prepare
from anisoscope.utils.errors import UserError
from anisoscope.utils.progress import bar

# The first million characters of enwik8 tell texts that begin with it from others; a prefix longer
# than that is not known to be one.
HEAD = 1_000_000
LARGEST = 2**31 - 1  # places in a text are int32 on every device
MASK = "[MASK]"
HEAD_SHA256 = "369b688978f649681136198fb96db14c1616756260c55fb4b65e9bc049552cad"


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    # for figures: "enwik8", "pydoc (Python 3.11.7)", a file's name; says what was checked of it,
    # and cleaned
    name: str
    vocabulary: bytes  # the byte values in use, ascending; token i is byte vocabulary[i]
    train: np.ndarray  # uint8 token ids
    valid: np.ndarray
    test: np.ndarray
    sha256: str  # of the text that is split
    origin: str  # path, address or Python version

    @property
    def mask_token(self) -> int:
        """The id of [MASK], after those of the bytes."""
        return len(self.vocabulary)

    @property
    def vocab_size(self) -> int:
        """Bytes in use and [MASK]; the same for encoder and decoder, so that their parameters have
        the same shapes.
        """
        return len(self.vocabulary) + 1

    def characters(self, token_C: np.ndarray) -> list[str]:
        """As Python writes them in bytes: a line break is \\n, and what is no ASCII \\xc3."""
        return [
            MASK if token == self.mask_token else repr(bytes([self.vocabulary[token]]))[2:-1]
            for token in token_C
        ]

    def record(self) -> dict:
        return {
            "name": self.name,
            "origin": self.origin,
            "sha256": self.sha256,
            "vocabulary": list(self.vocabulary),
            "characters": {
                "train": self.train.size,
                "valid": self.valid.size,
                "test": self.test.size,
            },
        }


def load(config: DataConfig, context: int) -> Corpus:
    """Read, verify, clean if asked, and split; every split holds at least one window of context + 1
    characters.
    """
    text, name, origin = _read(config)
    if config.clean:
        text, name = _cleaned(text), f"{name}, cleaned"
    vocabulary = bytes(value for value in range(256) if value in text)
    token_of = bytes(max(vocabulary.find(value), 0) for value in range(256))
    tokens_N = np.frombuffer(text.translate(token_of), np.uint8)
    # 90, 5 and 5 per cent: the customary 90M, 5M and 5M characters of the whole enwik8.
    train, valid, test = np.split(tokens_N, [len(text) * 90 // 100, len(text) * 95 // 100])
    for split, split_N in (("train", train), ("valid", valid), ("test", test)):
        if len(split_N) < context + 1:
            words = f"has {len(split_N):,} characters, one window needs {context + 1:,} (model.context + 1)"
            advice = "take a longer text or a smaller --config.model.context="
            raise UserError(f"{name} ({origin}): its {split} split {words}: {advice}")
    if len(train) > LARGEST:
        words = f"has {len(train):,} characters, {LARGEST:,} at most: take a part"
        raise UserError(f"{name} ({origin}): its training split {words}")
    digest = hashlib.sha256(text).hexdigest()
    return Corpus(
        name=name,
        vocabulary=vocabulary,
        train=train,
        valid=valid,
        test=test,
        sha256=digest,
        origin=origin,
    )


def _read(config: DataConfig) -> tuple[bytes | bytearray, str, str]:  # text, name and origin
    if config.source == "pydoc":
        if config.path is not None:
            raise UserError("data.source=pydoc takes no data.path: leave one of the two out")
        try:
            from pydoc_data.topics import topics
        except ImportError as error:
            advice = "name a text by data.path with data.source=enwik8, or install it with Python"
            raise UserError(f"data.source=pydoc: this Python lacks pydoc_data; {advice}") from error

        text = "\n\n".join(topics[topic] for topic in sorted(topics)).encode()
        return (
            text,
            f"pydoc (Python {platform.python_version()})",
            f"Python {platform.python_version()}",
        )
    if config.path is None:
        return prepare.read_enwik8(_expanded(config.cache)), "enwik8", enwik8_dataset_builder.URL
    path = _expanded(config.path)
    text = local.read_text(path, config.unpack, None if config.clean else LARGEST * 100 // 90 + 1)
    return text, _identified(text, path), str(path)


def _expanded(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError as error:  # of a user without a home folder, or of nobody
        raise UserError(
            f"{path}: what ~ stands for is not known here: write the path out"
        ) from error


def _identified(text: bytes, path: Path) -> str:
    """What to call a local text: enwik8 if it is, else its file's name, and whether it begins as
    enwik8 does.
    """
    if len(text) == enwik8.SIZE:
        if hashlib.sha256(text).hexdigest() != enwik8.SHA256:
            raise UserError(
                f"data.path {path} has the size of enwik8 ({enwik8.SIZE:,} bytes) but not its sha256: "
                "copy or download it again, or, if it is another text, add or cut a character"
            )
        return "enwik8"
    if path.name in ("enwik8", "enwik8.zip", "enwik8.gz", "enwik8.bz2", "enwik8.xz"):
        raise UserError(
            f"data.path {path} holds {len(text):,} of the {enwik8.SIZE:,} bytes of enwik8: "
            "copy or download it again, or rename it if a part is meant"
        )
    if HEAD <= len(text) < enwik8.SIZE and hashlib.sha256(text[:HEAD]).hexdigest() == HEAD_SHA256:
        return f"{path.name} (begins as enwik8)"
    return path.name


def _cleaned(text: bytes | bytearray) -> bytes:
    with bar(None, "cleaning", "B", total=len(text), unit_scale=True, leave=False) as shown:

        def chunks() -> Iterator[bytes]:
            for start in range(0, len(text), clean.UNIT):
                chunk = bytes(text[start : start + clean.UNIT])
                yield chunk
                shown.update(len(chunk))

        return b"".join(clean.stream(chunks()))
