"""What stands in the folder of a run's tables, and what is done about it."""

import pytest

from anisoscope.results import joined_files, replicates_table, step_files
from anisoscope.utils.errors import RunError, UserError
from tests.results.made import MADE_BY, table, values

FAMILIES, NULLS = ("dimension",), ("shuffled",)
NAMES = tuple(replicates_table.missing(None, FAMILIES, ()))


@pytest.fixture
def folder(tmp_path):
    """Tables of steps 0 and 4, which hold all but `twonn_mle` of what is asked for."""
    for step in (0, 4):
        most = tuple(name for name in NAMES if name != "twonn_mle")
        measured = values(step, dict.fromkeys(("measured", "shuffled"), most))
        joined_files.write(table(measured, step), tmp_path / f"{step}.nc")
    return tmp_path


def plan(folder, made_by=MADE_BY, nulls=NULLS):
    return step_files.plan(folder, [0, 2, 4], FAMILIES, nulls, made_by)


def test_of_every_step_what_stands_there_and_what_is_missing(folder):
    found = plan(folder)
    assert list(found) == [0, 2, 4]
    assert found[0].missing == found[4].missing == {"twonn_mle": ("measured", "shuffled")}
    assert found[4].table.step == 4
    assert found[2].table is None
    assert found[2].missing.keys() == set(NAMES)
    assert plan(folder, nulls=("gaussian",))[0].missing["twonn"] == ("gaussian",)


def test_tables_of_other_clouds_are_refused_in_one_line(folder):
    words = (
        r"0\.nc was measured on other clouds: measure\.points=16 there, 24 now; .*, or move .* away"
    )
    for refuse in (plan, step_files.check_folder):
        with pytest.raises(UserError, match=words) as error:
            refuse(folder, MADE_BY | {"measure.points": 24})
        assert "\n" not in str(error.value)
        with pytest.raises(UserError, match="corpus_sha256='digest' there, 'another' now"):
            refuse(folder, MADE_BY | {"corpus_sha256": "another"})
        refuse(folder, MADE_BY)
        refuse(folder, MADE_BY | {"measure.projected_head": 1})  # nothing was measured by it
    assert sorted(path.name for path in folder.iterdir()) == ["0.nc", "4.nc"]


def test_a_table_of_another_schema_is_one_line(folder, monkeypatch):
    monkeypatch.setattr(joined_files, "SCHEMA", joined_files.SCHEMA + 1)
    with pytest.raises(
        RunError, match=r"0\.nc has schema \d+, and \d+ is read; delete it, .* measures again$"
    ):
        plan(folder)


def test_a_table_must_be_what_its_place_is_for(folder):
    """Of a hook point and of tangents too."""
    (folder / "4.nc").rename(folder / "2.nc")
    with pytest.raises(
        RunError,
        match=r"2\.nc says that it is of step 4, not of step 2; move it to its place, or delete it",
    ):
        plan(folder)
    (folder / "2.nc").rename(folder / "4.nc")
    own = step_files.read_step(folder / "4.nc")
    for said, of in (
        ({"hook_point": "values"}, "values"),
        ({"early_proxies": "{}"}, step_files.TANGENTS),
    ):
        joined_files.write(own.assign_attrs(said), folder / "4.nc")
        assert step_files.read_step(folder / "4.nc", of).equals(own)
        for other in {"mlp_out", step_files.STREAM, step_files.TANGENTS} - {of}:
            with pytest.raises(
                RunError, match=rf"4\.nc says that it is of {of}, not of {other}; move it"
            ):
                step_files.read_step(folder / "4.nc", other)
    joined_files.write(own.drop_vars("step"), folder / "4.nc")
    with pytest.raises(RunError, match=r"4\.nc says that it is of step \?, not of step 4"):
        plan(folder)
