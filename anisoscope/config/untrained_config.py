"""Settings of experiments on untrained blocks, with defaults and limits.

An experiment file defines `get_config()` and returns an `UntrainedConfig`. Every combination of
`norm_orders`, `masks`, `embeddings` and `targets` is measured.
"""

from dataclasses import dataclass

from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import LARGEST_SEED, check_fields, setting

CHOICES = {
    "norm_orders": ("pre", "post"),
    "masks": ("bidirectional", "causal"),
    "embeddings": ("raw", "normed"),
    "targets": ("input", "queries", "keys", "both"),
}
NORMS = (
    0.0,
    *(10 ** (power / 2) for power in range(-4, 7)),
)  # 0, and 0.01 to 1,000 in half decades
LARGEST = 100_000  # with a larger bias, float32 keeps less than two digits of the input


@dataclass(frozen=True, slots=True, kw_only=True)
class UntrainedConfig:
    width: int = setting(768, "width of the residual stream", low=1)
    heads: int = setting(12, "attention heads per block; a divisor of width", low=1)
    expansion: int = setting(4, "feed-forward width as a multiple of the model width", low=1)
    blocks: int = setting(1, "number of blocks, each with its own random weights", low=1)
    vocabulary: int = setting(30_522, "rows of the embedding table (BERT's by default)", low=2)
    sequences: int = setting(16, "sequences per measurement", low=1)
    context: int = setting(512, "tokens per sequence", low=2)
    sigma: float = setting(
        0.02, "standard deviation of the initial weights before truncation", low=1e-6, high=1
    )
    truncated: bool = setting(
        True, "truncate the initial weights at 2 sigma without rescaling, as BERT does"
    )
    norms: tuple[float, ...] = setting(
        NORMS,
        "norms of the bias, relative to the root mean square norm of its input",
        low=0,
        high=LARGEST,
        nonempty=True,
    )
    norm_orders: tuple[str, ...] = setting(
        ("pre", "post"),
        "LayerNorm before (pre) or after (post) each sublayer",
        choices=CHOICES["norm_orders"],
        nonempty=True,
    )
    masks: tuple[str, ...] = setting(
        ("bidirectional",), "attention masks", choices=CHOICES["masks"], nonempty=True
    )
    embeddings: tuple[str, ...] = setting(
        ("raw",),
        "input embeddings: raw, or after LayerNorm (normed)",
        choices=CHOICES["embeddings"],
        nonempty=True,
    )
    targets: tuple[str, ...] = setting(
        ("input",),
        "vectors to which the bias is added; queries and keys: in every block",
        choices=CHOICES["targets"],
        nonempty=True,
    )
    seeds: int = setting(4, "repetitions with new weights, tokens and bias direction", low=1)
    seed: int = setting(0, "first random seed", low=0, high=LARGEST_SEED - 2**16)


def check_untrained(config: UntrainedConfig) -> None:
    """Raise UserError if the experiment cannot be run."""
    check_fields(config)
    if config.width % config.heads:
        raise UserError(f"heads is {config.heads}; it must divide width ({config.width})")
    if list(config.norms) != sorted(config.norms):
        raise UserError(f"norms is {config.norms}; it must increase")
