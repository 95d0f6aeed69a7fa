import pytest

from anisoscope.cli import options
from anisoscope.utils.errors import UserError


@pytest.mark.parametrize("flag", ["--config=a.py", "--stages=measure", "--over=step", "--distributed", "--dry_run"])
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


def test_a_flagfile_is_a_text(tmp_path):
    (tmp_path / "flags").write_text("--stages=measure\n# as before\n")
    assert options.parse(["main.py", "--config=a.py", f"--flagfile={tmp_path / 'flags'}"]).stages == ["measure"]
    (tmp_path / "latin").write_bytes("--workdir=é".encode("latin-1"))
    for name in ("latin", "none"):
        with pytest.raises(UserError, match="; see --help"):
            options.parse(["main.py", "--config=a.py", f"--flagfile={tmp_path / name}"])
