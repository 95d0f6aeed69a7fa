"""Settings of the stage `tangents`."""

from dataclasses import dataclass

from anisoscope.config.measure_config import FAMILY_NAMES
from anisoscope.config.run_config import RunConfig, checkpoint_steps
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import LARGEST_SEED, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class TangentsConfig:
    enabled: bool = setting(False, "run the stage tangents")
    windows: int = setting(128, "validation windows to test on; as many more are fitted to", low=1)
    points: int = setting(2048, "scored positions for fitting, and for testing", low=1)
    folds: int = setting(8, "folds of whole windows, resampled for confidence intervals", low=2)
    ranks: tuple[int, ...] = setting(
        (4, 16), "dimensions of the fitted subspaces; at most width / 3", low=1, nonempty=True
    )
    early_fraction: float = setting(
        0.3, "early subspace: fraction of training whose checkpoints are fitted", low=0, high=1
    )
    restarts: int = setting(3, "semi-NMF: random restarts; the best fit is kept", low=1)
    rounds: int = setting(100, "semi-NMF: update steps", low=1)
    controls: int = setting(
        20, "random subspaces to compare with; p-values are at least 1 / (controls + 1)", low=1
    )
    neighbors: int = setting(32, "nearest neighbors from which a local tangent space is fitted")
    local_points: int = setting(512, "points at which a local tangent space is fitted", low=1)
    families: tuple[str, ...] = setting(
        ("spectrum", "leading", "similarity"),
        "groups of metrics of single clouds to compute for clouds of gradients",
        choices=FAMILY_NAMES,
    )
    seed: int = setting(
        0,
        "random seed of windows, masks, positions, restarts and controls",
        low=0,
        high=LARGEST_SEED,
    )


def check_settings(tangents: TangentsConfig, width: int | None = None, words: str = "") -> None:
    """Raise UserError if the settings contradict each other; `words` name the width."""
    ranks, points = tangents.ranks, tangents.points
    if sorted(ranks) != list(ranks):
        raise UserError(f"tangents.ranks is {ranks}; sort them in ascending order")
    if width is not None and ranks[-1] > width // 3:
        why = "random subspaces of equal energy need three times the rank"
        most = f"{words} allows {width // 3} at most"
        raise UserError(f"tangents.ranks has {ranks[-1]}; {most} ({why})")
    if not ranks[-1] < tangents.neighbors <= points:
        limits = f"exceed tangents.ranks ({ranks[-1]}) and be at most tangents.points ({points})"
        raise UserError(f"tangents.neighbors is {tangents.neighbors}; it must {limits}")
    if ranks[-1] > points // tangents.folds:
        limit = f"rank {ranks[-1]} needs at least {ranks[-1]} × tangents.folds"
        raise UserError(f"tangents.points is {points}; {limit}")
    for name in ("windows", "points", "local_points"):
        if (value := getattr(tangents, name)) % tangents.folds:
            limit = f"it must divide tangents.{name} ({value})"
            raise UserError(f"tangents.folds is {tangents.folds}; {limit}")
    if tangents.local_points > points:
        limit = f"choose tangents.points={points} at most"
        raise UserError(f"tangents.local_points is {tangents.local_points}; {limit}")


def early_steps(config: RunConfig, tangents: TangentsConfig) -> list[int]:
    """List the checkpoints in the early fraction of training, without step 0."""
    return early_among(checkpoint_steps(config), config.train.steps, tangents)


def early_among(kept: list[int], last: int, tangents: TangentsConfig) -> list[int]:
    """Select the early steps from `kept`, where training ends at `last`."""
    return [step for step in kept if 0 < step <= tangents.early_fraction * last]
