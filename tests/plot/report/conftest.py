"""A page of made runs, and the browser that it is opened in."""

import json
import os
import urllib.parse

import pytest

from anisoscope.cli import drawing
from anisoscope.measurement.tables import files
from anisoscope.plot.report import page
from anisoscope.plot.seeds import over_seeds
from tests.plot.report.browser import Browser, find
from tests.plot.report.shown import RUNS, STEPS
from tests.plot.tables import make_run


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    if (binary := find()) is None:
        if "ANISOSCOPE_NEEDS_BROWSER" in os.environ:
            pytest.fail("there is no Chromium, and ANISOSCOPE_NEEDS_BROWSER is set")
        pytest.skip("there is no Chromium: sh tests/plot/report/chromium.sh says how to get one")
    opened = Browser(binary, tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs") / "made"
    folders = {label: root / f"run_{number}" for number, label in enumerate(RUNS)}
    for label, about in RUNS.items():
        run = make_run(**{"steps": STEPS, "layers": 4, "heads": 2, "batches": 2} | about)
        files.write(run.results, folders[label] / "results.nc")
        (folders[label] / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in run.log))
    runs = {label: drawing.load(path) for label, path in folders.items()}
    page.write(runs, over_seeds(runs), folders, root)
    return root


@pytest.fixture
def opened(browser, root):
    """Opens the page with these words in its address; afterwards nothing was fetched and nobody complained."""
    browser.requests.clear()
    browser.complaints.clear()
    address = (root / "report.html").as_uri()

    def open_at(**words):
        browser.open(f"{address}#{urllib.parse.urlencode(words, doseq=True)}")
        return browser

    yield open_at
    browser.ask("new Promise((done) => setTimeout(done, 100))")
    loaded = {request.partition("#")[0] for request in browser.requests if not request.startswith(("data:", "blob:"))}
    assert loaded <= {address, "about:blank"}
    assert browser.complaints == []
    assert browser.ask("window.harm") is None


@pytest.fixture(scope="session")
def results(root):
    return {label: files.read_table(root / f"run_{number}" / "results.nc") for number, label in enumerate(RUNS)}
