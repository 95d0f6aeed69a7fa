"""The stage among the others: when it is done, in what order, and what is refused before any work."""

import pathlib

import jax
import numpy as np
import pytest

from anisoscope.cli import cost, memory, stages, status
from anisoscope.models import transformer
from anisoscope.models.masks import visible_keys
from anisoscope.tangents import read, rows, sweep
from anisoscope.utils.errors import UserError
from anisoscope.utils.folder import claim
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
        (("--config=experiments/untrained_bias.py:tiny", "--stages=measure,tangents"), "--stages=tangents: untrained"),
        (
            ("--config=experiments/pretrained.py:a/b", "--stages=measure,tangents"),
            "--stages=tangents: the stage is switched off here; pass --config.",
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


def test_the_early_proxies_of_all_runs_come_first_since_each_is_the_control_of_another(monkeypatch):
    done, configs = [], {name: replace(config(), {"train.seed": seed}) for seed, name in enumerate("ab")}
    root = pathlib.Path("root")
    runs = {name: stages.Run(name, one, tiny.corpus(), root / name) for name, one in configs.items()}
    monkeypatch.setattr(sweep, "fit_early", lambda config, corpus, run, *_: done.append(("early", run.name)))
    monkeypatch.setattr(
        sweep, "sweep", lambda config, corpus, run, name, stop, other: done.append((run.name, other.name))
    )
    monkeypatch.setattr(stages.on_disk, "write_tangents", lambda folders, to: done.append((*folders, to)))
    with stages.Stop() as stop:
        stages.fit_tangents(stages.Work(config(), runs, root, "title", ["tangents"], stop))
    assert done == [("early", "a"), ("early", "b"), ("a", "b"), ("b", "a"), ("a", "b", root)]


@pytest.mark.parametrize("name", ["tangents.points", "tangents.windows"])
def test_what_does_not_fit_is_refused_by_the_setting_that_helps(monkeypatch, name):
    monkeypatch.setattr(memory, "available", lambda: 10**9)
    large = replace(config(), {name: 2**24})
    memory.check_memory(config(), 8, ["tangents"])
    with pytest.raises(UserError, match=rf"--stages=tangents would .* lower {name} \(16777216\)"):
        memory.check_memory(large, 8, ["tangents"])
    memory.check_memory(replace(large, {"tangents.enabled": False}), 8, ["tangents"])
    memory.check_memory(large, 8, ["train", "measure"])


def test_the_memory_is_about_what_the_program_asks_for():
    """Of a network wide enough that rows and passes count, not the constants."""
    wide = replace(
        config(), {"model.width": 64, "model.context": 32, "tangents.points": 128, "tangents.local_points": 32}
    )
    text = tiny.corpus(20_000)
    windows = rows.make_windows(wide, wide.tangents, text)
    network, basis = transformer.build(wide.model, text.vocab_size, "float32"), read.coordinates(wide.model)
    params = jax.eval_shape(network.init, jax.random.key(0))
    visible = np.asarray(visible_keys(wide.model, 32))
    passes = jax.jit(lambda params, test, visible: read.states_and_gradients(network, params, test, visible, basis))
    asked = passes.lower(params, windows[1], visible).compile().memory_analysis()
    told = sum(memory.tangents(wide, text.vocab_size).values())
    assert 0.5 < told / (asked.temp_size_in_bytes + asked.output_size_in_bytes) < 2


def test_status_tells_what_is_there(tmp_path):
    claim(tmp_path / "run", config(), new=True)
    assert "tangents of 0 of 6 checkpoints" in list(status.format_status(tmp_path / "run"))
    (tmp_path / "run" / "tangents").mkdir()
    for name in ("early", "0", "4"):
        (tmp_path / "run" / "tangents" / f"{name}.nc").touch()
    lines = list(status.format_status(tmp_path / "run"))
    assert "tangents of 2 of 6 checkpoints" in lines
    assert "tangents of some checkpoints" in lines[-1] + lines[-2]
