import bz2
import gzip
import io
import lzma
import os
import pathlib
import pickle
import tarfile
import tracemalloc

import numpy as np
import pytest

from anisoscope.data import local
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
FOREIGN = {
    "zst": b"\x28\xb5\x2f\xfd",
    "lz4": b"\x04\x22\x4d\x18",
    "lzma": lzma.compress(TEXT, lzma.FORMAT_ALONE),
    "lz": b"LZIP\x01",
    "z": b"\x1f\x9d\x90",
    "7z": b"7z\xbc\xaf\x27\x1c",
    "rar": b"Rar!\x1a\x07\x01\x00",
}


def saved(save, *args):
    file = io.BytesIO()
    save(file, *args)
    return file.getvalue()


NO_TEXT = {
    "NumPy": saved(np.save, np.zeros(300)),
    "NumPy ": saved(np.savez, np.zeros(300)),
    "pickle": pickle.dumps(list(range(300))),
    "safetensors": (64).to_bytes(8, "little") + b'{"weight":{"dtype":"F32"}}',
}


@pytest.mark.parametrize("name", ["text", "text.bin", "text.data"])
@pytest.mark.parametrize("kind", PACK)
def test_compression_is_told_by_content(tmp_path, kind, name):
    path = tmp_path / name
    path.write_bytes(PACK[kind](TEXT))
    assert local.read(path) == TEXT


@pytest.mark.parametrize("keep", [0.5, 0.99])
@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zip"])
def test_truncated(tmp_path, refused, kind, keep):
    path = tmp_path / f"text.{kind}"
    packed = PACK[kind](os.urandom(5000))
    path.write_bytes(packed[: int(len(packed) * keep)])
    with refused(str(path), "damaged or cut short", "copy or download it again"):
        local.read(path)


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zip"])
def test_flipped_byte(tmp_path, refused, kind):
    path = tmp_path / f"text.{kind}"
    packed = bytearray(PACK[kind](os.urandom(5000)))
    packed[2500] ^= 0xFF
    path.write_bytes(packed)
    with refused(str(path), "damaged or cut short"):
        local.read(path)


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zip", *FOREIGN])
def test_a_suffix_that_does_not_fit_the_content(tmp_path, refused, kind):
    path = tmp_path / f"enwik8.{kind}"
    path.write_bytes(b"<html>404 Not Found</html>")
    with refused(str(path), f"is no .{kind} file", "copy it again"):
        local.read(path)


@pytest.mark.parametrize("kind", FOREIGN)
def test_other_compressions_are_no_text(tmp_path, refused, kind):
    path = tmp_path / "text"
    for pack in PACK.values():  # alone, and inside another file
        path.write_bytes(pack(FOREIGN[kind] + bytes(range(256))))
        with refused(str(path), f"holds .{kind} data", "unpack it first", "--config.data.path="):
            local.read(path)


@pytest.mark.parametrize("kind", NO_TEXT)
def test_arrays_and_objects_are_no_text(tmp_path, refused, kind):
    path = tmp_path / "text"
    for pack in (PACK["plain"], *[PACK["gz"]] * (kind != "NumPy ")):  # .npz is a zip file itself
        path.write_bytes(pack(NO_TEXT[kind]))
        with refused(str(path), f"holds {kind.strip()}", "and no text", "--config.data.path="):
            local.read(path)


