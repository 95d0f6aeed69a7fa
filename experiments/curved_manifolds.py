"""A linear probe's gradient on known curved manifolds, beside what theory says of it; no corpus, no training."""

from curved.config import CurvedConfig
from workdir.errors import UserError, meant

COST = {"": "half a minute of one CPU core", "tiny": "seconds"}


def get_config(size: str = "") -> CurvedConfig:
    sizes = {"": CurvedConfig(types=8192, draws=8192), "tiny": CurvedConfig(types=1024, draws=1024, seeds=4)}
    if size not in sizes:
        raise UserError(f"experiment size {size!r} is unknown; choose tiny, or leave it out{meant(size, sizes)}")
    return sizes[size]
