"""Settings of experiments on untrained blocks and on curved manifolds.

Every combination of `norm_orders`, `masks`, `embeddings` and `targets` is measured.
"""

from dataclasses import dataclass

from anisoscope.config.model_config import MOST_CONTEXT, MOST_EXPANSION, MOST_WIDTH
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import LARGEST_SEED, check_fields, setting

CHOICES = {
    "norm_orders": ("pre", "post"),
    "masks": ("bidirectional", "causal"),
    "embeddings": ("raw", "normed"),
    "targets": ("input", "queries", "keys", "both"),
}
BIAS_NORMS = (
    0.0,
    *(10 ** (power / 2) for power in range(-4, 7)),
)  # 0, and 0.01 to 1,000 in half decades
LARGEST_BIAS = 100_000  # with a larger bias, float32 keeps less than two digits of the input


@dataclass(frozen=True, slots=True, kw_only=True)
class UntrainedConfig:
    width: int = setting(768, "width of the residual stream", low=1, high=MOST_WIDTH)
    heads: int = setting(12, "attention heads per block; a divisor of width", low=1)
    expansion: int = setting(
        4, "feed-forward width as a multiple of the model width", low=1, high=MOST_EXPANSION
    )
    blocks: int = setting(1, "number of blocks, each with its own random weights", low=1, high=4096)
    vocabulary: int = setting(
        30_522, "rows of the embedding table (BERT's by default)", low=2, high=2**24
    )
    sequences: int = setting(16, "sequences per measurement", low=1, high=2**16)
    context: int = setting(512, "tokens per sequence", low=2, high=MOST_CONTEXT)
    sigma: float = setting(
        0.02, "standard deviation of the initial weights before truncation", low=1e-6, high=1
    )
    truncated: bool = setting(
        True, "truncate the initial weights at 2 sigma without rescaling, as BERT does"
    )
    norms: tuple[float, ...] = setting(
        BIAS_NORMS,
        "norms of the bias, relative to the root mean square norm of its input",
        low=0,
        high=LARGEST_BIAS,
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
    seeds: int = setting(
        4, "repetitions with new weights, tokens and bias direction", low=1, high=1000
    )
    seed: int = setting(0, "first random seed", low=0, high=LARGEST_SEED - 2**16)


def check_untrained(config: UntrainedConfig) -> None:
    """Raise UserError if the experiment cannot be run."""
    check_fields(config)
    if config.width % config.heads:
        raise UserError(f"heads is {config.heads}; it must divide width ({config.width})")
    if list(config.norms) != sorted(config.norms):
        raise UserError(f"norms is {config.norms}; it must increase")


MANIFOLDS = ("paraboloid", "sphere", "torus")
FLATTEST = 0.1  # leading orders are fitted where spread times curvature is at most this
SPREADS = tuple(2.0**-power for power in range(9, 1, -1))  # 0.002 to 0.25
BIASES = (0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 63.0)  # each cuts the spread by the square root of 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvedConfig:
    manifolds: tuple[str, ...] = setting(
        MANIFOLDS, "manifolds to measure", choices=MANIFOLDS, nonempty=True
    )
    curvatures: tuple[float, ...] = setting(
        (0.5, 2.0),
        "largest principal curvature at the base point",
        low=1e-3,
        high=1e3,
        nonempty=True,
    )
    dimension: int = setting(2, "dimension of the manifold", low=1, high=MOST_WIDTH)
    width: int = setting(
        16, "dimension of the space in which the manifold is embedded", low=2, high=MOST_WIDTH
    )
    types: int = setting(
        4096,
        "distinct points of the manifold, in pairs u and -u about the base point",
        low=16,
        high=2**24,
    )
    spreads: tuple[float, ...] = setting(
        SPREADS, "standard deviations of a tangent coordinate", low=1e-3, high=1e3, nonempty=True
    )
    biases: tuple[float, ...] = setting(
        BIASES, "frequency biases b: weight exp(-b |u|^2 / 2)", low=0, high=1e3, nonempty=True
    )
    biased_spread: float = setting(
        0.05, "standard deviation of a tangent coordinate before weighting", low=1e-3, high=1e3
    )
    draws: int = setting(4096, "points sampled by weight, with replacement", low=16, high=2**24)
    seeds: int = setting(16, "repetitions with new points, targets and rotation", low=1, high=1000)
    seed: int = setting(0, "first random seed", low=0, high=LARGEST_SEED - 2**16)


def check_curved(config: CurvedConfig) -> None:
    """Raise UserError if the experiment cannot be run."""
    check_fields(config)
    if config.types % 2:
        raise UserError(f"types is {config.types}; it must be even, since they come in pairs")
    if config.width <= config.dimension:  # one direction is normal to the manifold
        what = f"manifolds of dimension {config.dimension} need more dimensions"
        raise UserError(f"width is {config.width}; {what}: set at least {config.dimension + 1}")
    if "torus" in config.manifolds and config.dimension != 2:
        advice = "leave it out or set dimension=2"
        raise UserError(f"manifolds: torus has dimension 2, not {config.dimension}; {advice}")
    for curvature in config.curvatures:
        if sum(spread * curvature <= FLATTEST for spread in config.spreads) < 3:
            what = f"a slope needs 3 spreads of at most {FLATTEST / curvature:g}"
            raise UserError(f"spreads: for curvature {curvature:g} {what}; add smaller spreads")
