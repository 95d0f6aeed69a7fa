"""What is asked of the built site: `make docs` runs this check on the true one."""

import runpy

from tests.program import ROOT

faults = runpy.run_path(str(ROOT / "docs" / "site" / "check.py"))["faults"]


def test_links_and_hosts_are_checked(tmp_path):
    (tmp_path / "a.html").write_text(
        '<h1 id="top"></h1><a href="#top"></a><a href="b%20c.html"></a><img src="x.png">'
    )
    (tmp_path / "b c.html").write_text(
        '<a href="a.html#top"></a><a href="https://elsewhere.org">a link is no request</a>'
    )
    (tmp_path / "x.png").touch()
    assert not faults(tmp_path)
    loads = '<img src="gone.png"><script src="//elsewhere.org/a.js"></script>'
    (tmp_path / "wrong.html").write_text(
        f'<a href="a.html#gone"></a><a href="gone.html"></a>{loads}'
    )
    (tmp_path / "wrong.css").write_text("@import 'https://elsewhere.org/a.css';")
    assert faults(tmp_path) == [
        "wrong.html loads gone.png, which is not there",
        "wrong.html loads //elsewhere.org/a.js",
        "wrong.html links to a.html#gone, a place that the page has not",
        "wrong.html links to gone.html, which is not there",
        "wrong.css loads from another host",
    ]
