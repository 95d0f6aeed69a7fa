"""Build enwik8 for TFDS in the cache folder on first use, and verify it at every use.

Records are 64 KiB in the order of the text, without TensorFlow. The cache folder may hold other
files. TFDS works in a temporary folder; its result is moved into place once it is verified, and
replaces only files of the same names.
"""

import contextlib
import functools
import hashlib
import io
import shutil
import tempfile
import urllib.request
import zipfile
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds
from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError

from anisoscope.data import enwik8
from anisoscope.utils import files
from anisoscope.utils.errors import UserError

URL = "http://mattmahoney.net/dc/enwik8.zip"
RECORD = 65_536


class Builder(tfds.core.GeneratorBasedBuilder):
    """The data set with a single split, "text"; data/corpus.py cuts it into the three splits."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> tfds.core.DatasetInfo:
        return self.dataset_info_from_configs(
            description="The first 100,000,000 bytes of the English Wikipedia dump of 2006-03-03.",
            homepage="http://mattmahoney.net/dc/textdata.html",
            features=tfds.features.FeaturesDict(
                {"text": tfds.features.Tensor(shape=(None,), dtype=np.uint8, encoding="bytes")}
            ),
            disable_shuffling=True,
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict:
        return {"text": self._generate_examples(dl_manager.download(URL))}

    def _generate_examples(self, path) -> Iterator[tuple[int, dict]]:
        # Unzipped here: extraction by TFDS imports TensorFlow.
        with zipfile.ZipFile(path) as archive, archive.open("enwik8") as text:
            for index, record in enumerate(iter(lambda: text.read(RECORD), b"")):
                yield index, {"text": np.frombuffer(record, np.uint8)}


NETWORK_PATIENCE = 10.0  # seconds after which a network that does not answer counts as missing
FILE = "enwik8.zip"
WORK_PREFIX = (
    "anisoscope-enwik8.incomplete."  # prefix of the folder that TFDS works in; + 8 characters
)
# where TFDS looks for the prepared text
PREPARED = Path("enwik8", str(Builder.VERSION))
builder = functools.partial(Builder, file_format="array_record")


def read_enwik8(cache: Path, download: bool = True) -> bytearray:
    """Read the 100,000,000 bytes; where `cache` lacks the text, prepare it from enwik8.zip.

    With `download`, that file is downloaded where it is missing; without, nothing is prepared.
    """
    try:
        if text := _read_prepared(cache):
            return text
        if not download:
            raise UserError(f"data.cache={cache} holds no enwik8; pass text= with its path")
        cache.mkdir(parents=True, exist_ok=True)
        # a second run waits, and finds the text prepared
        with files.locked_file(cache / "enwik8.lock", wait=True):
            return _read_prepared(cache) or _prepare(cache)
    except (OSError, RuntimeError, tfds.download.DownloadError) as error:
        # RuntimeError: array_record, on a full disk
        why = str(error).partition("\n")[0]
        advice = f"choose another folder with --config.data.cache=, or {_advice(cache)}"
        what = f"enwik8 could not be prepared in data.cache={cache} ({why})"
        raise UserError(f"{what}: {advice}") from error


def _advice(cache: Path) -> str:
    path = f"--config.data.path=FOLDER/{FILE}"
    return f"get {FILE} by other means and pass {path}, or put it into {cache}"


def _read_prepared(cache: Path) -> bytearray | None:
    """Read the text that an earlier run prepared; None where it is missing or not the true text."""
    if not (cache / "enwik8").exists():
        return None
    text = bytearray()
    try:
        records = builder(data_dir=cache).as_data_source("text")
        for start in range(0, len(records), 64):
            for record in records.__getitems__(range(start, min(start + 64, len(records)))):
                text += record["text"].data
    except Exception:  # a damaged cache raises many kinds of errors; the text is prepared again
        return None
    return text if hashlib.sha256(text).hexdigest() == enwik8.SHA256 else None


def _prepare(cache: Path) -> bytearray:
    """Download the text, or take enwik8.zip from the cache folder, and convert it."""
    if not (cache / FILE).exists():
        _expect_network(cache)
    # left by a killed run: the lock ensures that no other run is working
    for leftover in cache.glob(WORK_PREFIX + "?" * 8):
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(
        prefix=WORK_PREFIX, dir=cache, ignore_cleanup_errors=True
    ) as work:
        _convert(cache, Path(work))
        if not (text := _read_prepared(Path(work))):
            what = f"enwik8 as prepared in data.cache={cache} is damaged (wrong sha256)"
            raise UserError(f"{what}: {_advice(cache)}")
        (cache / PREPARED).mkdir(parents=True, exist_ok=True)
        for path in Path(work, PREPARED).iterdir():
            path.replace(cache / PREPARED / path.name)
    return text


def _convert(cache: Path, work: Path) -> None:
    """Let TFDS verify and convert the archive."""
    archive = cache / FILE
    config = tfds.download.DownloadConfig(
        manual_dir=cache, force_checksums_validation=True, try_download_gcs=False
    )
    try:
        # TFDS announces itself with print; its progress bars stay
        with contextlib.redirect_stdout(io.StringIO()):
            builder(data_dir=work).download_and_prepare(
                download_dir=work / "downloads", download_config=config
            )
    except NonMatchingChecksumError as error:
        what, hint = f"what came from {URL}", ""
        if archive.exists():
            what, hint = str(archive), f"delete {archive} to have it downloaded, or "
        why = f"is not {FILE} as published (size or sha256 differ)"
        raise UserError(f"{what} {why}: {hint}{_advice(cache)}") from error


def _expect_network(cache: Path) -> None:
    """Raise where the address does not answer at once: TFDS would retry for minutes."""
    url = URL
    try:
        urllib.request.urlopen(
            urllib.request.Request(url, method="HEAD"), timeout=NETWORK_PATIENCE
        ).close()
    except (OSError, HTTPException, ValueError) as error:
        why = str(error).strip("<>").partition("\n")[0]
        what = f"no network: {url} cannot be reached ({why})"
        raise UserError(f"{what}: {_advice(cache)}") from error
