"""The stage among the others: when it is done, in what order, and what is refused before any work."""

import pytest

from anisoscope.cli import cost, memory, stages
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace
from tests import tiny
from tests.program import refuse
from tests.tangents.settings import config

DECODER = ("--config=experiments/decoder_small.py:tiny", "--config.data.source=pydoc")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ((*DECODER, "--stages=tangents"), "switched off here; pass --config.tangents.enabled=True"),
        ((*DECODER, "--config.tangents.enabled=True", "--config.tangents.ranks=(128,)"), "leaves 42 at most"),
        (
            (*DECODER, "--config.tangents.enabled=True", "--config.tangents.windows=512", "--stages=tangents"),
            "windows=512 needs twice as many",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line_before_a_folder_is_made(tmp_path, flags, words):
    refuse(tmp_path / "run", words, *flags)


def test_it_is_done_only_where_it_is_switched_on():
    every = ["train", "measure", "tangents", "figures"]
    on, off = config(), tiny.config()
    assert stages.with_tangents([on], every) == every
    assert stages.with_tangents([off], every) == ["train", "measure", "figures"]
    assert stages.with_tangents([off], ["measure"]) == ["measure"]
    costs = {"": cost.of_run(on, cost.Text(8, 100))}
    assert "fit and test activation subspaces" in cost.plan({"": on}, costs, every)
    assert cost.of_run(off, cost.Text(8, 100)).tangents == 0 < costs[""].tangents
    assert set(cost.seconds(costs, every, 1, 1e9)) == set(every)


def test_what_does_not_fit_is_refused_by_the_setting_that_helps(monkeypatch):
    name = "tangents.points"
    monkeypatch.setattr(memory, "available", lambda: 10**9)
    large = replace(config(), {name: 2**24})
    memory.check_memory(config(), 8, ["tangents"])
    with pytest.raises(UserError, match=rf"--stages=tangents would .* lower {name} \(16777216\)"):
        memory.check_memory(large, 8, ["tangents"])
    memory.check_memory(replace(large, {"tangents.enabled": False}), 8, ["tangents"])
    memory.check_memory(large, 8, ["train", "measure"])
