"""Untrained BERT blocks under a common bias, pre-LN and post-LN: minutes on two cores.

`:table` is the post-LN block with normal instead of truncated initial values, and biases of norm 0, 1, 10 and 300.
`:tiny` takes seconds.
"""

from untrained.config import UntrainedConfig
from workdir.errors import UserError, meant
from workdir.settings import replace

COST = {"bert": "4 minutes of one CPU core", "table": "minutes on two CPU cores", "tiny": "seconds"}


def get_config(size: str = "bert") -> UntrainedConfig:
    if size == "bert":
        return UntrainedConfig()
    if size == "tiny":
        return UntrainedConfig(width=64, heads=4, sequences=4, context=64, vocabulary=1000)
    if size == "table":
        config = UntrainedConfig(truncated=False, norm_orders=("post",), seeds=8)
        row_norm = config.sigma * config.width**0.5
        return replace(config, {"norms": tuple(norm / row_norm for norm in (0.0, 1.0, 10.0, 300.0))})
    raise UserError(f"experiment size {size!r} is unknown; choose bert, table or tiny{meant(size, COST)}")
