"""The stage among the others: when it is done, in what order, and what is refused before any
work.
"""

import pathlib

import pytest

from anisoscope.cli import status
from anisoscope.cli import training_stages as stages
from anisoscope.subspaces import run_tangents
from anisoscope.utils.folder import claim
from anisoscope.utils.settings import replace
from tests import tiny
from tests.program import refuse
from tests.subspaces.settings import config

DECODER = ("--config=experiments/decoder_small.py:tiny", "--config.data.source=pydoc")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ((*DECODER, "--stages=tangents"), "switched off; pass --config.tangents.enabled=True"),
        (
            (*DECODER, "--config.tangents.enabled=True", "--config.tangents.ranks=(128,)"),
            "leaves 42 at most",
        ),
        (
            (
                *DECODER,
                "--config.tangents.enabled=True",
                "--config.tangents.windows=512",
                "--stages=tangents",
            ),
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


def test_the_early_proxies_of_all_runs_come_first_since_each_is_the_control_of_another(monkeypatch):
    done, configs = (
        [],
        {name: replace(config(), {"train.seed": seed}) for seed, name in enumerate("ab")},
    )
    root = pathlib.Path("root")
    runs = {
        name: stages.Run(name, one, tiny.corpus(), root / name) for name, one in configs.items()
    }
    monkeypatch.setattr(
        run_tangents, "fit_early", lambda config, corpus, run, *_: done.append(("early", run.name))
    )
    monkeypatch.setattr(
        run_tangents,
        "sweep",
        lambda config, corpus, run, name, stop, other: done.append((run.name, other.name)),
    )
    monkeypatch.setattr(
        stages.on_disk, "write_tangents", lambda folders, to: done.append((*folders, to))
    )
    with stages.Stop() as stop:
        stages.fit_tangents(stages.Work(config(), runs, root, "title", ["tangents"], stop))
    assert done == [("early", "a"), ("early", "b"), ("a", "b"), ("b", "a"), ("a", "b", root)]


def test_status_tells_what_is_there(tmp_path):
    claim(tmp_path / "run", config(), new=True)
    assert "tangents of 0 of 6 checkpoints" in list(status.format_status(tmp_path / "run"))
    (tmp_path / "run" / "tangents").mkdir()
    for name in ("early", "0", "4"):
        (tmp_path / "run" / "tangents" / f"{name}.nc").touch()
    lines = list(status.format_status(tmp_path / "run"))
    assert "tangents of 2 of 6 checkpoints" in lines
    assert "tangents of some checkpoints" in lines[-1] + lines[-2]
