import re
import subprocess
import sys

import pytest

from anisoscope.cli import flags
from anisoscope.config.untrained_config import UntrainedConfig
from anisoscope.utils.errors import UserError

FILES = flags.EXPERIMENTS
TWO = ("scale", "hubness")


@pytest.mark.parametrize(
    ("words", "path", "value"),
    [
        (["--config.model.layers=3"], "model.layers", 3),
        (["--config.model.layers", "3"], "model.layers", 3),
        (["--config.model.layers=3", "--config.model.layers=4"], "model.layers", 4),
        (["--config.mesh.data", "-1"], "mesh.data", -1),
        (["--config.train.learning_rate=3e-4"], "train.learning_rate", 3e-4),
        (["--config.train.clip_norm=2"], "train.clip_norm", 2.0),
        (["--config.data.path=a=b, c"], "data.path", "a=b, c"),
        (["--config.data.path=None"], "data.path", None),
        (["--config.train.data_seed=7"], "train.data_seed", 7),
        (["--config.data.clean"], "data.clean", True),
        (["--config.data.clean=f"], "data.clean", False),
        (["--config.data.clean=true", "--noconfig.data.clean"], "data.clean", False),
        (["--config.measure.families=('scale', \"hubness\")"], "measure.families", TWO),
        (["--config.measure.families", "scale,hubness"], "measure.families", TWO),
        (["--config.measure.nulls="], "measure.nulls", ()),
        (["--config.train.penalty_layers=(0, 2)"], "train.penalty_layers", (0, 2)),
        (["--config.train.penalty_layers=3"], "train.penalty_layers", (3,)),
    ],
)
def test_a_setting_is_read_by_the_type_of_its_field(words, path, value):
    given, config, names = flags.parse(
        ["main.py", "--config=decoder_small:tiny", *words, "--workdir=w"]
    )
    found = getattr(getattr(config, path.split(".")[0]), path.split(".")[1])
    assert (found, type(found), names, given.workdir) == (value, type(value), {path}, "w")


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("--config.modle.layers=4", "did you mean --config.model.layers?"),
        ("now", "'now' is not a flag"),
        ("--config.train.steps=1.5", "--config.train.steps=1.5: a whole number is needed"),
        ("--config.train.learning_rate=fast", "a number is needed"),
        ("--config.data.clean=maybe", "true or false is needed"),
        ("--config.train.steps", "Missing value for flag --config.train.steps"),
        ("--config.train.penalty_layers=(1, 'a')", "a whole number is needed"),
        ("--config.train.optimizer=sgd", "is adamw's; pass --config.train.learning_rate too"),
        ("--config=decoder_smal", "there is no file decoder_smal; did you mean decoder_small?"),
    ],
)
def test_bad_input_is_one_short_line(word, line):
    with pytest.raises(UserError, match=re.escape(line)) as error:
        flags.parse(["main.py", word])
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300


def test_an_experiment_is_found_by_path_or_name_and_files_come_first(tmp_path, monkeypatch):
    assert flags.load_experiment(str(FILES / "decoder_small.py")).model.width == 512
    monkeypatch.chdir(tmp_path)
    for name in ("quickstart", "experiments/quickstart.py"):
        assert flags.find_file(name) == FILES / "quickstart.py"
    assert isinstance(flags.load_experiment("untrained_bias:tiny"), UntrainedConfig)
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "quickstart.py").write_text("def get_config(): return 3")
    with pytest.raises(UserError, match="returns a int; return a Config or UntrainedConfig"):
        flags.load_experiment("experiments/quickstart.py")
    assert list(flags.list_experiments(tmp_path / "experiments")) == [("quickstart", "")]


OWN = """
import jax.numpy as jnp
import numpy as np
from anisoscope.config.experiment_config import Config
from anisoscope.config.run_config import TrainConfig

def get_config():
    train = TrainConfig(steps=np.int64(40), beta1=np.float32(0.5), seed=jnp.int32(3))
    return Config(objective="masked", train=train, variants={"a": {"train.seed": np.int64(2)}})
"""


def test_numbers_of_numpy_and_jax_are_taken_as_pythons(tmp_path):
    (tmp_path / "experiment.py").write_text(OWN)
    config = flags.load_experiment(str(tmp_path / "experiment.py"))
    assert [config.train.steps, config.train.beta1, config.train.seed] == [40, 0.5, 3]
    assert type(config.train.steps) is type(config.variants["a"]["train.seed"]) is int


def test_bad_input_is_refused_before_jax_is_loaded():
    """Else every typing error takes seconds."""
    late = "{'jax', 'pandas', 'scipy', 'xarray', 'matplotlib', 'orbax'}"
    code = "import sys; from anisoscope.cli import process; code = process.main(['a', '--config.train.stps=3'])"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print(code, *{late} & {{*sys.modules}})"],
        capture_output=True,
        text=True,
    )
    assert done.stdout == "2\n"
    assert len(done.stderr.splitlines()) == 1
