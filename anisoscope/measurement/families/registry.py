"""The registry of all families of quantities.

Code that needs a quantity looks it up here at each use.
"""

import importlib
import pkgutil

from anisoscope.config import measure_config
from anisoscope.measurement import families as folder
from anisoscope.measurement.quantity import Family, Quantity

# each <name>_family.py of this folder has the entries of one family or of several
_ENTRIES: dict[str, Family] = {
    name: family
    for module in pkgutil.iter_modules(folder.__path__)
    if module.name.endswith("_family")
    for name, family in importlib.import_module(f"{__package__}.{module.name}").FAMILIES.items()
}
FAMILIES = {name: _ENTRIES[name] for name in measure_config.INPUT_KINDS}


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
