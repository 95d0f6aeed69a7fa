import bz2
import codecs
import gzip
import lzma
import os
import pickle
import tracemalloc

import pytest

from anisoscope.data import corpus
from anisoscope.utils import memory
from tests.data.conftest import zipped

TEXT = b"In the beginning was the word. " * 400
PACK = {
    "plain": lambda text: text,
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zip": lambda text: zipped(text=text),
}
PACKED = [kind for kind in PACK if kind != "plain"]


BINARY = {
    "lzma": lzma.compress(TEXT, lzma.FORMAT_ALONE),
    "7z": b"7z\xbc\xaf\x27\x1c" + bytes(range(256)),
    "pickle": pickle.dumps(list(range(300))),
    "safetensors": (64).to_bytes(8, "little") + b'{"weight":{"dtype":"F32"}}',
} | {code: TEXT.decode().encode(code) for code in ("utf-16", "utf-16-be", "utf-32")}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "text"


@pytest.mark.parametrize("kind", PACK)
def test_compression_is_told_by_content(path, refused, kind):
    for mark in (b"", codecs.BOM_UTF8):
        path.write_bytes(PACK[kind](mark + TEXT))
        assert corpus.read_text(path) == TEXT
    path.write_bytes(PACK[kind](b""))
    with refused(str(path), "is empty", "--config.data.path="):
        corpus.read_text(path)


@pytest.mark.parametrize("kind", PACKED)
def test_what_is_damaged_is_refused(path, refused, kind):
    packed = bytearray(PACK[kind](os.urandom(5000)))
    flipped = packed[:2500] + bytes([packed[2500] ^ 0xFF]) + packed[2501:]
    cut = packed[: len(packed) // 2], packed[: int(len(packed) * 0.99)]
    for damaged in (*cut, flipped):
        path.write_bytes(damaged)
        with refused(str(path), "cannot be read", "copy it again"):
            corpus.read_text(path)


@pytest.mark.parametrize("kind", BINARY)
def test_what_is_binary_is_no_text(path, refused, kind):
    for pack in (PACK["plain"], PACK["zip"]):
        path.write_bytes(pack(BINARY[kind]))
        with refused(str(path), "binary data where the text should begin", "--config.data.path="):
            corpus.read_text(path)


@pytest.mark.parametrize("kind", PACKED)
def test_what_unpacks_to_more_than_fits_into_memory_is_not_unpacked(
    path, refused, monkeypatch, kind
):
    path.write_bytes(PACK[kind](b" " * 20_000_000))
    with refused("19,999,999 bytes at most can be read here"):
        corpus.read_text(path, longest=19_999_999)
    monkeypatch.setattr(memory, "machine_memory", lambda: 3_000_000)
    tracemalloc.start()
    with refused(str(path), "1,000,000 bytes at most can be read here"):
        corpus.read_text(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12_000_000


def test_the_texts_of_a_folder_in_the_order_of_their_names(tmp_path, refused):
    with refused(str(tmp_path), "is a folder without texts", "--config.data.path="):
        corpus.read_text(tmp_path)
    texts = {"b.txt": b"second", "a.TXT": b"first", ".hidden.txt": b"no", "notes.md": b"no"}
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text)
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(b"third"))
    (tmp_path / "a folder.txt").mkdir()
    assert corpus.read_text(tmp_path) == b"first\n\nsecond\n\nthird"
    with refused("c.txt.gz", "is too long"):
        corpus.read_text(tmp_path, longest=15)
    (tmp_path / "d.txt").write_bytes(BINARY["7z"])
    with refused("d.txt", "holds binary data"):
        corpus.read_text(tmp_path)


def test_zip_files_that_are_not_one_text(path, refused):
    path.write_bytes(zipped(readme=b"read me", enwik8=TEXT, **{"folder/": b"", "__MACOSX/x": b"x"}))
    assert corpus.read_text(path) == TEXT
    path.write_bytes(zipped(one=TEXT, two=TEXT))
    with refused(str(path), "holds 2 files", "unpack it", "--config.data.path="):
        corpus.read_text(path)
    packed = bytearray(zipped(text=TEXT))
    packed[6] |= 1  # the flag of encryption, in the file's header and in the directory
    packed[packed.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(packed)
    with refused(str(path), "cannot be read", "password"):
        corpus.read_text(path)
