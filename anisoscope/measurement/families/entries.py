"""Every family of quantities: an entry each. Whoever reads quantities asks here, at each use."""

from anisoscope.measurement.families import (
    alignment,
    attention,
    comparison,
    dimension,
    estimators,
    frequency,
    hubness,
    imbalance,
    leading,
    linearity,
    massive,
    outliers,
    projection,
    readout,
    scale,
    similarity,
    sinks,
    spectrum,
    trajectory,
    windows,
)
from anisoscope.measurement.quantity import Family, Quantity

FAMILIES: dict[str, Family] = {
    "spectrum": spectrum.FAMILY,
    "outliers": outliers.FAMILY,
    "leading": leading.FAMILY,
    "windows": windows.FAMILY,
    "dimension": dimension.FAMILY,
    "scale": scale.FAMILY,
    "similarity": similarity.FAMILY,
    "frequency": frequency.FAMILY,
    "comparison": comparison.FAMILY,
    "attention": attention.FAMILY,
    "projection": projection.FAMILY,
    "readout": readout.FAMILY,
    "trajectory": trajectory.FAMILY,
    "sinks": sinks.FAMILY,
    "massive": massive.FAMILY,
    "linearity": linearity.FAMILY,
    "imbalance": imbalance.FAMILY,
    "alignment": alignment.FAMILY,
    "estimators": estimators.FAMILY,
    "hubness": hubness.FAMILY,
}


def quantities() -> dict[str, Quantity]:
    return {name: quantity for family in FAMILIES.values() for name, quantity in family.quantities.items()}


def family_of(name: str) -> str:
    return next(family for family, about in FAMILIES.items() if name in about.quantities)


def coordinates() -> dict[str, tuple]:
    """Labels of the further dimensions: top, neighbours, …"""
    return {dim: labels for family in FAMILIES.values() for dim, labels in family.coordinates.items()}


def nulls_of(name: str) -> tuple[str, ...]:
    """The null models that a quantity has."""
    return FAMILIES[family_of(name)].nulls
