"""The schema of untrained-block experiments: every setting, its default and its limits.

An experiment file defines `get_config()` and returns an `UntrainedConfig`; its kinds are the
products of `norm_orders`, `masks`, `embeddings` and `targets`.
"""

from dataclasses import dataclass

from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import check_fields, setting, within

CHOICES = {
    "norm_orders": ("pre", "post"),
    "masks": ("bidirectional", "causal"),
    "embeddings": ("raw", "normed"),
    "targets": ("input", "queries", "keys", "both"),
}
NORMS = (
    0.0,
    *(10 ** (power / 2) for power in range(-4, 7)),
)  # 0, and 0.01 to 1,000 by half decades
LARGEST = 100_000  # beside a larger bias float32 holds less than two digits of a row


@dataclass(frozen=True, slots=True, kw_only=True)
class UntrainedConfig:
    width: int = setting(768, "of the rows", low=1)
    heads: int = setting(12, "must divide the width", low=1)
    expansion: int = setting(4, "feed-forward width / width", low=1)
    blocks: int = setting(1, "stacked, each with its own initial values", low=1)
    vocabulary: int = setting(30_522, "rows of the embedding table: BERT's", low=2)
    sequences: int = setting(16, "that are measured together", low=1)
    context: int = setting(512, "positions of a sequence", low=2)
    sigma: float = setting(0.02, "of table and kernels, before truncation")
    truncated: bool = setting(True, "at 2 sigma, not rescaled, as in BERT; or normal")
    norms: tuple[float, ...] = setting(
        NORMS, "of the bias, over its input's rms norm", low=0, high=LARGEST, nonempty=True
    )
    norm_orders: tuple[str, ...] = setting(
        ("pre", "post"), "LayerNorm before or after", choices=CHOICES["norm_orders"], nonempty=True
    )
    masks: tuple[str, ...] = setting(
        ("bidirectional",), "of attention", choices=CHOICES["masks"], nonempty=True
    )
    embeddings: tuple[str, ...] = setting(
        ("raw",), "rows raw, or with LayerNorm", choices=CHOICES["embeddings"], nonempty=True
    )
    targets: tuple[str, ...] = setting(
        ("input",),
        "what is biased; queries and keys in every block",
        choices=CHOICES["targets"],
        nonempty=True,
    )
    seeds: int = setting(4, "draws of table, tokens, block and direction of the bias", low=1)
    seed: int = setting(0, "the first of them")


def check_untrained(config: UntrainedConfig) -> None:
    """Raise UserError, one line, where the experiment cannot be run."""
    check_fields(config)
    if config.width % config.heads:
        raise UserError(f"heads is {config.heads}; it must divide width ({config.width})")
    if not 0 < config.sigma <= 1:
        raise UserError(f"sigma is {config.sigma}; it must lie in (0, 1]")
    within("seed", config.seed, 0, 2**31 - config.seeds)
    if list(config.norms) != sorted(config.norms):
        raise UserError(f"norms is {config.norms}; it must increase")
