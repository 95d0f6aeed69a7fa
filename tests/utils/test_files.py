import json
import os
import resource

import pytest

from anisoscope.utils import files
from anisoscope.utils.errors import UserError


def test_what_stood_there_stays_until_the_new_file_is_whole(tmp_path, monkeypatch):
    path = tmp_path / "notes.json"
    files.write_json(path, {"steps": 1})
    assert json.loads(path.read_text()) == {"steps": 1}
    replace = os.replace

    def look(new, old):
        assert json.loads(path.read_text()) == {"steps": 1}
        replace(new, old)

    monkeypatch.setattr(os, "replace", look)
    files.write_json(path, {"steps": 2})
    assert json.loads(path.read_text()) == {"steps": 2}
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_and_an_interruption_leave_what_stood_there(tmp_path):
    path = tmp_path / "notes"
    files.write(path, "as it was")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="too large") as error:
            files.write(path, b"x" * 5000)
        assert error.value.filename == str(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with pytest.raises(KeyboardInterrupt), files.replacing(path):
        raise KeyboardInterrupt
    assert path.read_text() == "as it was"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"{", "Expecting"),
        (b"[]", "it holds a list, not an object"),
        (b"\xff", "decode"),
    ],
)
def test_what_is_no_object_in_json_is_one_line_with_its_advice(tmp_path, content, why):
    path = tmp_path / "test.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"test\.json cannot be read \(.*{why}.*\); do this"):
        files.read_json(path, "do this")
