"""The script that plants faults, on a checkout of one line."""

import subprocess

import pytest

from anisoscope.utils.files import read_json
from tests import planted_faults
from tests.faults.entry import Fault

TWICE = "def twice(x):\n    return 2 * x\n\n\ndef half(x):\n    return x / 2\n"
TEST = "from room.numbers import half, twice\n\n\ndef test_twice():\n    assert twice(3) == 6\n"
SEEN = Fault("a sign", "room/numbers.py", "return 2 * x", "return -2 * x")
UNSEEN = Fault("a third", "room/numbers.py", "x / 2", "x / 3")


@pytest.fixture
def checkout(tmp_path):
    for name, text in {
        "room/numbers.py": TWICE,
        "tests/room/test_numbers.py": TEST,
        "tests/test_planted_faults.py": "def test_every_entry():\n    assert False\n",
        "pytest.ini": "[pytest]\npythonpath = .\nmarkers = slow\n",
        ".gitignore": ".cache/\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def test_one_is_noticed_and_one_is_not(checkout, capsys):
    assert planted_faults.plant([SEEN, UNSEEN], checkout) == 1
    said = capsys.readouterr().out
    assert "a sign: tests/room/test_numbers.py::test_twice" in said
    assert "NOT NOTICED a third (room/numbers.py)" in said
    assert "1 of 2 faults were noticed" in said
    assert (checkout / "room/numbers.py").read_text() == TWICE


def test_what_was_found_is_not_asked_again_of_the_same_code(checkout, monkeypatch):
    assert planted_faults.plant([SEEN], checkout, everything=True) == 0
    assert len(read_json(checkout / planted_faults.FOUND, "")["found"]) == 2  # without a fault and with it
    asked = []
    monkeypatch.setattr(planted_faults, "noticed_by", lambda fault, root, names: asked.append(fault) or "")
    assert planted_faults.plant([SEEN], checkout, everything=True) == 0
    assert asked == []
    (checkout / "room/numbers.py").write_text(TWICE + "\n")
    assert planted_faults.plant([SEEN], checkout, everything=True) == 1
    assert asked == [None, SEEN]


def test_a_suite_that_fails_by_itself_says_nothing(checkout):
    (checkout / "room/numbers.py").write_text(TWICE.replace("2 * x", "3 * x"))
    with pytest.raises(SystemExit, match=r"fail without a fault: tests/room/test_numbers\.py::test_twice"):
        planted_faults.plant([UNSEEN], checkout)


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (SEEN._replace(old="return"), "occurs 2 times in room/numbers.py, not once"),
        (SEEN._replace(old="return x * 2"), "occurs 0 times"),
        (SEEN._replace(file="room/letters.py"), "occurs 0 times in room/letters.py"),
        (SEEN._replace(new=SEEN.old), "its new text is its old one"),
    ],
)
def test_what_cannot_be_planted_is_refused(checkout, capsys, fault, why):
    assert planted_faults.plant([fault], checkout) == 1
    said = capsys.readouterr().out
    assert said.startswith("REFUSED a sign: ")
    assert why in said


def test_tests_that_could_not_run_say_nothing(checkout, monkeypatch):
    monkeypatch.setattr(planted_faults, "PYTEST", ("-c", "import os; os.abort()"))
    with pytest.raises(RuntimeError, match="ended with -6"):
        planted_faults.first_failure(checkout, ["tests/room"])
