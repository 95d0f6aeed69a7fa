"""The tables that users get: datasets that say why a name is not in them."""

import difflib
from typing import Any

import xarray as xr

from anisoscope.metrics.registry import find_family, null_models_for, quantities

DERIVED_ENDINGS = ("_excess", "_over_blocks", "_over_heads")
NEAR_NAMES = {
    "rankme": ("effective_rank", "rankme_centered"),  # a number of anisoscope.metrics alone
    "intrinsic_dimension": ("twonn",),
    "cosine_similarity": ("mean_cosine",),
}


def missing_reason(name: str, table: xr.Dataset) -> str:
    """Say why a table has no variable of this name; empty where nothing is known of it."""
    if name.startswith("_"):
        return ""
    what, base = f"this table has no {name}", name
    for ending in DERIVED_ENDINGS:
        base = base.removesuffix(ending)
    if base not in quantities() and f"{base}_layers" not in quantities():
        meant = NEAR_NAMES.get(base, ())
        if meant and meant[0] not in table.data_vars:
            return missing_reason(meant[0], table)
        near = [x for x in meant if x in table.data_vars]
        near = near or difflib.get_close_matches(name, map(str, table.data_vars), cutoff=0.75)
        return f"{what}; it has {' and '.join(near)}" if near else ""
    if base not in quantities():  # what `compare` calls rsa is rsa_layers of one model
        base = f"{base}_layers"
        if base in table.data_vars:
            return f"{what}; it has {base}"
    family = find_family(base)
    families = {x.attrs["family"]: None for x in table.data_vars.values() if "family" in x.attrs}
    if family not in families:
        here = ", ".join(families) or "no family"
        return f"{what}: it was measured with {here}; the family {family} has it"
    if base in table.data_vars and name == f"{base}_excess":
        nulls = " or ".join(null_models_for(base)) or "none"
        return f"{what}: none of the null models of {base} was asked for ({nulls})"
    if base in table.data_vars:
        return f"{what}: averages are in tables of whole models; select from {base}"
    return f"{what}: {family} measures it where there are its inputs, such as other checkpoints"


class Table(xr.Dataset):
    """A Dataset whose error of a missing name says which family has the quantity."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if reason := missing_reason(name, self):
                raise AttributeError(reason) from None
            raise

    def __getitem__(self, key: Any) -> Any:
        try:
            return super().__getitem__(key)
        except KeyError:
            if isinstance(key, str) and (reason := missing_reason(key, self)):
                raise KeyError(reason) from None
            raise


def as_table(dataset: xr.Dataset) -> Table:
    """Return the same variables, coordinates and attributes as a Table."""
    return Table(dataset.data_vars, dataset.coords, dataset.attrs)
