"""What is measured: every setting and its default."""

from dataclasses import dataclass

from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import LARGEST_SEED, check_fields, setting, within

WEIGHTINGS = ("none", "types")
HOOK_POINTS = ("attention_out", "mlp_out", "values")  # of every block
FAMILIES = {  # by what each is measured of; measurement/families/registry.py has what they measure
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
    "logit_lens": "logit_lens",
    "trajectory": "cloud",
    "sinks": "heads",
    "massive": "cloud",
    "linearity": "layers",
    "imbalance": "layers",
    "alignment": "layers",
    "estimators": "cloud",
    "local": "cloud",
    "hubness": "cloud",
}
# Measured where they are named, or by "all" of what vectors have.
OPTIONAL = (
    "logit_lens",
    "trajectory",
    "sinks",
    "massive",
    "linearity",
    "imbalance",
    "alignment",
    "estimators",
    "local",
    "hubness",
)
DEFAULT = tuple(name for name in FAMILIES if name not in OPTIONAL)
OF_TEXT = ("frequency",)  # that read which token a point is of
CLOUD_NULLS = ("gaussian", "isotropic", "capped", "flipped")  # null models made from a cloud alone
NULLS = (*CLOUD_NULLS, "shuffled", "untrained", "permuted")
OF_ARRAYS = tuple(
    name for name, of in FAMILIES.items() if of in ("cloud", "layers") and name not in OF_TEXT
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureConfig:
    points: int = setting(4096, "vectors per cloud", low=8)
    batches: int = setting(4, "clouds per checkpoint, over disjoint windows", low=1)
    folds: int = setting(8, "folds of whole windows, resampled for the intervals; 1: none", low=1)
    families: tuple[str, ...] = setting(
        DEFAULT, "quantities: docs/reference/metric_families.md", choices=FAMILIES, nonempty=True
    )
    nulls: tuple[str, ...] = setting(NULLS, "what every value is compared with", choices=NULLS)
    weighting: str = setting(
        "none", "none: any position; types: all characters alike", choices=WEIGHTINGS
    )
    masked: bool = setting(False, "a masked objective reads masked characters, as in training")
    projected_head: int = setting(0, "family projection: the head that is kept", low=0)
    hook_points: tuple[str, ...] = setting((), "further clouds of every block", choices=HOOK_POINTS)
    steps: tuple[int, ...] = setting(
        (), "further steps, each trained again (docs/howto/running.md)", low=0
    )
    seed: int = setting(0, "of the windows and positions that are probed", low=0, high=LARGEST_SEED)


def check_measure(measure: MeasureConfig, heads: int, last: int | None = None) -> None:
    """Raise UserError, one line, where this cannot be measured of a model.

    Args:
        measure: The settings.
        heads: Heads of the model.
        last: Its last training step; None for a model that is not trained here.
    """
    if measure.steps and last is None:
        what = f"measure.steps={measure.steps[0]}"
        raise UserError(f"{what} is for what is trained here; leave it out")
    for step in measure.steps:
        within("measure.steps", step, 0, last)
    check_fields(measure, "measure.")
    kinds = {FAMILIES[family] for family in measure.families}
    if kinds == {"vectors"}:
        what = f"measure.families={measure.families[0]} keeps vectors and no numbers"
        raise UserError(f"{what}; name another beside it")
    if measure.hook_points and "cloud" not in kinds:
        what = f"measure.hook_points={measure.hook_points[0]} is a cloud"
        raise UserError(f"{what}; name a family of clouds, as spectrum")
    if measure.projected_head >= heads:
        what = f"measure.projected_head is {measure.projected_head}"
        raise UserError(f"{what}; model.heads={heads}, from 0 on")
    if measure.points % measure.folds:
        limit = f"it must divide measure.points ({measure.points})"
        raise UserError(f"measure.folds is {measure.folds}; {limit}")
