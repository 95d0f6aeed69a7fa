import re

import pytest

from anisoscope.cli import flags
from anisoscope.cli.training_stages import check_run
from anisoscope.config.experiment_config import Config
from anisoscope.config.variants import expand
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace, walk_settings

MASKED = {"objective": "masked"}
ALONE = [  # is refused in a line that names the setting
    ("model.heads", 7),
    ("model.dtype", "float16"),
    ("train.steps", -1),
    ("train.accumulate", 3),
    ("model.prefix", 4),
    ("model.window", 4),
    ("model.leak", 0.5),
    ("model.mask", "prefix"),
    ("model.mask", "window"),
    ("model.mask", "bidirectional"),
    ("train.penalty_layers", (7,)),
    ("train.penalty_layers", (2, 2)),
    ("train.learning_rate", float("nan")),
    ("train.penalty", float("nan")),
    ("train.weight_decay", float("inf")),
    ("train.steps", 3 * 10**9),
    ("train.steps", 10**23),
    ("train.steps_per_call", 10**12),
    ("train.num_seeds", 100_000),
    ("watch.every", 2**40),
    ("model.width", 10**9),
    ("model.context", 10**9),
    ("model.layers", 10**9),
    ("train.seed", 2**64),
    ("train.num_seeds", 0),
    ("train.data_seed", -1),
    ("measure.families", ()),
    ("measure.nulls", ("shuffled", "shuffled")),
    ("evaluate.stride", 513),
    ("evaluate.draws", 3),
]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        *(({path: value}, re.escape(path)) for path, value in ALONE),
        ({"model.mask": "window", "model.window": 513}, r"model\.window is 513.*context=512"),
        ({"model.mask": "prefix", "model.prefix": 513}, r"model\.prefix is 513.*context=512"),
        ({"model.mask": "leak", "model.leak": 1.5} | MASKED, r"model\.leak is 1\.5"),
        ({"model.mask": "leak", "model.leak": 0.01}, "mask=leak shows the answer"),
        ({"model.mask": "prefix", "model.prefix": 512}, "mask=prefix shows the answer"),
        (
            {"model.mask": "prefix", "model.prefix": 500, "evaluate.stride": 14},
            r"evaluate\.stride is 14.* 13 targets",
        ),
        (
            {"model.width": 6, "model.heads": 2, "model.position_encoding": "rotary"},
            "even head width",
        ),
        ({"model.sink": True, "model.attention": "sigmoid"}, "sink .* attention=sigmoid"),
        ({"model.sink": True, "model.attention": "softmax_one"}, "sink .* attention=softmax_one"),
        ({"train.penalty": 0.1, "model.width": 1, "model.heads": 1}, "width is 1"),
        ({"train.learning_rate": 0.0, "train.other_learning_rate": 0.1}, "above 0"),
        ({"train.penalty": 0.1, "train.accumulate": 2}, r"penalty .* train\.accumulate=2"),
        ({"watch.every": 16, "train.accumulate": 2}, r"watch\.every .* train\.accumulate=2"),
        ({"train.num_seeds": 100, "train.num_data_seeds": 11}, "100 × 11 data seeds are more"),
        ({"train.steps": 10**9, "checkpoint.every": 10}, "every=10 keeps 100,000,000 check"),
        ({"train.num_seeds": 2, "train.num_data_seeds": 0}, "num_data_seeds is 0"),
        ({"train.seed": 2**31 - 1, "train.num_seeds": 2}, "seed is 2147483648"),
        ({"train.data_seed": 2**31 - 1, "train.num_data_seeds": 2}, "data_seed is 2147483648"),
    ],
)
def test_what_cannot_run_is_refused_in_one_line_that_names_it(settings, words):
    with pytest.raises(UserError, match=words) as error:
        [check_run(run) for run in expand(replace(Config(), settings)).values()]
    assert "\n" not in str(error.value)


def test_every_setting_says_what_it_means():
    for kind in flags.CONFIG_KINDS:
        for one in walk_settings(kind()):
            assert one.metadata["help"], f"{kind.__name__}.{one.name}"
