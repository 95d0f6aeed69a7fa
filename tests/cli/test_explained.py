"""Settings in two columns."""

import dataclasses

from anisoscope.cli.explained import WIDTH, beside, comments
from anisoscope.config.curved import CurvedConfig
from anisoscope.config.experiment import Config
from anisoscope.config.vectors import VectorsConfig


def test_a_long_value_is_broken_after_a_comma_where_it_has_one():
    path = "/long" * 30
    assert beside(f"data.path={path}", "a copy") == [f"data.path={path}", *beside("", "a copy")]
    first, second, *_ = beside("families=" + ",".join(["spectrum"] * 20), "what is measured")
    assert first.endswith(",")
    assert len(first) <= WIDTH
    assert second.startswith("      spectrum")


def test_every_setting_says_what_it_means():
    """In a comment on its own line, which a formatter may move away."""
    kinds = [Config, VectorsConfig, CurvedConfig]
    for kind in kinds:
        said = comments(kind)
        for field in dataclasses.fields(kind):
            inner = field.default_factory if field.default_factory is not dataclasses.MISSING else None
            if dataclasses.is_dataclass(inner):
                kinds.append(inner)
            elif field.name not in ("variants", "primary"):  # set in an experiment's file
                assert said.get(field.name), f"{kind.__name__}.{field.name}"
    assert len(kinds) > 8
