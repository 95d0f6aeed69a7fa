"""Untrained BERT blocks under a common bias, pre-LN and post-LN: minutes on two cores.

`:table` is the post-LN block with normal instead of truncated initial values, and biases of norm 0,
1, 10 and 300. `:full` has all kinds of blocks, 12 deep, for a GPU. `:tiny` takes seconds.
"""

from anisoscope.config.untrained_config import CHOICES, UntrainedConfig
from anisoscope.config.variants import select_size
from anisoscope.utils.settings import replace


def get_config(size: str = "bert") -> UntrainedConfig:
    table = UntrainedConfig(truncated=False, norm_orders=("post",), seeds=8)
    row_norm = table.sigma * table.width**0.5
    sizes = {
        "bert": UntrainedConfig(),
        "table": replace(
            table, {"norms": tuple(norm / row_norm for norm in (0.0, 1.0, 10.0, 300.0))}
        ),
        "full": replace(UntrainedConfig(), {"blocks": 12, **CHOICES}),
        "tiny": UntrainedConfig(width=64, heads=4, sequences=4, context=64, vocabulary=1000),
    }
    return select_size(size, sizes)
