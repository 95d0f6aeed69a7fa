"""Every family of quantities: an entry each. Whoever reads quantities asks here, at each use."""

from anisoscope.measurement.families import (
    alignment_family,
    attention_family,
    comparison_family,
    dimension_family,
    estimators_family,
    frequency_family,
    hubness_family,
    imbalance_family,
    leading_family,
    linearity_family,
    massive_family,
    outliers_family,
    projection_family,
    readout_family,
    scale_family,
    similarity_family,
    sinks_family,
    spectrum_family,
    trajectory_family,
    windows_family,
)
from anisoscope.measurement.quantity import Family, Quantity

FAMILIES: dict[str, Family] = {
    "spectrum": spectrum_family.FAMILY,
    "outliers": outliers_family.FAMILY,
    "leading": leading_family.FAMILY,
    "windows": windows_family.FAMILY,
    "dimension": dimension_family.FAMILY,
    "scale": scale_family.FAMILY,
    "similarity": similarity_family.FAMILY,
    "frequency": frequency_family.FAMILY,
    "comparison": comparison_family.FAMILY,
    "attention": attention_family.FAMILY,
    "projection": projection_family.FAMILY,
    "readout": readout_family.FAMILY,
    "trajectory": trajectory_family.FAMILY,
    "sinks": sinks_family.FAMILY,
    "massive": massive_family.FAMILY,
    "linearity": linearity_family.FAMILY,
    "imbalance": imbalance_family.FAMILY,
    "alignment": alignment_family.FAMILY,
    "estimators": estimators_family.FAMILY,
    "hubness": hubness_family.FAMILY,
}


def quantities() -> dict[str, Quantity]:
    return {
        name: quantity
        for family in FAMILIES.values()
        for name, quantity in family.quantities.items()
    }


def family_of(name: str) -> str:
    return next(family for family, about in FAMILIES.items() if name in about.quantities)


def coordinates() -> dict[str, tuple]:
    """Labels of the further dimensions: top, neighbours, …"""
    return {
        dim: labels for family in FAMILIES.values() for dim, labels in family.coordinates.items()
    }


def nulls_of(name: str) -> tuple[str, ...]:
    """The null models that a quantity has."""
    return FAMILIES[family_of(name)].nulls
