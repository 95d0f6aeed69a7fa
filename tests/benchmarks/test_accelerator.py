import xml.etree.ElementTree as xml

from benchmarks import accelerator

CASE = """<testcase classname="a" name="{}">
<properties><property name="from float64: scale" value="{}"/></properties></testcase>"""
REPORT = f"""<testsuites><testsuite>{CASE.format("one", 2e-6)}{CASE.format("two", 3e-6)}
<testcase classname="b" name="three"><failure message="no"/></testcase>
<testcase classname="b" name="four"><skipped/></testcase></testsuite></testsuites>"""


def test_a_report_of_tests_is_read():
    part = accelerator.read_report(xml.fromstring(REPORT))
    assert part.about == {"passed": 2, "skipped": 1, "failed": ["b::three"]}
    assert part.rows == {"scale": {"largest relative difference from float64": 3e-6}}


def test_tables_and_lines_are_written():
    part = accelerator.Part({"failed": [], "memory": None, "points": 4096}, {"TwoNN": {"ms": 1234.5, "who": "torch"}})
    text = accelerator.as_markdown({"single operations": part._asdict()})
    assert "## Single operations" in text
    assert "- failed: none\n- memory: unknown\n- points: 4,096\n" in text
    assert "| | ms | who |\n| --- | --- | --- |\n| TwoNN | 1,234 | torch |\n" in text
