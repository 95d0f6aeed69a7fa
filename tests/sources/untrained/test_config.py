import dataclasses

import pytest

from anisoscope.config.untrained_config import UntrainedConfig, check_untrained
from anisoscope.experiments import untrained_bias, untrained_bias_full
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import from_dict, to_dict


@pytest.mark.parametrize("module", [untrained_bias, untrained_bias_full])
@pytest.mark.parametrize("size", ["bert", "tiny", "table"])
def test_every_experiment_validates_and_round_trips(module, size):
    config = module.get_config(size)
    check_untrained(config)
    assert from_dict(to_dict(config), UntrainedConfig) == config


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("heads", 7, r"divide width \(768\)"),
        ("seed", 2**31 - 3, "lie in"),
        ("sigma", 0.0, "lie in"),
        ("norms", (), "empty"),
        ("norms", (0.0, -1.0), "must lie in"),
        ("norms", (0.0, 1e6), "must lie in"),
        ("norms", (1.0, 1.0), "twice"),
        ("masks", ("diagonal",), "choose one of bidirectional, causal"),
    ],
)
def test_what_cannot_run_is_refused_in_one_line_that_names_it(name, value, words):
    config = dataclasses.replace(UntrainedConfig(), **{name: value})
    with pytest.raises(UserError, match=words) as error:
        check_untrained(config)
    assert str(error.value).startswith(name)
    assert "\n" not in str(error.value)
