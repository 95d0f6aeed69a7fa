import bz2
import hashlib
import lzma
import platform
import random

import numpy as np
import pytest

from anisoscope.config.run_config import DataConfig
from anisoscope.data import clean, corpus, enwik8
from tests.data.conftest import zipped

TEXT = b"The quick brown fox jumps over the lazy dog.\n" * 100


def decoded(loaded: corpus.Corpus) -> bytes:
    tokens = np.concatenate([loaded.train, loaded.valid, loaded.test])
    return bytes(np.frombuffer(loaded.vocabulary, np.uint8)[tokens])


def test_tokens_stand_for_the_bytes_in_use(tmp_path):
    path = tmp_path / "fox.txt"
    path.write_bytes(TEXT)
    loaded = corpus.load_corpus(DataConfig(path=str(path)), context=16)
    assert loaded.name == "fox.txt"
    assert loaded.origin == str(path)
    assert loaded.vocabulary == bytes(sorted(set(TEXT)))
    assert loaded.mask_token == len(set(TEXT))
    assert loaded.vocab_size == len(set(TEXT)) + 1
    assert loaded.sha256 == hashlib.sha256(TEXT).hexdigest()
    assert [len(split) for split in (loaded.train, loaded.valid, loaded.test)] == [4050, 225, 225]
    assert loaded.train.dtype == np.uint8
    assert decoded(loaded) == TEXT
    path.write_bytes(TEXT + random.Random(0).randbytes(20_000))
    loaded = corpus.load_corpus(DataConfig(path=str(path)), context=16)
    assert loaded.vocab_size == 257
    assert decoded(loaded) == path.read_bytes()


def test_split_of_the_whole_enwik8(monkeypatch):
    text = (
        bytes(range(256)).ljust(90_000_000, b"a").ljust(95_000_000, b"b").ljust(100_000_000, b"c")
    )
    monkeypatch.setattr(corpus, "read_text", lambda *_: text)
    monkeypatch.setattr(enwik8, "SHA256", hashlib.sha256(text).hexdigest())
    loaded = corpus.load_corpus(DataConfig(path="enwik8"), context=512)
    train, valid, test = loaded.train, loaded.valid, loaded.test
    assert [len(train), len(valid), len(test)] == [90_000_000, 5_000_000, 5_000_000]
    assert bytes([train[-1], valid[0], valid[-1], test[0], test[-1]]) == b"abbcc"
    assert np.shares_memory(loaded.train.base, loaded.test.base)  # one copy of the text, not three


@pytest.mark.parametrize(("size", "split", "has"), [(10, "train", 9), (339, "valid", 17)])
def test_too_short(tmp_path, refused, monkeypatch, size, split, has):
    path = tmp_path / "short.txt"
    monkeypatch.setattr(corpus, "read_text", lambda *_: TEXT[:size])
    with refused(f"short.txt ({path})", f"{split} split has {has}", "needs 18"):
        corpus.load_corpus(DataConfig(path=str(path)), context=17)
    monkeypatch.setattr(corpus, "read_text", lambda *_: TEXT[:360])
    assert len(corpus.load_corpus(DataConfig(path=str(path)), context=17).test) == 18


def test_claims_of_the_whole_enwik8_are_checked(published, tmp_path, refused):
    text, _ = published
    wrong = tmp_path / "copy.txt"
    wrong.write_bytes(text[:-1] + b"?")
    with refused(str(wrong), "size of enwik8 (300,000 bytes)", "not its sha256"):
        corpus.load_corpus(DataConfig(path=str(wrong)), context=16)
    for name, content in (
        ("enwik8", text[:-9]),
        ("enwik8.zip", zipped(enwik8=text[:-9])),
        ("enwik8.bz2", bz2.compress(text[:-9])),
        ("enwik8.xz", lzma.compress(text[1:])),
    ):
        (tmp_path / name).write_bytes(content)
        with refused(str(tmp_path / name), "of the 300,000 bytes of enwik8", "rename it"):
            corpus.load_corpus(DataConfig(path=str(tmp_path / name)), context=16)


@pytest.mark.parametrize(("start", "end"), [(0, 999), (0, 1000), (0, 2000), (1, 2000), (0, 3000)])
def test_a_text_that_begins_as_enwik8_is_told_and_not_taken_for_it(
    tmp_path, monkeypatch, start, end
):
    text = bytes(random.Random(1).choices(range(32, 127), k=3000))
    monkeypatch.setattr(corpus, "CHECKED_BYTES", 1000)
    monkeypatch.setattr(corpus, "HEAD_SHA256", hashlib.sha256(text[:1000]).hexdigest())
    monkeypatch.setattr(enwik8, "SIZE", 2500)
    (tmp_path / "part.bin").write_bytes(text[start:end])
    begins = " (begins as enwik8)" * (start == 0 and 1000 <= end < 2500)
    found = corpus.load_corpus(DataConfig(path=str(tmp_path / "part.bin")), context=16).name
    assert found == f"part.bin{begins}"


def test_language_reference(refused):
    loaded = corpus.load_corpus(DataConfig(source="pydoc"), context=512)
    assert loaded.name == f"pydoc (Python {platform.python_version()})"
    assert loaded.origin == f"Python {platform.python_version()}"
    assert b'The "assert" statement' in decoded(loaded)
    assert corpus.load_corpus(DataConfig(source="pydoc"), context=512).sha256 == loaded.sha256
    assert 300_000 < len(loaded.train) < 700_000
    with refused("data.source=pydoc", "data.path", "leave out one of the two"):
        corpus.load_corpus(DataConfig(source="pydoc", path="enwik8.zip"), context=16)


def test_cleaned(tmp_path, monkeypatch, capfd, refused):
    wikitext = b"The ''quick'' [[fox|brown fox]] {{jumps}}over.\n\n" * 200
    path = tmp_path / "fox.txt"
    path.write_bytes(wikitext)
    monkeypatch.setattr(clean, "UNIT", 1000)
    loaded = corpus.load_corpus(DataConfig(path=str(path), clean=True), context=16)
    assert loaded.name == "fox.txt, cleaned"
    assert decoded(loaded) == b"\n\n".join([b"The quick brown fox over."] * 200)
    assert loaded.sha256 == hashlib.sha256(decoded(loaded)).hexdigest()
    output = capfd.readouterr()
    assert output.out == ""
    assert "cleaning" in output.err
    path.write_bytes(b"{{fox}}" * 1000)
    with refused("fox.txt, cleaned", "train split has 0"):
        corpus.load_corpus(DataConfig(path=str(path), clean=True), context=16)
