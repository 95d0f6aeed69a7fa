import json

import pytest

from anisoscope.cli import status
from anisoscope.config.run_config import checkpoint_steps
from anisoscope.utils.errors import UserError
from anisoscope.utils.folder import claim
from anisoscope.utils.settings import replace
from tests import tiny

KEPT = [0, 1, 2, 4, 5, 6]


def run(folder, saved=(), tables=(), done=False):
    """A run's folder as far as its names go."""
    for step in saved:
        (folder / "checkpoints" / str(step)).mkdir(parents=True)
    (folder / "measurements").mkdir(parents=True)
    for step in tables:
        (folder / "measurements" / f"{step}.nc").touch()
    if done:
        (folder / "test.json").write_text('{"bits_per_character": 2.5}')
        (folder / "results.nc").touch()


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "pair"
    both = {"one": {}, "two": {"model.sink": True}}
    claim(root, replace(tiny.config(), {"variants": both}), new=True)
    assert checkpoint_steps(tiny.config()) == KEPT
    return root


def test_a_finished_experiment_misses_nothing(root):
    run(root / "one", KEPT, KEPT, done=True)
    run(root / "two", [], KEPT, done=True)  # whose checkpoints were deleted
    (root / "figures").mkdir()
    (root / "figures" / "a.png").touch()
    assert list(status.format_status(root))[-1] == "missing: runs.csv (--stages=measure)"
    (root / "runs.csv").touch()
    lines = list(status.format_status(root))
    assert lines[0].startswith(f"{root}: 2 runs, last written ")
    parts = "6 of 6 training steps, 1 of 1 test scores, 6 of 6 checkpoints measured, 1 of 1 joined tables"
    bits = "2.5000 bits per character on the test split"
    assert lines[1:] == [
        f"one: {parts}, 6 checkpoints saved, {bits}",
        f"two: {parts}, {bits}",
        "figures: 1",
        "missing: nothing",
    ]


@pytest.mark.parametrize(
    "words", [["--stages=train,tangents"], ["--stages", "train"], ["-stages=train"]]
)
def test_what_is_missing_is_named_while_the_run_goes_on_with_the_command_for_it(root, words):
    (root / ".#notes").symlink_to("nobody@nowhere")  # as an editor leaves it
    run(root / "one", [*KEPT[:-1], "6.orbax-checkpoint-tmp"], KEPT[:2])
    (root / "one" / "tangents").mkdir()  # switched on later
    command = ["main.py", *words, "--config=a b"]
    (root / "one" / "environment.json").write_text(json.dumps({"sessions": [{"command": command}]}))
    (root / "one" / "train.jsonl").write_text('{"step": 2, "kind": "spike", "loss": 9.0}\n')
    before = sorted(root.rglob("*"))
    lines = list(status.format_status(root))
    assert lines[1].startswith("one: 5 of 6 training steps, 0 of 1 test scores, 2 of 6 checkpoints")
    assert "0 of 6 tangents" in lines[1]
    assert "spikes of the loss: 1, the last at step 2" in lines[1]
    assert lines[-2].startswith("missing: one: training steps; one: test scores; one: checkpoints")
    assert lines[-2].endswith("; two: joined tables; runs.csv (--stages=measure); figures")
    assert lines[-1] == "the same command resumes: python main.py '--config=a b'"
    assert sorted(root.rglob("*")) == before


def test_no_run_is_one_line(root):
    for folder, words in (
        ("piar", "no run found .*; did you mean 'pair'"),
        ("", "name one of its runs: pair"),
    ):
        with pytest.raises(UserError, match=words):
            list(status.format_status(root.parent / folder))
