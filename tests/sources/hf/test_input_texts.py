"""Texts as users have them: strings, rows, columns, streams and files."""

import os

import numpy as np
import pandas as pd
import pytest

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.pretrained_config import PretrainedConfig
from anisoscope.sources.hf import input_texts, token_windows
from anisoscope.sources.hf.input_texts import read_texts
from anisoscope.utils.errors import UserError


class Columns:
    """As datasets.Dataset, which has a length, or a stream of rows, which has none."""

    def __init__(self, *names):
        self.column_names = [*names]

    def __iter__(self):
        return iter([{"text": "a", "id": 0}, {"text": "b", "id": 1}])


class Dataset(Columns):
    def __len__(self):
        return 2

    def __getitem__(self, name):
        return {"text": ["a", "b"]}[name]


@pytest.mark.parametrize(
    "texts",
    [
        ["a", "b"],
        iter(["a", "b"]),
        ({"text": x} for x in "ab"),
        {"text": ["a", "b"]},
        Dataset("id", "text"),
        Columns("id", "text"),
        pd.DataFrame({"number": [1, 2], "text": ["a", "b"]}),
        pd.Series(["a", "b"]),
        np.array(["a", "b"]),
    ],
    ids=lambda texts: type(texts).__name__,
)
def test_texts_are_strings_rows_or_a_column(texts):
    text = read_texts(texts)
    assert (text.name, text.content, text.parts) == ("2 texts", "a\n\nb", ["a", "b"])


def test_a_string_is_a_path_or_a_text(tmp_path, monkeypatch):
    content, path = "é \u2028 \x0c \x85\r\n\n\nb", tmp_path / "text.txt"
    path.write_bytes(b"\xef\xbb\xbf" + content.encode())
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (path, str(path), "~/text.txt"):
        text = read_texts(name)
        assert (text.name, text.content) == ("text.txt", content)
        assert text.parts == ["é \u2028 \x0c \x85", "b"]
    for string in ("one line\nand another", "long " * 60):
        assert read_texts(string).parts == [string]
    assert read_texts({"text": "abc"}).parts == ["abc"]


def test_texts_that_cannot_be_read_are_refused_at_once(tmp_path, monkeypatch):
    latin, pipe = tmp_path / "latin.txt", tmp_path / "pipe"
    latin.write_bytes(b"caf\xe9 ")
    os.mkfifo(pipe)
    monkeypatch.setattr(input_texts, "LARGEST_FILE", 3)
    (tmp_path / "long.txt").write_text("long")
    for texts, words in (
        ({"train": Dataset()}, "no column is named text, only train"),
        (Dataset("id", "body"), "no column is named text, only id, body"),
        (pd.DataFrame({"number": [1]}), "no column is named text, only number"),
        (tmp_path / "long.txt", "has 4 bytes, above 3; take a part"),
        ("a short string", "no file 'a short string' exists; pass a list of texts"),
        (pipe, "no file but a folder, a pipe or a device"),
        ("/dev/zero", "no file but a folder, a pipe or a device"),
        (tmp_path, "no file but a folder, a pipe or a device"),
        ([[1, 2]], "number 0 is a list; pass strings: batch_decode of the tokenizer"),
        (pd.Series([np.ones(3)]), "number 0 is a ndarray; pass strings: batch_decode"),
        ([b"a"], "number 0 is a bytes; pass strings"),
        (["a", "\ud800"], "number 1 holds half a character"),
        ([], "texts are empty"),
        (7, "texts are a int; pass strings"),
    ):
        with pytest.raises(UserError, match=words) as error:
            read_texts(texts)
        assert "\n" not in str(error.value)
    monkeypatch.setattr(input_texts, "LARGEST_FILE", 100)
    with pytest.raises(UserError, match=r"latin\.txt is not UTF-8"):
        read_texts(latin)


def test_a_stream_without_an_end_is_read_to_a_limit(monkeypatch):
    monkeypatch.setattr(input_texts, "READ_OF_STREAMS", 30)
    text = read_texts({"text": f"row {n}"} for n in iter(int, 1))
    assert (text.name, text.parts) == ("first 5 texts", ["row 0"] * 5)


def test_of_a_long_text_pieces_from_everywhere_are_read(monkeypatch):
    """Each line names its place; a digest is that of the whole."""
    monkeypatch.setattr(input_texts, "READ_WHOLE", 400)
    lines = [f"{n:09d}" for n in range(1000)]
    text, joined = read_texts(lines), read_texts("\n\n".join(lines))
    assert text.sha256 == joined.sha256
    for characters, least in ((100, 400), (800, 800)):
        drawn = text.draw(characters, 90, seed=0)
        numbers = [int(line) for line in drawn.split("\n\n")]
        assert numbers == sorted({*numbers})
        assert least <= 9 * len(numbers) <= least + 9
        assert numbers[0] < 200 < 800 < numbers[-1]
        pieces = joined.draw(characters, 90, seed=0)
        assert least <= len(pieces) < least + 150
        assert all(piece in joined.content for piece in pieces.split("\n\n") if piece)
    assert text.draw(100, 90, seed=0) != text.draw(100, 90, seed=1)
    assert text.draw(100_000, 90, seed=0) == text.content


@pytest.mark.parametrize("changes", [{"window": 10**9}, {"points": 10**9}, {"batches": 10**9}])
def test_windows_that_no_tokenizer_could_cut_are_refused_before_anything_is_read(changes):
    config = PretrainedConfig(
        measure=MeasureConfig(**{"points": 64, "batches": 1, "folds": 2} | changes)
        if "window" not in changes
        else MeasureConfig(points=64, batches=1, folds=2),
        window=changes.get("window", 24),
    )
    with pytest.raises(UserError, match=r"the text has 6,000 characters.* need .* tokens: lower"):
        token_windows.check_length(6000, config)
    least = token_windows.needed_tokens(PretrainedConfig(measure=config.measure, window=24))
    assert least >= 64
