import os

import pytest

from anisoscope.cli import options
from anisoscope.utils.errors import UserError


@pytest.mark.parametrize(
    "flag",
    ["--config=a.py", "--stages=measure", "--compare=a", "--over=step", "--distributed", "--dry_run"],
)
def test_what_a_comparison_knows_nothing_of_is_refused_beside_it(flag):
    given = options.parse(["main.py", "--similarity=a,b", "--workdir=c", "--figures=d"])
    options.check_settings(given, {})
    given = options.parse(["main.py", "--similarity=a,b", flag])
    with pytest.raises(UserError, match=f"compares two runs that are there; leave out {flag.partition('=')[0]}$"):
        options.check_settings(given, {})
    options.check_settings(options.parse(["main.py", "--similarity=a,b", flag, "--help"]), {})


def test_tangents_are_left_out_where_no_stage_is_named_and_else_refused():
    every = ",".join(options.STAGES)
    options.check_tangents(options.parse(["main.py", "--config=a"]), False)
    options.check_tangents(options.parse(["main.py", "--config=a", f"--stages={every}"]), True)
    with pytest.raises(UserError, match="--stages=tangents: the stage is switched off here"):
        options.check_tangents(options.parse(["main.py", "--config=a", f"--stages={every}"]), False)


def test_a_flagfile_is_a_short_text(tmp_path):
    path = tmp_path / "flags"
    path.write_text("--stages=measure\n# as before\n")
    assert options.parse(["main.py", "--config=a.py", f"--flagfile={path}"]).stages == ["measure"]
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    (tmp_path / "latin").write_bytes("--workdir=é".encode("latin-1"))
    (tmp_path / "long").write_bytes(b"#" * 2_000_000)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "outer").write_text(f"--flagfile={tmp_path / 'pipe'}")
    for name in ("binary", "latin", "long", "pipe", "outer", "none", "/dev/zero"):
        with pytest.raises(UserError, match=r"--flagfile=.* cannot be read \(.*\); name a text") as error:
            options.parse(["main.py", "--config=a.py", f"--flagfile={tmp_path / name}"])
        assert "\n" not in str(error.value)
