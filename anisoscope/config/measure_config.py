"""Settings of the measurement."""

from dataclasses import dataclass

from anisoscope.utils.errors import SettingError, UserError
from anisoscope.utils.settings import seed_setting, setting

HOOK_POINTS = ("attention_out", "mlp_out", "values")  # of every block
# {family: the kind of its input} (Family); measurement/families/registry.py lists the quantities
DEFAULT_INPUTS = {
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
}
OPTIONAL_INPUTS = {  # measured only when named, or as part of "all" for arrays
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
INPUT_KINDS = DEFAULT_INPUTS | OPTIONAL_INPUTS
DEFAULT_FAMILIES, OPTIONAL_FAMILIES = tuple(DEFAULT_INPUTS), tuple(OPTIONAL_INPUTS)
# what the library measures where no family is named
FIRST_LOOK = ("spectrum", "dimension", "similarity")
SEARCHED = 2**14  # points of a chunk among which neighbors are searched by default
TEXT_FAMILIES = ("frequency",)  # need the token at each point
GAUSSIAN = "gaussian"  # the null model of the same spectrum
CLOUD_NULLS = (GAUSSIAN, "isotropic", "capped", "flipped")  # null models made from a cloud alone
NULLS = (*CLOUD_NULLS, "shuffled", "untrained", "permuted")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureConfig:
    points: int = setting(4096, "activation vectors per point cloud", low=8)
    batches: int = setting(4, "point clouds per checkpoint, from disjoint windows", low=1)
    folds: int = setting(8, "folds of whole windows, resampled for intervals; 1: none", low=1)
    families: tuple[str, ...] = setting(
        DEFAULT_FAMILIES,
        "groups of metrics to compute (docs/reference/metric_families.md)",
        choices=INPUT_KINDS,
        nonempty=True,
    )
    nulls: tuple[str, ...] = setting(NULLS, "null models to compare values with", choices=NULLS)
    masked: bool = setting(False, "objective=masked: mask the measured windows as in training")
    hook_points: tuple[str, ...] = setting(
        (), "other activations to measure in every block", choices=HOOK_POINTS
    )
    seed: int = seed_setting(0, "random seed of the measured windows and positions")


def check_measure(measure: MeasureConfig) -> None:
    """Raise UserError if this cannot be measured."""
    if measure.hook_points and not any(INPUT_KINDS[name] == "cloud" for name in measure.families):
        what = "measure.hook_points are measured by families of clouds"
        raise UserError(f"{what}; add a family such as spectrum, or omit them")
    if measure.points % measure.folds:
        advice = f"choose a multiple of {measure.folds} (measure.folds)"
        raise SettingError(
            f"measure.points is {measure.points}; {advice}", "measure.points", "measure.folds"
        )
