"""Settings of experiments on curved manifolds, with defaults and limits."""

from dataclasses import dataclass

from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import LARGEST_SEED, check_fields, setting

MANIFOLDS = ("paraboloid", "sphere", "torus")
FLAT = 0.1  # leading orders are fitted where spread times curvature is at most this
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
    dimension: int = setting(2, "dimension of the manifold", low=1)
    width: int = setting(16, "dimension of the space in which the manifold is embedded")
    types: int = setting(
        4096, "distinct points of the manifold, in pairs u and -u about the base point", low=16
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
    draws: int = setting(4096, "points sampled by weight, with replacement", low=16)
    seeds: int = setting(16, "repetitions with new points, targets and rotation", low=1)
    seed: int = setting(0, "first random seed", low=0, high=LARGEST_SEED - 2**16)


def check_curved(config: CurvedConfig) -> None:
    """Raise UserError if the experiment cannot be run."""
    check_fields(config)
    if config.types % 2:
        raise UserError(f"types is {config.types}; it must be even, since they come in pairs")
    if "torus" in config.manifolds and config.dimension != 2:
        advice = "leave it out or set dimension=2"
        raise UserError(f"manifolds: torus has dimension 2, not {config.dimension}; {advice}")
    for curvature in config.curvatures:
        if sum(spread * curvature <= FLAT for spread in config.spreads) < 3:
            what = f"a slope needs 3 spreads of at most {FLAT / curvature:g}"
            raise UserError(f"spreads: for curvature {curvature:g} {what}; add smaller spreads")
