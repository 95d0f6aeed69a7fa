"""Every family of quantities."""

from panel.quantities import COORDINATES, QUANTITIES, Quantity


def quantities() -> dict[str, Quantity]:
    return QUANTITIES


def family_of(name: str) -> str:
    return QUANTITIES[name].family


def coordinates() -> dict[str, tuple]:
    return COORDINATES
