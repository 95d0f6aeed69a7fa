"""The schema of experiments on curved manifolds: every setting, its default and its limits."""

from dataclasses import dataclass

from anisoscope.utils.errors import UserError, did_you_mean
from anisoscope.utils.settings import LARGEST_SEED, at_least, within

MANIFOLDS = ("paraboloid", "sphere", "torus")
FLAT = 0.1  # largest spread times curvature where leading orders in the spread are fitted
SPREADS = tuple(2.0**-power for power in range(9, 1, -1))  # 0.002 to 0.25
BIASES = (0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 63.0)  # each cuts the spread by the square root of 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvedConfig:
    manifolds: tuple[str, ...] = MANIFOLDS  # paraboloid, sphere, torus
    curvatures: tuple[float, ...] = (0.5, 2.0)  # the largest principal curvature at the base point
    dimension: int = 2  # of the manifold
    width: int = 16  # of the space it is turned into
    types: int = 4096  # points of the manifold, in pairs u and -u about the base point
    spreads: tuple[float, ...] = SPREADS  # t: the deviation of a tangent coordinate
    biases: tuple[float, ...] = BIASES  # b: a type at t u has a frequency in proportion to exp(-b |u|^2 / 2)
    biased_spread: float = 0.05  # of all types, before frequencies
    draws: int = 4096  # by frequency, with replacement
    seeds: int = 16  # draws of points, targets and rotation
    seed: int = 0  # the first of them


def check_curved(config: CurvedConfig) -> None:
    """Raise UserError, one line, where the experiment cannot be run."""
    for name, least in (("dimension", 1), ("types", 16), ("draws", 16), ("seeds", 1)):
        at_least(name, getattr(config, name), least)
    if config.types % 2:
        raise UserError(f"types is {config.types}; it must be even, since they come in pairs")
    if config.width <= config.dimension:
        raise UserError(f"width is {config.width}; it must exceed dimension ({config.dimension})")
    within("seed", config.seed, 0, LARGEST_SEED - config.seeds)
    if not config.manifolds:
        raise UserError(f"manifolds is empty; choose from {', '.join(MANIFOLDS)}")
    for name in config.manifolds:
        if name not in MANIFOLDS:
            words = f"choose from {', '.join(MANIFOLDS)}{did_you_mean(name, MANIFOLDS)}"
            raise UserError(f"manifolds: {name!r} is unknown; {words}")
    if "torus" in config.manifolds and config.dimension != 2:
        raise UserError(f"manifolds: torus has dimension 2, not {config.dimension}; leave it out or set dimension=2")
    for name in ("manifolds", "curvatures", "spreads", "biases"):
        values = getattr(config, name)
        if len(set(values)) < len(values) or not values:
            raise UserError(f"{name} is {values}; give some, each once")
    for name, least in (("curvatures", 1e-3), ("spreads", 1e-3), ("biases", 0.0)):
        for value in getattr(config, name):
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= 1e3:
                raise UserError(f"{name}: {value!r} must be a number in [{least:g}, 1000]")
    within("biased_spread", config.biased_spread, 1e-3, 1000)
    for curvature in config.curvatures:
        if sum(spread * curvature <= FLAT for spread in config.spreads) < 3:
            words = f"fewer than 3 spreads are at most {FLAT / curvature:g}, which a slope needs"
            raise UserError(f"spreads: for the curvature {curvature:g} {words}; add smaller ones")
