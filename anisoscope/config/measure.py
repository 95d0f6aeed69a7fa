"""What is measured: every setting and its default."""

from dataclasses import dataclass

from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import LARGEST_SEED, at_least, choose, once, within

WEIGHTINGS = ("none", "types")
HOOK_POINTS = ("attention_out", "mlp_out", "values")  # of every block
FAMILIES = {  # by what each is measured of; measurement/families/entries.py has what they measure
    "spectrum": "cloud",
    "outliers": "cloud",
    "leading": "cloud",
    "windows": "cloud",
    "dimension": "cloud",
    "scale": "cloud",
    "similarity": "cloud",
    "frequency": "cloud",
    "comparison": "layers",
    "attention": "heads",
    "projection": "vectors",
    "readout": "readout",
    "trajectory": "cloud",
    "sinks": "heads",
    "massive": "cloud",
    "linearity": "layers",
    "imbalance": "layers",
    "alignment": "layers",
    "estimators": "cloud",
    "hubness": "cloud",
}
# Measured where they are named, or by "all" of what vectors have.
FURTHER = ("readout", "trajectory", "sinks", "massive", "linearity", "imbalance", "alignment", "estimators", "hubness")
DEFAULT = tuple(name for name in FAMILIES if name not in FURTHER)
OF_TEXT = ("frequency",)  # that read which token a point is of
NULLS = ("gaussian", "shuffled", "untrained", "permuted")
OF_ARRAYS = tuple(name for name, of in FAMILIES.items() if of in ("cloud", "layers") and name not in OF_TEXT)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureConfig:
    points: int = 4096  # vectors per cloud
    batches: int = 4  # clouds per checkpoint, over disjoint windows
    folds: int = 8  # folds of whole windows in a batch, resampled for the intervals; 1: by batches alone
    families: tuple[str, ...] = DEFAULT  # what is measured: docs/reference/files.md
    nulls: tuple[str, ...] = NULLS  # what every value is compared with
    weighting: str = "none"  # which positions are drawn: any (none), or so that all characters weigh alike (types)
    masked: bool = False  # a run that predicts masked characters reads them masked, as in training, not as they are
    projected_head: int = 0  # family projection: whose queries and keys are kept, the same head of every block
    hook_points: tuple[str, ...] = ()  # further clouds, in tables beside: attention_out, mlp_out, values
    steps: tuple[int, ...] = ()  # further ones, that the run never saved: each is trained again (docs/howto/running.md)
    seed: int = 0  # which validation windows and positions are probed


def check_measure(measure: MeasureConfig, heads: int, last: int | None = None) -> None:
    """Raise UserError, one line, where this cannot be measured of a model of so many heads, trained to step `last`."""
    if measure.steps and last is None:
        raise UserError(f"measure.steps={measure.steps[0]} is for what is trained here; leave it out")
    for step in measure.steps:
        within("measure.steps", step, 0, last)
    once("measure.steps", measure.steps)
    at_least("measure.points", measure.points, 8)
    at_least("measure.batches", measure.batches, 1)
    at_least("measure.folds", measure.folds, 1)
    within("measure.seed", measure.seed, 0, LARGEST_SEED)
    choose("measure.weighting", measure.weighting, WEIGHTINGS)
    listed = {"families": FAMILIES, "nulls": NULLS, "hook_points": HOOK_POINTS}
    for name, allowed in listed.items():
        chosen = getattr(measure, name)
        for value in chosen:
            choose(f"measure.{name}", value, allowed)
        once(f"measure.{name}", chosen)
    if not measure.families:
        raise UserError(f"measure.families is empty; choose from {', '.join(FAMILIES)}")
    if all(FAMILIES[family] == "vectors" for family in measure.families):
        raise UserError(f"measure.families={measure.families[0]} keeps vectors and no numbers; name another beside it")
    if measure.hook_points and not any(FAMILIES[family] == "cloud" for family in measure.families):
        first = measure.hook_points[0]
        raise UserError(f"measure.hook_points={first} is a cloud; name a family of clouds, as spectrum")
    if not 0 <= measure.projected_head < heads:
        raise UserError(f"measure.projected_head is {measure.projected_head}; model.heads={heads}, from 0 on")
    if measure.points % measure.folds:
        raise UserError(f"measure.folds is {measure.folds}; it must divide measure.points ({measure.points})")
