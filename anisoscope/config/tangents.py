"""What the stage `tangents` fits and tests: every setting and its default."""

from dataclasses import dataclass

from anisoscope.config.measure import FAMILIES
from anisoscope.config.run import RunConfig, schedule
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import LARGEST_SEED, at_least, choose, within


@dataclass(frozen=True, slots=True, kw_only=True)
class TangentsConfig:
    enabled: bool = False  # whether the stage does anything
    windows: int = 128  # validation windows that subspaces are tested on; as many others are what they are fitted to
    points: int = 2048  # scored positions of either
    folds: int = 8  # folds of whole windows, resampled for the intervals
    ranks: tuple[int, ...] = (4, 16)  # of the activation subspaces; a third of the width at most
    early_fraction: float = 0.3  # of the characters seen: whose checkpoints, without step 0, the early subspace is of
    restarts: int = 3  # of semi-NMF; the best is kept
    rounds: int = 100  # of its updates
    controls: int = 20  # random subspaces beside each one; p is 1/21 at least, with 999 it is 1/1000
    neighbours: int = 32  # of a point, whose principal directions are its local tangent
    local_points: int = 512  # of the points, those that have one
    families: tuple[str, ...] = ("spectrum", "leading", "similarity")  # of the panel, of gradients as clouds
    seed: int = 0  # windows, masked characters, positions, restarts, random subspaces


def check_settings(tangents: TangentsConfig, width: int | None = None, words: str = "") -> None:
    """Of a model that is read in so many dimensions, in words; None: as far as they hang on no model."""
    for name in ("windows", "points", "controls", "restarts", "rounds", "local_points"):
        at_least(f"tangents.{name}", getattr(tangents, name), 1)
    at_least("tangents.folds", tangents.folds, 2)
    within("tangents.early_fraction", tangents.early_fraction, 0.0, 1.0)
    within("tangents.seed", tangents.seed, 0, LARGEST_SEED)
    _check_ranks(tangents, width, words)
    for name in ("windows", "points", "local_points"):
        if (value := getattr(tangents, name)) % tangents.folds:
            raise UserError(f"tangents.folds is {tangents.folds}; it must divide tangents.{name} ({value})")
    if tangents.local_points > tangents.points:
        raise UserError(f"tangents.local_points is {tangents.local_points}; tangents.points={tangents.points} at most")
    for name in tangents.families:
        choose("tangents.families", name, [family for family, of in FAMILIES.items() if of == "cloud"])


def _check_ranks(tangents: TangentsConfig, width: int | None, words: str) -> None:
    ranks = tangents.ranks
    if not ranks or sorted(set(ranks)) != list(ranks) or ranks[0] < 1:
        raise UserError(f"tangents.ranks is {ranks}; name ranks from 1 on, ascending, each once")
    if width is not None and ranks[-1] > width // 3:
        why = "random subspaces of equal energy need three times the rank"
        raise UserError(f"tangents.ranks has {ranks[-1]}; {words} leaves {width // 3} at most ({why})")
    if not ranks[-1] < tangents.neighbours <= tangents.points:
        words = f"above the largest of tangents.ranks ({ranks[-1]}) and up to tangents.points ({tangents.points})"
        raise UserError(f"tangents.neighbours is {tangents.neighbours}; {words}")
    if ranks[-1] > tangents.points // tangents.folds:
        raise UserError(f"tangents.points is {tangents.points}; {ranks[-1]} × tangents.folds at least, for that rank")


def early_steps(config: RunConfig, tangents: TangentsConfig) -> list[int]:
    """The checkpoints of the first part of the characters seen, which every step has as many of, without step 0."""
    steps = config.train.steps
    return early_among(schedule(steps, config.checkpoint.every), steps, tangents)


def early_among(kept: list[int], last: int, tangents: TangentsConfig) -> list[int]:
    return [step for step in kept if 0 < step <= tangents.early_fraction * last]
