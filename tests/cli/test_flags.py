import pathlib
import re
import subprocess
import sys

import pytest

from anisoscope.cli import flags
from anisoscope.config.experiment import Config
from anisoscope.config.untrained import UntrainedConfig
from anisoscope.utils.errors import UserError

FILES = flags.EXPERIMENTS


def setting(*words, path="model.layers"):
    """The value that these words of a command line give a setting."""
    rest, given = flags.split(["main.py", *words])
    assert rest == ["main.py"]
    config = flags.override(Config(), given)
    for name in path.split("."):
        config = getattr(config, name)
    return config


def test_settings_become_words_that_are_read_as_the_same():
    settings = {"data.clean": None, "train.learning_rate": "2e-3", "measure.nulls": ""}
    assert flags.split(["main.py", *flags.joined(settings)]) == (["main.py"], settings)


@pytest.mark.parametrize(
    ("words", "path", "value"),
    [
        (["--config.model.layers=3"], "model.layers", 3),
        (["--config.model.layers", "3"], "model.layers", 3),
        (["--config.model.layers=3", "--config.model.layers=4"], "model.layers", 4),
        (["--config.mesh.data", "-1"], "mesh.data", -1),
        (["--config.train.penalty", "-.5"], "train.penalty", -0.5),
        (["--config.train.learning_rate=3e-4"], "train.learning_rate", 3e-4),
        (["--config.train.clip_norm=2"], "train.clip_norm", 2.0),
        (["--config.data.path=a=b, c"], "data.path", "a=b, c"),
        (["--config.data.path=None"], "data.path", None),
        (["--config.train.data_seed=7"], "train.data_seed", 7),
        (["--config.data.clean"], "data.clean", True),
        (["--config.data.clean", "1"], "data.clean", True),
        (["--config.data.clean=f"], "data.clean", False),
        (["--config.data.clean=true", "--noconfig.data.clean"], "data.clean", False),
        (["--config.measure.families=('scale', \"dimension\")"], "measure.families", ("scale", "dimension")),
        (["--config.measure.families", "scale,dimension"], "measure.families", ("scale", "dimension")),
        (["--config.measure.nulls="], "measure.nulls", ()),
        (["--config.train.penalty_layers=(0, 2)"], "train.penalty_layers", (0, 2)),
        (["--config.train.penalty_layers=3"], "train.penalty_layers", (3,)),
        (["--config.train.penalty_layers=" + "(" * 1000], "train.penalty_layers", ()),  # too deep for Python to read
    ],
)
def test_a_setting_is_read_as_its_type(words, path, value):
    found = setting(*words, path=path)
    assert found == value
    assert type(found) is type(value)


def test_a_list_of_numbers_takes_whole_ones():
    norms = flags.override(UntrainedConfig(), {"norms": "(0, 1.5, 1e3)"}).norms
    assert norms == (0.0, 1.5, 1000.0)
    assert {type(norm) for norm in norms} == {float}


def test_what_is_no_setting_is_left_to_others():
    words = ["main.py", "--config=a.py:tiny", "--stages", "train", "--configure.x=1", "config.a=1", "-v", "--", "now"]
    assert flags.split(words) == (words, {})
    rest, given = flags.split(["main.py", "--config.data.clean", "--stages", "train", "3"])
    assert (rest, given) == (["main.py", "--stages", "train", "3"], {"data.clean": None})
    assert flags.split(["--noconfig.data.clean=true"]) == (["--noconfig.data.clean=true"], {})


