"""What the tests of data/ share: a small stand-in for the published enwik8, and the look of an
error line.
"""

import contextlib
import hashlib
import io
import random
import zipfile

import pytest
from tensorflow_datasets.core.download.checksums import UrlInfo

from anisoscope.data import enwik8
from anisoscope.data.enwik8 import enwik8_dataset_builder
from anisoscope.utils.errors import UserError


@pytest.fixture
def refused():
    """with refused("word", ...): the block raises a UserError of one line that holds every word."""

    @contextlib.contextmanager
    def check(*words):
        with pytest.raises(UserError) as caught:
            yield
        line = str(caught.value)
        assert line
        assert "\n" not in line
        for word in words:
            assert word in line

    return check


def zipped(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return file.getvalue()


@pytest.fixture
def published(monkeypatch):
    """A text of 300,000 bytes and its zip file in the place of the published ones, at an address
    nobody serves.
    """
    text = bytes(random.Random(0).choices(range(32, 127), k=300_000))
    archive = zipped(enwik8=text)
    monkeypatch.setattr(enwik8, "SIZE", len(text))
    monkeypatch.setattr(enwik8, "SHA256", hashlib.sha256(text).hexdigest())
    publish(monkeypatch, "http://127.0.0.1:9/enwik8.zip", archive)
    return text, archive


def publish(monkeypatch, url: str, archive: bytes) -> None:
    info = UrlInfo(
        size=len(archive), checksum=hashlib.sha256(archive).hexdigest(), filename="enwik8.zip"
    )
    monkeypatch.setattr(enwik8_dataset_builder, "URL", url)
    monkeypatch.setitem(enwik8_dataset_builder.Builder.url_infos, url, info)
