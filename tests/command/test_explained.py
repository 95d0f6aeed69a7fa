"""Settings in two columns."""

from command.explained import WIDTH, beside


def test_a_long_value_is_broken_after_a_comma_where_it_has_one():
    path = "/long" * 30
    assert beside(f"data.path={path}", "a copy") == [f"data.path={path}", *beside("", "a copy")]
    first, second, *_ = beside("families=" + ",".join(["spectrum"] * 20), "what is measured")
    assert first.endswith(",")
    assert len(first) <= WIDTH
    assert second.startswith("      spectrum")
