"""When a table is up to date, and when it is written anew."""

import pytest

from anisoscope.results import digests
from anisoscope.utils.files import read_json


def test_a_table_is_written_again_where_anything_that_it_depends_on_differs(tmp_path, monkeypatch):
    calls, a, b = [], tmp_path / "a.csv", tmp_path / "b.nc"

    def update(made_from="1", settings=(1, 2), kill=False):
        def write():
            calls.append(1)
            a.write_text("new")
            if kill:
                raise KeyboardInterrupt
            b.write_text("new")
            return [a, b]

        calls.clear()
        paths = digests.write_outdated(tmp_path, "a.csv", {"in": made_from}, settings, write)
        assert paths == [a, b]
        assert (a.read_text(), b.read_text()) == ("new", "new")
        return len(calls)

    assert [update(), update(), update()] == [1, 0, 0]
    for path in (a, b):
        path.unlink()
        assert [update(), update()] == [1, 0]
        path.write_text("altered")
        assert [update(), update()] == [1, 0]
    assert [update(made_from="2"), update(made_from="2"), update()] == [1, 0, 1]
    assert [update(settings=(1, 3)), update()] == [1, 1]
    (tmp_path / digests.DIGESTS).unlink()
    assert [update(), update()] == [1, 0]
    with pytest.raises(KeyboardInterrupt):
        update(made_from="2", kill=True)
    assert digests.read_made_from(tmp_path, "a.csv") is None
    assert [update(), update()] == [1, 0]
    monkeypatch.setattr(digests, "digest_code", lambda: "of another version")
    assert [update(), update()] == [1, 0]
    other = tmp_path / "c.csv"
    digests.write_outdated(tmp_path, "c.csv", {}, None, lambda: (other.touch(), [other])[1])
    assert [*read_json(tmp_path / digests.DIGESTS, "")] == ["a.csv", "c.csv"]
    assert update() == 0


def test_a_table_without_files_is_never_up_to_date(tmp_path):
    calls = []
    for _ in range(2):
        digests.write_outdated(tmp_path, "a.csv", {}, None, lambda: (calls.append(1), [])[1])
    assert len(calls) == 2


def test_the_code_of_every_folder_counts(monkeypatch):
    seen, real = [], digests.checksums.digest
    monkeypatch.setattr(
        digests.checksums, "digest", lambda path: (seen.append(path), real(path))[1]
    )
    digests.digest_code.cache_clear()
    assert len(digests.digest_code()) == 64
    names = {f"{path.parent.name}/{path.name}" for path in seen}
    assert {"metrics/spectrum.py", "results/join.py", "analysis/shapes.csv"} <= names
