import concurrent.futures
import functools
import http.server
import pathlib
import socket
import sys
import threading

import pytest

from anisoscope.data import enwik8
from anisoscope.data.enwik8 import enwik8_dataset_builder
from tests.data.conftest import publish
from tests.program import flip

ADVICE = ("enwik8.zip", "--config.data.path=")


def test_zip_in_the_cache_stands_in_for_the_network(published, tmp_path, capfd):
    text, archive = published
    (tmp_path / "enwik8.zip").write_bytes(archive)
    assert enwik8_dataset_builder.read_enwik8(tmp_path) == text
    assert capfd.readouterr().out == ""
    builder = enwik8_dataset_builder.Builder(data_dir=tmp_path, file_format="array_record")
    sizes = [record["text"].size for record in builder.as_data_source("text")]
    assert sizes == [65_536] * 4 + [300_000 - 4 * 65_536]
    (tmp_path / "enwik8.zip").unlink()
    (tmp_path / "enwik8.lock").unlink()
    (tmp_path / "enwik8.lock").mkdir()  # nobody can open it for writing, and nobody needs to
    assert enwik8_dataset_builder.read_enwik8(tmp_path) == text
    assert "tensorflow" not in sys.modules


@pytest.fixture
def serve(tmp_path, monkeypatch):
    """Publish at a local address what is put into the folder it returns, with the list of what is
    asked for.
    """
    folder = tmp_path / "served"
    folder.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            self.server.requests.append(self.command)

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=folder)
    )
    server.requests = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()

    def start(archive):
        publish(monkeypatch, f"http://127.0.0.1:{server.server_port}/enwik8.zip", archive)
        return folder, server.requests

    yield start
    server.shutdown()
    server.server_close()
    thread.join()


def test_runs_that_start_together_download_once(published, serve, tmp_path):
    text, archive = published
    folder, requests = serve(archive)
    (folder / "enwik8.zip").write_bytes(archive)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert (
            list(pool.map(enwik8_dataset_builder.read_enwik8, [tmp_path / "deep" / "cache"] * 4))
            == [text] * 4
        )
    assert requests.count("GET") == 1
    assert not (tmp_path / "deep" / "cache" / "downloads").exists()


def test_wrong_zip_in_the_cache(published, tmp_path, refused, monkeypatch):
    text, archive = published
    given = tmp_path / "enwik8.zip"
    given.write_bytes(archive[:-1] + b"x")
    with refused(str(given), "not enwik8.zip as published", f"delete {given}", *ADVICE):
        enwik8_dataset_builder.read_enwik8(tmp_path)
    given.write_bytes(archive)
    with monkeypatch.context() as patch, refused(str(tmp_path), "wrong sha256", *ADVICE):
        patch.setattr(enwik8, "SHA256", "0" * 64)
        enwik8_dataset_builder.read_enwik8(tmp_path)
    assert enwik8_dataset_builder.read_enwik8(tmp_path) == text


def halve(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


RECORDS = "enwik8-text.array_record-00000-of-00001"
DAMAGES = [(RECORDS, flip), (RECORDS, halve), ("dataset_info.json", pathlib.Path.unlink)]


@pytest.mark.parametrize(("file", "damage"), DAMAGES)
def test_damaged_cache_is_prepared_again_or_refused(published, tmp_path, refused, file, damage):
    text, archive = published
    given = tmp_path / "enwik8.zip"
    given.write_bytes(archive)
    enwik8_dataset_builder.read_enwik8(tmp_path)
    damage(tmp_path / "enwik8" / "1.0.0" / file)
    assert enwik8_dataset_builder.read_enwik8(tmp_path) == text
    given.unlink()
    flip(tmp_path / "enwik8" / "1.0.0" / RECORDS)
    with refused("no network", enwik8_dataset_builder.URL, *ADVICE):
        enwik8_dataset_builder.read_enwik8(tmp_path)


def test_what_else_lies_in_the_cache_stays(published, serve, tmp_path, refused):
    text, archive = published
    folder, _ = serve(archive)
    cache = tmp_path / "cache"
    names = "downloads/thesis.txt enwik8/thesis.txt enwik8/2.0.0/dataset_info.json enwik8.lock "
    names += "enwik8.incomplete.01234567/thesis.txt anisoscope-enwik8.incomplete.notes/thesis.txt"
    for path in (cache / name for name in names.split()):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"mine: {path.name}")

    def contents():
        return {path: path.read_bytes() for path in cache.rglob("*") if path.is_file()}

    mine = contents()
    with refused("no network", "404", *ADVICE):
        enwik8_dataset_builder.read_enwik8(cache)
    (folder / "enwik8.zip").write_bytes(archive[:-100])
    with refused("what came from", "not enwik8.zip as published", *ADVICE):
        enwik8_dataset_builder.read_enwik8(cache)
    assert contents() == mine
    (folder / "enwik8.zip").write_bytes(archive)
    assert enwik8_dataset_builder.read_enwik8(cache) == text
    assert mine.items() <= contents().items()
    assert {path.parent for path in contents().keys() - mine.keys()} == {cache / "enwik8" / "1.0.0"}


def silent(request):
    """Takes the connection and says nothing, for longer than anybody should wait."""
    listener = socket.create_server(("127.0.0.1", 0))
    hanging_up = threading.Timer(20, listener.shutdown, [socket.SHUT_RDWR])
    hanging_up.start()
    request.addfinalizer(lambda: (hanging_up.cancel(), listener.close()))
    return listener.getsockname()[1]


def test_no_network_is_reported_in_time(published, tmp_path, refused, monkeypatch, request):
    assert enwik8_dataset_builder.NETWORK_PATIENCE < 15
    monkeypatch.setattr(enwik8_dataset_builder, "NETWORK_PATIENCE", 1.0)
    url = f"http://127.0.0.1:{silent(request)}/enwik8.zip"
    publish(monkeypatch, url, published[1])
    with refused("no network", url, "timed out", str(tmp_path), *ADVICE):
        enwik8_dataset_builder.read_enwik8(tmp_path)
