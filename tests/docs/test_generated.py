"""Reference pages that are written from the code are current, in the repository as in the site."""

import importlib.util

from tests.program import ROOT

SITE = ROOT / "docs" / "site" / "generated.py"


def test_pages_are_current():
    spec = importlib.util.spec_from_file_location("generated", SITE)
    generated = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generated)
    pages = {path: path.read_text() for path in generated.REFERENCE.glob("*.md")}
    found = [name for text in pages.values() for _, name, _ in generated.BLOCK.findall(text)]
    assert sorted(found) == sorted(generated.PAGES)
    stale = [path.name for path, text in pages.items() if generated.fill(text) != text]
    assert stale == [], "PYTHONPATH=. .venv/bin/python docs/site/generated.py writes them anew"
