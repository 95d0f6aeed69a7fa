"""Settings of the measurement."""

from dataclasses import dataclass

from anisoscope.utils.errors import SettingError
from anisoscope.utils.settings import seed_setting, setting

HOOK_POINTS = ("attention_out", "mlp_out", "values")  # of every block
# families by name, in the order of metrics/registry.py, which has their kinds and quantities
DEFAULT_FAMILIES = (
    *("spectrum", "outliers", "leading", "windows", "dimension", "scale", "similarity"),
    *("frequency", "comparison", "attention"),
)
OPTIONAL_FAMILIES = (  # measured only when named, or as part of "all" for arrays
    *("logit_lens", "trajectory", "sinks", "massive", "linearity", "imbalance", "alignment"),
    *("estimators", "local", "hubness"),
)
FAMILY_NAMES = (*DEFAULT_FAMILIES, *OPTIONAL_FAMILIES)
EVERY_LAYER = {"linearity": "the layer before", "logit_lens": "the last layer"}  # beside each layer
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
        choices=FAMILY_NAMES,
        nonempty=True,
    )
    nulls: tuple[str, ...] = setting(NULLS, "null models to compare values with", choices=NULLS)
    without_massive: bool = setting(
        False, "measure also without the tokens whose vectors are massive in any layer"
    )
    masked: bool = setting(False, "objective=masked: mask the measured windows as in training")
    hook_points: tuple[str, ...] = setting(
        (), "other activations to measure in every block", choices=HOOK_POINTS
    )
    seed: int = seed_setting(0, "random seed of the measured windows and positions")


def check_measure(measure: MeasureConfig) -> None:
    """Raise UserError if this cannot be measured."""
    if measure.points % measure.folds:
        advice = f"choose a multiple of {measure.folds} (measure.folds)"
        raise SettingError(
            f"measure.points is {measure.points}; {advice}", "measure.points", "measure.folds"
        )
