"""The schema of untrained-block experiments: every setting, its default and its limits.

An experiment file defines `get_config()` and returns an `UntrainedConfig`; its kinds are the products of
`norm_orders`, `masks`, `embeddings` and `targets`.
"""

from dataclasses import dataclass

from anisoscope.utils.errors import UserError, did_you_mean
from anisoscope.utils.settings import at_least, once, within

CHOICES = {
    "norm_orders": ("pre", "post"),
    "masks": ("bidirectional", "causal"),
    "embeddings": ("raw", "normed"),
    "targets": ("input", "queries", "keys", "both"),
}
NORMS = (0.0, *(10 ** (power / 2) for power in range(-4, 7)))  # 0, and 0.01 to 1,000 by half decades
LARGEST = 100_000  # beside a larger bias float32 holds less than two digits of a row


@dataclass(frozen=True, slots=True, kw_only=True)
class UntrainedConfig:
    width: int = 768  # of the rows
    heads: int = 12  # must divide the width
    expansion: int = 4  # feed-forward width / width
    blocks: int = 1  # stacked, each with its own initial values
    vocabulary: int = 30_522  # rows of the embedding table: BERT's
    sequences: int = 16  # that are measured together
    context: int = 512  # positions of a sequence
    sigma: float = 0.02  # of table and kernels, before truncation
    truncated: bool = True  # at 2 sigma, not rescaled, as in BERT: the deviation is 0.88 sigma; False: normal
    norms: tuple[float, ...] = NORMS  # of the bias, over the root mean square norm of what it is added to
    norm_orders: tuple[str, ...] = ("pre", "post")  # LayerNorm before each sublayer or after the residual sum
    masks: tuple[str, ...] = ("bidirectional",)  # bidirectional, causal
    embeddings: tuple[str, ...] = ("raw",)  # raw rows of the table, or each with LayerNorm (normed)
    targets: tuple[str, ...] = ("input",)  # biased: the input, or in every block the queries, the keys or both
    seeds: int = 4  # draws of table, tokens, block and direction of the bias
    seed: int = 0  # the first of them


def check_untrained(config: UntrainedConfig) -> None:
    """Raise UserError, one line, where the experiment cannot be run."""
    for name in ("width", "heads", "expansion", "blocks", "vocabulary", "sequences", "context", "seeds"):
        at_least(name, getattr(config, name), 2 if name in ("vocabulary", "context") else 1)
    if config.width % config.heads:
        raise UserError(f"heads is {config.heads}; it must divide width ({config.width})")
    if not 0 < config.sigma <= 1:
        raise UserError(f"sigma is {config.sigma}; it must lie in (0, 1]")
    within("seed", config.seed, 0, 2**31 - config.seeds)
    for name, allowed in CHOICES.items():
        chosen = getattr(config, name)
        if not chosen:
            raise UserError(f"{name} is empty; choose from {', '.join(allowed)}")
        for value in chosen:
            if value not in allowed:
                words = f"choose from {', '.join(allowed)}{did_you_mean(value, allowed)}"
                raise UserError(f"{name}: {value!r} is unknown; {words}")
        once(name, chosen)
    if not config.norms:
        raise UserError("norms is empty; give some, as (0, 1, 10)")
    for norm in config.norms:
        if isinstance(norm, bool) or not isinstance(norm, int | float) or not 0 <= norm <= LARGEST:
            raise UserError(f"norms: {norm!r} is no norm; each must be a number in [0, {LARGEST:,}]")
    if list(config.norms) != sorted(set(config.norms)):
        raise UserError(f"norms is {config.norms}; it must increase")
