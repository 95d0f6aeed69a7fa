"""Untrained blocks as their users start them: processes, exit codes, files."""

import dataclasses
import json
import re
import shutil
import signal
import subprocess

import pytest

from anisoscope.cli import untrained
from anisoscope.config.untrained import UntrainedConfig
from anisoscope.experiments import quickstart
from anisoscope.measurement.tables import files
from anisoscope.utils import folder
from anisoscope.utils.errors import RunError, UserError
from tests.program import ROOT, asked, command, environment, here, main, refuse, wait_for

BIAS = "--config=experiments/untrained_bias.py"
SMALL = [
    f"{BIAS}:tiny",
    "--config.width=16",
    "--config.heads=2",
    "--config.sequences=2",
    "--config.context=8",
    "--config.vocabulary=50",
    "--config.norms=(0, 1, 10)",
    "--config.seeds=2",
]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([f"{BIAS}:huge"], "choose bert or table or tiny"),
        ([BIAS, "--config.model.width=3"], "no config field 'model'; choose from width, heads"),
        ([BIAS, "--config.heads=7"], "heads is 7; it must divide width (768)"),
        ([BIAS, "--config.norms=(0, -1)"], "norms: -1"),
        ([BIAS, "--config.masks=('diagonal',)"], "choose from bidirectional, causal"),
        ([BIAS, "--stages=train"], "untrained blocks are not trained; choose from measure, figures"),
        ([BIAS, "--compare=runs/other"], "--compare is for training runs"),
        ([BIAS, "--stages=figures"], "results.nc does not exist; run --stages=measure first"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(flags, words, tmp_path):
    refuse(tmp_path / "run", words, *flags)


def test_a_dry_run_shows_the_settings_and_does_nothing(tmp_path):
    process = here(*SMALL, "--dry_run", f"--workdir={tmp_path / 'run'}")
    assert process.returncode == 0
    assert process.stdout.startswith(f"folder: {tmp_path / 'run'}\ncost: ")
    assert "--config.norms=0,1,10 " in process.stdout
    assert not any(tmp_path.iterdir())
    refuse(tmp_path / "run", "heads is 7; it must divide width (768)", BIAS, "--config.heads=7", "--dry_run")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "bias"
    process = main(*SMALL, f"--workdir={workdir}")
    assert process.returncode == 0, process.stderr
    return workdir, process


def files_of(workdir):
    """Content of all tables, and when those that are joined were measured."""
    paths = [path for path in workdir.rglob("*") if path.suffix in (".nc", ".csv")]
    return {path: (path.read_bytes(), path.parent != workdir and path.stat().st_mtime_ns) for path in paths}


def test_one_command_measures_and_draws(run):
    workdir, process = run
    assert "Warning" not in process.stderr
    assert "6/6" in process.stderr  # the progress bar
    table = files.read_table(workdir / "results.nc")
    assert dict(table.sizes) == {
        **{"norm_order": 2, "mask": 1, "embedding": 1, "target": 1},
        **{"relative_norm": 3, "statistic": 4, "block": 1},
    }
    assert files.read_table(workdir / "seeds.nc").sizes["seed"] == 2
    assert json.loads((workdir / "config.json").read_text())["norms"] == [0, 1, 10]
    assert json.loads((workdir / "environment.json").read_text())["corpus"] is None
    assert f"figures: {workdir / 'figures'} (3, each as" in process.stdout
    for name in ("cosine", "norm", "sharpness"):
        for kind in ("png", "pdf"):
            path = workdir / "figures" / f"untrained_{name}.{kind}"
            assert path.stat().st_size > 1000


@pytest.fixture
def again(run, tmp_path):
    """Measure in a copy of the run's folder, here: the tests above say what the program makes of what is raised."""
    workdir = tmp_path / "bias"
    shutil.copytree(run[0], workdir)
    config = UntrainedConfig(**json.loads((workdir / "config.json").read_text()))
    tuples = {name: tuple(value) for name, value in dataclasses.asdict(config).items() if isinstance(value, list)}

    def measure(stages_wanted=("measure",), **changes):
        changed = dataclasses.replace(config, **tuples | changes)
        untrained.untrained_blocks(changed, asked(workdir, *stages_wanted, title="bias"))

    return workdir, measure


def test_the_same_command_again_does_nothing(again, capsys):
    workdir, measure = again
    before = files_of(workdir)
    measure()
    assert "6 tables (0 now)" in capsys.readouterr().out
    assert files_of(workdir) == before


def test_an_occupied_folder_is_refused(again):
    workdir, measure = again
    before = files_of(workdir)
    for wanted in ("measure", "figures"):
        with pytest.raises(UserError, match="seed=0 there, 1 now"):
            measure([wanted], seed=1)
        assert files_of(workdir) == before
    with pytest.raises(UserError, match="holds a run with other settings"):
        folder.claim(workdir, quickstart.get_config(), new=True)
    assert files_of(workdir) == before


@pytest.mark.slow
def test_a_killed_and_a_stopped_run_goes_on_to_the_same_numbers(run, tmp_path):
    workdir = tmp_path / "bias"
    flags = [*SMALL, f"--workdir={workdir}", "--stages=measure"]
    for sent in (signal.SIGKILL, signal.SIGTERM):
        with subprocess.Popen(
            command(*flags), cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            wait_for(workdir / "environment.json", process)  # signals are held from before it
            process.send_signal(sent)
            output = process.communicate(timeout=300)[0]
        assert not (workdir / "results.nc").exists()
        (workdir / "environment.json").unlink()  # the next process makes it anew
    assert process.returncode == 0
    assert re.search("stopped before (pre|post), bidirectional, raw, input, norm", output)
    assert main(*flags).returncode == 0
    for name in ("results.csv", "results.nc", "seeds.nc"):
        assert (workdir / name).read_bytes() == (run[0] / name).read_bytes()


def test_a_damaged_table_is_one_line(again):
    workdir, measure = again
    path = next((workdir / "measurements").glob("*.nc"))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(RunError) as error:
        measure()
    assert str(path) in str(error.value)
    assert len(str(error.value).splitlines()) == 1
