"""All families of quantities: each stands with its formulas in a file of this folder."""

from collections.abc import Iterable

from anisoscope.metrics import (
    alignment,
    attention,
    comparison,
    dimension,
    estimators,
    frequency,
    imbalance,
    leading,
    linear_maps,
    logit_lens,
    neighborhoods,
    outliers,
    scale,
    similarity,
    spectrum,
    windows,
)
from anisoscope.metrics.quantity import Family, Quantity

# in the order of tables; config/measure_config.py has the names, which settings need without JAX
FAMILIES: dict[str, Family] = {
    "spectrum": spectrum.SPECTRUM,
    "outliers": outliers.OUTLIERS,
    "leading": leading.LEADING,
    "windows": windows.WINDOWS,
    "dimension": dimension.DIMENSION,
    "scale": scale.SCALE,
    "similarity": similarity.SIMILARITY,
    "frequency": frequency.FREQUENCY,
    "comparison": comparison.COMPARISON,
    "attention": attention.ATTENTION,
    "logit_lens": logit_lens.LOGIT_LENS,
    "trajectory": windows.TRAJECTORY,
    "sinks": attention.SINKS,
    "massive": outliers.MASSIVE,
    "linearity": linear_maps.LINEARITY,
    "imbalance": imbalance.IMBALANCE,
    "alignment": alignment.ALIGNMENT,
    "estimators": estimators.ESTIMATORS,
    "local": neighborhoods.LOCAL,
    "hubness": neighborhoods.HUBNESS,
}


def quantities() -> dict[str, Quantity]:
    """List every quantity by name, in the order of the families."""
    return {
        name: quantity
        for family in FAMILIES.values()
        for name, quantity in family.quantities.items()
    }


def find_family(name: str) -> str:
    """Return the name of the family that has a quantity."""
    return next(family for family in FAMILIES if name in FAMILIES[family].quantities)


def coordinates() -> dict[str, tuple]:
    """Collect the labels of the families' further dimensions, such as top and neighbors."""
    return {
        dim: labels for family in FAMILIES.values() for dim, labels in family.coordinates.items()
    }


def null_models_for(name: str) -> tuple[str, ...]:
    """List the null models of a quantity."""
    family = FAMILIES[find_family(name)]
    return *family.nulls, *family.quantities[name].nulls


def select_kind(names: Iterable[str], *kinds: str) -> tuple[str, ...]:
    """List the families of these names that read these kinds of input."""
    return tuple(name for name in names if FAMILIES[name].kind in kinds)
