"""What is cited is what is released: one version everywhere, and files that those who index them
can read.
"""

import json
import re
import runpy

import yaml

import anisoscope
from tests.program import ROOT


def test_one_version_everywhere():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (
        cited["version"]
        == json.loads((ROOT / "codemeta.json").read_text())["version"]
        == anisoscope.__version__
    )
    assert f'version = "{anisoscope.__version__}"' in (ROOT / "conda" / "meta.yaml").read_text()
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest[1] in (anisoscope.__version__, "Unreleased")
    assert {paper["year"] for paper in cited["references"]} == {2024, 2026}


def test_papers_are_cited_by_keys_that_there_are():
    text, known = ((ROOT / "paper" / name).read_text() for name in ("paper.md", "paper.bib"))
    assert set(re.findall(r"\[@(\w+)\]", text)) == set(
        re.findall(r"^@\w+\{(\w+),", known, re.MULTILINE)
    )


find_faults = runpy.run_path(str(ROOT / "docs" / "site" / "check.py"))["find_faults"]


def test_links_and_hosts_are_checked(tmp_path):
    (tmp_path / "a.html").write_text(
        '<h1 id="top"></h1><a href="#top"></a><a href="b%20c.html"></a><img src="x.png">'
    )
    (tmp_path / "b c.html").write_text(
        '<a href="a.html#top"></a><a href="https://elsewhere.org">a link is no request</a>'
    )
    (tmp_path / "x.png").touch()
    assert not find_faults(tmp_path)
    loads = '<img src="gone.png"><script src="//elsewhere.org/a.js"></script>'
    (tmp_path / "wrong.html").write_text(
        f'<a href="a.html#gone"></a><a href="gone.html"></a>{loads}'
    )
    (tmp_path / "wrong.css").write_text("@import 'https://elsewhere.org/a.css';")
    assert find_faults(tmp_path) == [
        "wrong.html loads gone.png, which does not exist",
        "wrong.html loads //elsewhere.org/a.js",
        "wrong.html links to a.html#gone, a place that the page lacks",
        "wrong.html links to gone.html, which does not exist",
        "wrong.css loads from another host",
    ]
