import json

import pytest

from anisoscope.cli import status
from anisoscope.config.run_config import checkpoint_steps
from anisoscope.utils.errors import UserError
from anisoscope.utils.folder import claim
from anisoscope.utils.settings import replace
from tests import tiny

KEPT = [0, 1, 2, 4, 5, 6]


def run(folder, saved=(), tables=(), test=False, joined=False):
    """A run's folder as far as its names go."""
    for step in saved:
        (folder / "checkpoints" / str(step)).mkdir(parents=True)
    (folder / "measurements").mkdir(parents=True)
    for step in tables:
        (folder / "measurements" / f"{step}.nc").touch()
    if test:
        (folder / "test.json").write_text('{"bits_per_character": 2.5}')
    if joined:
        (folder / "results.nc").touch()


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "pair"
    variants = {"one": {}, "two": {"train.seed": 1}}
    claim(root, replace(tiny.config(), {"variants": variants}), new=True)
    assert checkpoint_steps(tiny.config()) == KEPT
    return root


def test_a_finished_experiment_misses_nothing(root):
    run(root / "one", KEPT, KEPT, test=True, joined=True)
    run(root / "two", [], KEPT, test=True, joined=True)  # whose checkpoints were deleted
    (root / "figures").mkdir()
    (root / "figures" / "a.png").touch()
    (root / "runs.csv").touch()
    lines = list(status.format_status(root))
    assert lines[0].startswith(f"{root}: 2 runs, last written ")
    assert lines[1:] == [
        "one: trained to step 6 of 6, 6 of 6 checkpoints saved, 2.5000 bits per character on the test split",
        "one: 6 of 6 checkpoints measured",
        "two: trained to step 6 of 6, 0 of 6 checkpoints saved, 2.5000 bits per character on the test split",
        "two: 6 of 6 checkpoints measured",
        f"figures: 1 in {root / 'figures'}",
        "missing: nothing",
    ]


def test_what_is_missing_is_named_while_the_run_goes_on(root):
    (root / ".#notes").symlink_to("nobody@nowhere")  # as an editor leaves it
    run(root / "one", [*KEPT[:-1], "6.orbax-checkpoint-tmp"], KEPT[:2])
    (root / "one" / "environment.json").write_text(
        json.dumps({"sessions": [{"command": ["main.py", "--config=a b"]}]})
    )
    before = sorted(root.rglob("*"))
    lines = list(status.format_status(root))
    assert lines[1:] == [
        "one: trained to step 5 of 6, 5 of 6 checkpoints saved",
        "one: 2 of 6 checkpoints measured",
        "two: not trained yet, 0 of 6 checkpoints saved",
        "two: 0 of 6 checkpoints measured",
        "figures: none yet",
        "missing: one: 1 step of training and the score of the test split; one: tables of steps 2, 4, 5, 6; "
        "two: 6 steps of training and the score of the test split; two: tables of steps 0, 1, 2, 4, 5, 6; figures",
        "the same command resumes: python main.py '--config=a b'",
    ]
    assert sorted(root.rglob("*")) == before


def test_what_a_later_session_asked_for_is_counted(root):
    """The settings of the folder are those that the run began with."""
    one = root / "one"
    claim(one, tiny.config(), new=True)
    run(one, KEPT, KEPT, test=True, joined=True)
    (one / "figures").mkdir()
    (one / "figures" / "a.png").touch()
    for folder, steps in (("tangents", KEPT[:1]), ("hook_points/values/measurements", KEPT[:2])):
        (one / folder).mkdir(parents=True)
        for step in steps:
            (one / folder / f"{step}.nc").touch()
    lines = list(status.format_status(one))
    assert {f"{what} of 6 checkpoints" for what in ("tangents of 1", "values of 2")} < set(lines)
    assert "missing: tangents of some checkpoints; values of some checkpoints" in lines


def test_no_run_is_one_line(root):
    for folder, words in (
        ("piar", "no run found .*; did you mean 'pair'"),
        ("", "name one of its runs: pair"),
    ):
        with pytest.raises(UserError, match=words):
            list(status.format_status(root.parent / folder))


@pytest.mark.parametrize(
    "words", [["--stages=train,tangents"], ["--stages", "train"], ["-stages=train"]]
)
def test_the_command_that_goes_on_does_all_stages(root, words):
    command = ["main.py", *words, "--config=a.py", "--workdir=b"]
    (root / "one").mkdir()
    (root / "one" / "environment.json").write_text(json.dumps({"sessions": [{"command": command}]}))
    assert (
        list(status.format_status(root))[-1]
        == "the same command resumes: python main.py --config=a.py --workdir=b"
    )
