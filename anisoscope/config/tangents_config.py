"""What the stage `tangents` fits and tests: every setting and its default."""

from dataclasses import dataclass

from anisoscope.config.measure_config import FAMILIES
from anisoscope.config.run_config import RunConfig, checkpoint_steps
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import LARGEST_SEED, check_fields, setting

CLOUD_FAMILIES = tuple(name for name, of in FAMILIES.items() if of == "cloud")


@dataclass(frozen=True, slots=True, kw_only=True)
class TangentsConfig:
    enabled: bool = setting(False, "whether the stage does anything")
    windows: int = setting(128, "validation windows tested on; as many are fitted to", low=1)
    points: int = setting(2048, "scored positions of either", low=1)
    folds: int = setting(8, "folds of whole windows, resampled for the intervals", low=2)
    ranks: tuple[int, ...] = setting(
        (4, 16), "of subspaces; a third of the width at most", low=1, nonempty=True
    )
    early_fraction: float = setting(
        0.3, "of training: checkpoints of the early subspace", low=0, high=1
    )
    restarts: int = setting(3, "of semi-NMF; the best is kept", low=1)
    rounds: int = setting(100, "of its updates", low=1)
    controls: int = setting(20, "random subspaces; p is at least 1 / (controls + 1)", low=1)
    neighbors: int = setting(32, "of a point, whose principal directions are its local tangent")
    local_points: int = setting(512, "of the points, those that have one", low=1)
    families: tuple[str, ...] = setting(
        ("spectrum", "leading", "similarity"), "of gradients as clouds", choices=CLOUD_FAMILIES
    )
    seed: int = setting(
        0, "of windows, masks, positions, restarts and controls", low=0, high=LARGEST_SEED
    )


def check_settings(tangents: TangentsConfig, width: int | None = None, words: str = "") -> None:
    """Raise UserError where the settings do not go together.

    Args:
        tangents: The settings.
        width: Dimensions in which the model is read; None before it is known.
        words: How to name the setting of the width.
    """
    check_fields(tangents, "tangents.")
    ranks, points = tangents.ranks, tangents.points
    if sorted(ranks) != list(ranks):
        raise UserError(f"tangents.ranks is {ranks}; name them ascending")
    if width is not None and ranks[-1] > width // 3:
        why = "random subspaces of equal energy need three times the rank"
        most = f"{words} leaves {width // 3} at most"
        raise UserError(f"tangents.ranks has {ranks[-1]}; {most} ({why})")
    if not ranks[-1] < tangents.neighbors <= points:
        limits = f"above the largest of tangents.ranks ({ranks[-1]}) and up to tangents.points ({points})"
        raise UserError(f"tangents.neighbors is {tangents.neighbors}; {limits}")
    if ranks[-1] > points // tangents.folds:
        limit = f"{ranks[-1]} × tangents.folds at least, for that rank"
        raise UserError(f"tangents.points is {points}; {limit}")
    for name in ("windows", "points", "local_points"):
        if (value := getattr(tangents, name)) % tangents.folds:
            limit = f"it must divide tangents.{name} ({value})"
            raise UserError(f"tangents.folds is {tangents.folds}; {limit}")
    if tangents.local_points > points:
        limit = f"tangents.points={points} at most"
        raise UserError(f"tangents.local_points is {tangents.local_points}; {limit}")


def early_steps(config: RunConfig, tangents: TangentsConfig) -> list[int]:
    """List the checkpoints of the first part of a training, without step 0."""
    return early_among(checkpoint_steps(config), config.train.steps, tangents)


def early_among(kept: list[int], last: int, tangents: TangentsConfig) -> list[int]:
    """List the early ones of these steps, where the training ends at `last`."""
    return [step for step in kept if 0 < step <= tangents.early_fraction * last]
