"""A linear probe's gradient on known curved manifolds, compared with theory.

It needs neither a corpus nor training.
"""

from anisoscope.config.untrained_config import CurvedConfig
from anisoscope.config.variants import select_size


def get_config(size: str = "") -> CurvedConfig:
    sizes = {
        "": CurvedConfig(types=8192, draws=8192),
        "tiny": CurvedConfig(types=1024, draws=1024, seeds=4),
    }
    return select_size(size, sizes)
