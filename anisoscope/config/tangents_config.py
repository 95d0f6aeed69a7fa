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
    neighbours: int = setting(32, "of a point, whose principal directions are its local tangent")
    local_points: int = setting(512, "of the points, those that have one", low=1)
    families: tuple[str, ...] = setting(
        ("spectrum", "leading", "similarity"), "of gradients as clouds", choices=CLOUD_FAMILIES
    )
    seed: int = setting(
        0, "of windows, masks, positions, restarts and controls", low=0, high=LARGEST_SEED
    )


def check_settings(tangents: TangentsConfig, width: int | None = None, words: str = "") -> None:
    """Of a model that is read in so many dimensions, in words; None: as far as they hang on no
    model.
    """
    check_fields(tangents, "tangents.")
    _check_ranks(tangents, width, words)
    for name in ("windows", "points", "local_points"):
        if (value := getattr(tangents, name)) % tangents.folds:
            raise UserError(
                f"tangents.folds is {tangents.folds}; it must divide tangents.{name} ({value})"
            )
    if tangents.local_points > tangents.points:
        raise UserError(
            f"tangents.local_points is {tangents.local_points}; tangents.points={tangents.points} at most"
        )


def _check_ranks(tangents: TangentsConfig, width: int | None, words: str) -> None:
    ranks = tangents.ranks
    if sorted(ranks) != list(ranks):
        raise UserError(f"tangents.ranks is {ranks}; name them ascending")
    if width is not None and ranks[-1] > width // 3:
        why = "random subspaces of equal energy need three times the rank"
        raise UserError(
            f"tangents.ranks has {ranks[-1]}; {words} leaves {width // 3} at most ({why})"
        )
    if not ranks[-1] < tangents.neighbours <= tangents.points:
        words = f"above the largest of tangents.ranks ({ranks[-1]}) and up to tangents.points ({tangents.points})"
        raise UserError(f"tangents.neighbours is {tangents.neighbours}; {words}")
    if ranks[-1] > tangents.points // tangents.folds:
        raise UserError(
            f"tangents.points is {tangents.points}; {ranks[-1]} × tangents.folds at least, for that rank"
        )


def early_steps(config: RunConfig, tangents: TangentsConfig) -> list[int]:
    """The checkpoints of the first part of the characters seen, which every step has as many of,
    without step 0.
    """
    steps = config.train.steps
    return early_among(checkpoint_steps(config), steps, tangents)


def early_among(kept: list[int], last: int, tangents: TangentsConfig) -> list[int]:
    return [step for step in kept if 0 < step <= tangents.early_fraction * last]
