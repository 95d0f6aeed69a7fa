"""Faults in the page."""

from tests.faults.entry import Fault

FAULTS = [
    Fault(
        "a name can end the element that holds the page's words",
        "report/embed.py",
        '.replace("<", "\\\\u003c")',
        "",
        ("tests/report/test_page.py",),
    ),
    Fault(
        "a run's name is HTML",
        "report/about.py",
        "<summary>{escape(label)}</summary>",
        "<summary>{label}</summary>",
        ("tests/report/test_page.py",),
    ),
    Fault(
        "numbers lie one after another in another order than is said",
        "report/embed.py",
        "        offset += len(blocks[-1])",
        "        offset = len(blocks[-1])",
        ("tests/report/test_page.py",),
    ),
    Fault(
        "the ends of an interval are embedded as its mean",
        "report/embed.py",
        "values.sel(statistic=list(ENDS)) if",
        'values.sel(statistic=["mean"] * 3) if',
        ("tests/report/test_page.py",),
    ),
    Fault(
        "single heads of joined seeds are shown as one",
        "report/embed.py",
        ' and "seed" not in values.dims',
        "",
        ("tests/report/test_page.py",),
    ),
    Fault(
        "the page links to tables that are not there",
        "report/about.py",
        "if path.exists()]",
        "]",
        ("tests/report/test_page.py",),
    ),
    Fault(
        "the page may ask a network",
        "report/page.html",
        "default-src 'none';",
        "default-src *;",
        ("tests/report/test_page.py",),
    ),
    Fault(
        "the page bears the time of its writing",
        "report/embed.py",
        "gzip.compress(content, 9, mtime=0)",
        "gzip.compress(content, 9)",
        ("tests/report/test_page.py",),
    ),
]