@pytest.mark.parametrize(
    ("path", "text", "line"),
    [
        ("modle.layers", "4", "--config.modle.layers: there is no config field 'modle'; did you mean 'model'?"),
        ("measure.families[0]", "scale", "there is no config field 'families[0]'; did you mean 'families'?"),
        ("colour", "red", "--config.colour: there is no config field 'colour'; choose from data, model, objective"),
        ("", "3", "--config.= names no setting; as in --config.train.steps=100"),
        ("train.steps.x", "5", "--config.train.steps.x: what stands before 'x' is a single setting, it has no fields"),
        ("train", "3", "--config.train is a group of settings; set one of them: steps, batch_size"),
        ("variants.decoder", "3", "--config.variants.decoder: the runs of an experiment are set in its file"),
        ("train.steps", "1.5", "--config.train.steps=1.5: a whole number is needed, as 8"),
        ("train.steps", None, "--config.train.steps needs a value: --config.train.steps=8"),
        ("train.data_seed", "one", "--config.train.data_seed=one: a whole number is needed, as 8"),
        ("train.learning_rate", "fast", "--config.train.learning_rate=fast: a number is needed, as 0.5"),
        ("data.clean", "maybe", "--config.data.clean=maybe: true or false is needed, as true"),
        ("measure.nulls", None, "--config.measure.nulls needs a value: --config.measure.nulls='(TEXT,)'"),
        ("train.penalty_layers", "(1, 'a')", "=(1, 'a'): a list, each a whole number, is needed, as '(8,)'"),
        ("train.penalty_layers", "{[]: 1}", "a list, each a whole number, is needed"),
    ],
)
def test_what_cannot_be_set_is_one_line(path, text, line):
    with pytest.raises(UserError, match=re.escape(line)):
        flags.override(Config(), {path: text})


def test_an_experiment_is_loaded_from_its_file_and_size(monkeypatch):
    assert flags.load(str(FILES / "decoder_small.py")).model.width == 512
    monkeypatch.chdir(FILES)
    assert flags.load("decoder_small.py:tiny").model.width == 128
    assert isinstance(flags.load("untrained_bias.py:tiny"), UntrainedConfig)


def test_experiments_of_the_package_have_their_name_everywhere_and_files_come_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("quickstart", "experiments/quickstart.py"):
        assert flags.file_of(name) == flags.EXPERIMENTS / "quickstart.py"
    for name in ("quickstart.py", "elsewhere/quickstart.py", "experiments/none.py", "experiments/../quickstart.py"):
        assert flags.file_of(name) == pathlib.Path(name)
    with pytest.raises(UserError, match=r"there is no file experiments/decoder_smal\.py; did you mean 'decoder_small'"):
        flags.load("experiments/decoder_smal.py:tiny")
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "quickstart.py").touch()
    assert flags.file_of("experiments/quickstart.py") == pathlib.Path("experiments/quickstart.py")


OWN = """
import dataclasses

from anisoscope.config.experiment import Config

@dataclasses.dataclass
class Notes:
    words: "str" = ""

def get_config():
    return Config(objective="masked")
"""


@pytest.mark.parametrize(
    ("text", "size", "words"),
    [
        ("def get_config(:\n", "", "experiment.py, line 1: "),
        ("\0", "", "null bytes"),
        ("import nothing_of_this_name", "", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("settings = {}", "", "experiment.py is no experiment, it defines no get_config()"),
        ("def get_config():\n    raise ValueError('two\\nlines')", "", "ValueError: two lines"),
        ("def get_config():\n    return {}", "", "get_config() gives a dict, no Config or UntrainedConfig"),
        (OWN, ":tiny", "this experiment takes no size after ':'"),
        ("get_config = 3", "", "TypeError"),
    ],
)
def test_a_file_that_is_no_experiment_is_one_line(tmp_path, text, size, words):
    path = tmp_path / "experiment.py"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        flags.load(f"{path}{size}")
    assert words in str(error.value)
    assert str(error.value).startswith("--config=")
    assert "\n" not in str(error.value)


def test_a_file_of_ones_own_may_hold_what_python_may(tmp_path):
    (tmp_path / "experiment.py").write_text(OWN)
    assert flags.load(str(tmp_path / "experiment.py")).objective == "masked"
    (tmp_path / "notes.txt").write_text(OWN)
    for name in ("nothing.py", "", "notes.txt"):
        with pytest.raises(UserError, match=rf"there is no file {tmp_path}|notes.txt is no Python file"):
            flags.load(str(tmp_path / name))


@pytest.mark.parametrize(("text", "value"), [("(1, 2)", (1.0, 2.0)), ("None", None), ("()", ())])
def test_a_list_may_be_left_out(text, value):
    assert flags.parse_value("floats", text, tuple[float, ...] | None) == value


def test_what_refuses_a_setting_imports_little():
    """Else every typing error takes seconds."""
    late = "{'jax', 'pandas', 'scipy', 'xarray', 'matplotlib', 'orbax'}"
    code = f"import sys, anisoscope.cli.flags; print(*{late} & {{*sys.modules}})"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "\n"
