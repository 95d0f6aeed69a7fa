"""enwik8 from the cache folder: prepared by TFDS on first use, checked at every use, prepared again when damaged."""

import contextlib
import fcntl
import hashlib
import io
import shutil
import threading
import urllib.request
from http.client import HTTPException
from pathlib import Path

import tensorflow_datasets as tfds
from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError

from data import enwik8
from data.enwik8 import enwik8_dataset_builder
from errors import UserError

PATIENCE = 10.0  # seconds until a network that does not answer counts as none
FILE = "enwik8.zip"


def read(cache: Path) -> bytearray:
    """The 100,000,000 bytes; downloaded only where neither the prepared text nor enwik8.zip lies in `cache`."""
    if text := _prepared(cache):
        return text
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with open(cache / "enwik8.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # a second run waits, and finds the text prepared
            if not (text := _prepared(cache)):
                _prepare(cache)
                text = _prepared(cache)
    except (OSError, tfds.download.DownloadError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"enwik8 could not be prepared in data.cache={cache} ({reason}): "
            f"choose another folder with --config.data.cache=, or {_advice(cache)}"
        ) from error
    if not text:
        raise UserError(f"enwik8 as prepared in data.cache={cache} is damaged (wrong sha256): {_advice(cache)}")
    return text


def _advice(cache: Path) -> str:
    return f"get {FILE} by other means and pass --config.data.path=FOLDER/{FILE}, or put it into {cache}"


def _builder(cache: Path) -> enwik8_dataset_builder.Builder:
    return enwik8_dataset_builder.Builder(data_dir=cache, file_format="array_record")


def _prepared(cache: Path) -> bytearray | None:
    """What an earlier run prepared; None where there is nothing, or not the true text."""
    if not (cache / "enwik8").exists():
        return None
    text = bytearray()
    try:
        records = _builder(cache).as_data_source("text")
        for start in range(0, len(records), 64):
            for record in records.__getitems__(range(start, min(start + 64, len(records)))):
                text += record["text"].data
    except Exception:  # a damaged cache fails in any way it likes; whichever it is, the text is prepared again
        return None
    return text if hashlib.sha256(text).hexdigest() == enwik8.SHA256 else None


def _prepare(cache: Path) -> None:
    """Download and convert, or convert the enwik8.zip that lies in the cache folder; TFDS verifies either."""
    given, downloads = cache / FILE, cache / "downloads"
    if not given.exists():
        _expect_network(cache)
    for leftover in (cache / "enwik8", downloads):
        shutil.rmtree(leftover, ignore_errors=True)
    config = tfds.download.DownloadConfig(manual_dir=cache, force_checksums_validation=True, try_download_gcs=False)
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # TFDS announces itself with print; its progress bars stay
            _builder(cache).download_and_prepare(download_dir=downloads, download_config=config)
    except NonMatchingChecksumError as error:
        what = f"{given} is" if given.exists() else f"what came from {enwik8_dataset_builder.URL} is"
        hint = f"delete {given} to have it downloaded, or " if given.exists() else ""
        raise UserError(f"{what} not {FILE} as published (size or sha256 differ): {hint}{_advice(cache)}") from error
    finally:
        shutil.rmtree(downloads, ignore_errors=True)


def _expect_network(cache: Path) -> None:
    """Raise where the address does not answer at once: TFDS itself would try again for minutes."""
    url = enwik8_dataset_builder.URL
    failures: list[str] = ["no answer"]

    def ask() -> None:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method="HEAD")):
                failures.clear()
        except (OSError, HTTPException, ValueError) as error:
            failures.append(str(error).strip("<>").partition("\n")[0])

    # In a thread of its own, since no time limit reaches into the look-up of a name.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    if failures:
        raise UserError(f"no network: {url} cannot be reached ({failures[-1]}): {_advice(cache)}")