@pytest.mark.parametrize("code", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_wide_characters_are_to_be_converted(tmp_path, refused, code):
    path = tmp_path / "text"
    path.write_bytes(TEXT.decode().encode(code))
    with refused(str(path), f"is {code[:6].upper()} text", f"iconv -f {code[:6].upper()} -t UTF-8"):
        local.read(path)


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zip"])
@pytest.mark.parametrize("behind", [b"x", b"and what follows is no part of it", TEXT])
def test_bytes_behind_the_compressed_text_are_not_passed_over(tmp_path, refused, kind, behind):
    path = tmp_path / "text"
    path.write_bytes(PACK[kind](TEXT) + behind)
    with refused(str(path), "has other bytes behind its compressed text", "cut them off"):
        local.read(path)


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zip"])
def test_what_unpacks_to_far_more_is_not_unpacked_unless_asked_for(tmp_path, refused, monkeypatch, kind):
    path = tmp_path / "text"
    packed = PACK[kind](b" " * 10_000_000)
    path.write_bytes(packed)
    monkeypatch.setattr(local, "LEAST", 1_000_000)
    most = max(1_000_000, 50 * len(packed))
    tracemalloc.start()
    with refused(str(path), f"unpacks to more than {most:,} bytes", "--config.data.unpack="):
        local.read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12_000_000
    assert len(local.read(path, 10_000_000)) == 10_000_000
    with refused("more than 9,999,999 bytes"):
        local.read(path, 9_999_999)


def test_archive_or_second_compression_inside(tmp_path, refused):
    path = tmp_path / "text.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(__file__)
    with refused(str(path), "holds .tar data", "unpack it first"):
        local.read(path)
    path = tmp_path / "text.zip"
    path.write_bytes(zipped(text=bz2.compress(TEXT)))
    with refused(str(path), "holds .bz2 data", "unpack it first"):
        local.read(path)


@pytest.mark.parametrize(
    "start", [b"BZh1, my friend", b"PK", b"LZIP", b"7z", b"Rar!", b"](", b"]\0\0\0 \0\0\0", b"\x93NUMBER", b"a\0b"]
)
def test_a_text_that_begins_almost_like_a_compressed_one(tmp_path, start):
    path = tmp_path / "text"
    path.write_bytes(start + TEXT)
    assert local.read(path) == start + TEXT


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz"])
def test_several_streams_are_one_text(tmp_path, refused, kind):
    path, both = tmp_path / "text", PACK[kind](TEXT) + PACK[kind](b"And the end.")
    path.write_bytes(both + bytes(4) * (kind != "bz2"))  # filled up, as tape and tools do
    assert local.read(path) == TEXT + b"And the end."
    path.write_bytes(both[:-1])
    with refused(str(path), "damaged or cut short"):
        local.read(path)


@pytest.mark.parametrize("kind", PACK)
@pytest.mark.parametrize("mode", ["ab", "r+b"], ids=["grows", "is overwritten"])
def test_file_that_changes_while_it_is_read(tmp_path, refused, monkeypatch, kind, mode):
    path = tmp_path / "text"
    path.write_bytes(PACK[kind](TEXT))
    os.utime(path, (1, 1))
    decompressed = local._decompressed

    def during(*args):
        text = decompressed(*args)
        with open(path, mode) as file:
            file.write(b"I")
        return text

    monkeypatch.setattr(local, "_decompressed", during)
    with refused(str(path), "changed while it was read"):
        local.read(path)


@pytest.mark.parametrize("kind", PACK)
def test_empty(tmp_path, refused, kind):
    path = tmp_path / "text"
    path.write_bytes(PACK[kind](b""))
    with refused(str(path), "is empty", "--config.data.path="):
        local.read(path)


def test_the_texts_of_a_folder_in_the_order_of_their_names(tmp_path, refused):
    for name, text in (("b.txt", b"second"), ("a.TXT", b"first"), (".hidden.txt", b"no"), ("notes.md", b"no")):
        (tmp_path / name).write_bytes(text)
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(b"third"))
    (tmp_path / "a folder.txt").mkdir()
    assert local.read(tmp_path) == b"first\n\nsecond\n\nthird"
    (tmp_path / "d.txt").write_bytes(FOREIGN["rar"])
    with refused("d.txt", "holds .rar data"):
        local.read(tmp_path)


def test_missing_folder_and_unreadable(tmp_path, refused, monkeypatch):
    with refused(str(tmp_path / "none"), "does not exist", "--config.data.path="):
        local.read(tmp_path / "none")
    with refused(str(tmp_path), "is a folder without texts", "--config.data.path="):
        local.read(tmp_path)
    path = tmp_path / "text"
    path.write_bytes(TEXT)

    def denied(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", denied)
    with refused(str(path), "cannot be read", "Permission denied", "check its rights"):
        local.read(path)
    with refused("cannot be read", "name too long"):
        local.read(tmp_path / ("x" * 300))


def test_zip_of_several_files(tmp_path, refused):
    path = tmp_path / "texts.zip"
    path.write_bytes(zipped(readme=b"read me", enwik8=TEXT, **{"folder/": b"", "__MACOSX/x": b"x"}))
    assert local.read(path) == TEXT
    path.write_bytes(zipped(one=TEXT, two=TEXT))
    with refused(str(path), "holds 2 files", "unpack it", "--config.data.path="):
        local.read(path)
    path.write_bytes(zipped(**{"folder/": b""}))
    with refused(str(path), "holds 0 files"):
        local.read(path)


def test_zip_with_a_password(tmp_path, refused):
    path = tmp_path / "text.zip"
    packed = bytearray(zipped(text=TEXT))
    packed[6] |= 1  # the flag of encryption, in the file's header and in the directory
    packed[packed.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(packed)
    with refused(str(path), "cannot be read", "password"):
        local.read(path)


def test_zip_whose_names_are_damaged(tmp_path, refused):
    path = tmp_path / "text.zip"
    path.write_bytes(zipped(**{"café": TEXT}).replace("é".encode(), b"\xc3\xc3"))
    with refused(str(path), "damaged or cut short"):
        local.read(path)


@pytest.mark.parametrize("kind", PACK)
def test_what_is_longer_than_can_be_read_is_refused_before_it_is(tmp_path, refused, monkeypatch, kind):
    path = tmp_path / "text"
    path.write_bytes(PACK[kind](TEXT))
    assert local.read(path, longest=len(TEXT)) == TEXT
    with refused(str(path), f"and {len(TEXT) - 1:,} at most can be read here"):
        local.read(path, longest=len(TEXT) - 1)
    monkeypatch.setattr(memory, "of_machine", lambda: 3 * len(TEXT) - 1)
    with refused(str(path), f"and {len(TEXT) - 1:,} at most can be read here"):
        local.read(path)


def test_holes_pipes_and_what_says_no_size_are_refused(tmp_path, refused, monkeypatch):
    monkeypatch.setattr(memory, "of_machine", lambda: 10**9)
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(10**13)
    with refused("sparse holds 10,000,000,000,000 bytes or more"):
        local.read(tmp_path / "sparse")
    os.mkfifo(tmp_path / "pipe")
    with refused("pipe is not a file"):
        local.read(tmp_path / "pipe")
    with refused("is empty"):
        local.read(pathlib.Path("/proc/version"))
    (tmp_path / "folder").mkdir()
    for name in "ab":
        (tmp_path / "folder" / f"{name}.txt").write_bytes(TEXT)
    with refused("b.txt holds"):
        local.read(tmp_path / "folder", longest=2 * len(TEXT) - 1)
