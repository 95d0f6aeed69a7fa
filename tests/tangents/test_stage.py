"""The stage among the others: when it is done, in what order, and what is refused before any work."""

import pathlib

import pytest

import stages
from experiments import cost, status
from tangents import sweep
from tests import tiny
from tests.program import refuse
from tests.tangents.test_sweep import config
from workdir.errors import UserError
from workdir.folder import claim
from workdir.settings import replace

DECODER = ("--config=experiments/decoder_small.py:tiny", "--config.data.source=pydoc")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ((*DECODER, "--stages=tangents"), "switched off here; pass --config.tangents.enabled=True"),
        ((*DECODER, "--config.tangents.enabled=True", "--config.tangents.ranks=(128,)"), "leaves 42 at most"),
        ((*DECODER, "--config.tangents.enabled=True", "--config.train.steps=4"), "2 are needed, and a later one"),
        (
            (*DECODER, "--config.tangents.enabled=True", "--config.tangents.windows=4096", "--stages=tangents"),
            "=4096 needs",
        ),
        (
            ("--config=experiments/vectors.py", "--config.vectors.path=README.md", "--stages=tangents"),
            "are not trained",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line_before_a_folder_is_made(tmp_path, flags, words):
    refuse(tmp_path / "run", words, *flags)


def test_it_is_done_only_where_it_is_switched_on():
    every = ["train", "measure", "tangents", "figures"]
    on, off = config(), tiny.config()
    assert stages.with_tangents({"": on}, every) == every
    assert stages.with_tangents({"": off}, every) == ["train", "measure", "figures"]
    assert stages.with_tangents({"": off}, ["measure"]) == ["measure"]
    with pytest.raises(UserError, match="switched off"):
        stages.with_tangents({"": off}, ["tangents"])
    costs = {"": cost.of_run(on, cost.Text(8, 100))}
    assert "fit and test tangent proxies" in cost.plan({"": on}, costs, every)
    assert cost.of_run(off, cost.Text(8, 100)).tangents == 0 < costs[""].tangents
    assert set(cost.seconds(costs, every, 1, 1e9)) == set(every)


def test_the_early_proxies_of_all_runs_come_first_since_each_is_the_control_of_another(monkeypatch):
    done, configs = [], {name: replace(config(), {"train.seed": seed}) for seed, name in enumerate("ab")}
    texts = {stages.text_key(config()): tiny.corpus()}
    monkeypatch.setattr(sweep, "fit_early", lambda config, corpus, run, *_: done.append(("early", run.name)))
    monkeypatch.setattr(
        sweep, "sweep", lambda config, corpus, run, name, stop, other: done.append((run.name, other.name))
    )
    with stages.Stop() as stop:
        stages.fit_tangents(configs, texts, pathlib.Path("root"), "title", stop)
    assert done == [("early", "a"), ("early", "b"), ("a", "b"), ("b", "a")]


def test_status_tells_what_is_there(tmp_path):
    claim(tmp_path / "run", config(), new=True)
    assert "tangents of 0 of 6 checkpoints" in list(status.told(tmp_path / "run"))
    (tmp_path / "run" / "tangents").mkdir()
    for name in ("early", "0", "4"):
        (tmp_path / "run" / "tangents" / f"{name}.nc").touch()
    lines = list(status.told(tmp_path / "run"))
    assert "tangents of 2 of 6 checkpoints" in lines
    assert "tangents of some checkpoints" in lines[-1] + lines[-2]
