"""Family comparison: one layer beside another, and one cloud beside another of the same points."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from metrics.comparison import layers_cka, layers_overlap, linear_cka, neighbourhood_overlap
from metrics.neighbours import Neighbours
from panel.quantity import LAYER, LAYERS, SHARE, Family, Quantity, Values
from panel.resamples import Searched, over_sections, search

NEIGHBOURS = 10
WITH = {  # what a layer is compared with: dimensions, and words
    "layers": (LAYERS, "of two layers"),
    "previous": (LAYER, "with the checkpoint before"),
    "last": (LAYER, "with the last checkpoint"),
}


def _cka(dims: tuple[str, ...], words: str) -> Quantity:
    return Quantity(
        dims=dims,
        range=SHARE,
        resampling="jackknife",
        long_name=f"linear CKA {words}",
        formula="|X^T Y|_F^2 / (|X^T X|_F |Y^T Y|_F), centred",
        source="Kornblith et al. 2019",
    )


def _overlap(dims: tuple[str, ...], words: str) -> Quantity:
    return Quantity(
        dims=dims,
        range=SHARE,
        resampling="share_sections",
        long_name=f"neighbourhood overlap {words}",
        formula=f"share of common points among the {NEIGHBOURS} nearest distinct points of each point that is the "
        "first of its copies in both clouds",
        source="Doimo et al. 2020",
    )


QUANTITIES = {f"cka_{name}": _cka(*about) for name, about in WITH.items()} | {
    f"overlap_{name}": _overlap(*about) for name, about in WITH.items()
}
OF_OTHERS = {name for name, quantity in QUANTITIES.items() if quantity.dims == LAYER}  # need a second cloud


def nearest(searched: Searched) -> Searched:
    """The few nearest of neighbours that were found for other purposes too."""

    def few(neighbours: Neighbours) -> Neighbours:
        return neighbours._replace(
            distance_PC=neighbours.distance_PC[..., :NEIGHBOURS], index_PC=neighbours.index_PC[..., :NEIGHBOURS]
        )

    return Searched(few(searched.whole), None if searched.parts is None else few(searched.parts))


def measure(
    clouds_NPD: Array,
    nearest_N: Searched,
    others: dict[str, Array],
    groups: int,
    over: Callable[[Callable, Any], Any] = jax.lax.map,
) -> Values:
    """Every layer with every other, and with the same layer of each of the `others`; arrays (layer, …, R)."""
    sections_first = Searched(nearest_N.whole, jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), nearest_N.parts))
    values = {"cka_layers": jnp.moveaxis(layers_cka(clouds_NPD, groups), 0, -1)}
    values |= over_sections(lambda layers: {"overlap_layers": layers_overlap(layers, NEIGHBOURS)}, sections_first)
    if not others:
        return values

    def of_layer(pair: tuple[Array, Array, Searched]) -> Values:
        cloud_PD, other_PD, found = pair
        other = search(other_PD, NEIGHBOURS, groups)
        overlap = over_sections(lambda a, b: {"overlap": neighbourhood_overlap(a, b, NEIGHBOURS)}, found, other)
        return overlap | {"cka": linear_cka(cloud_PD, other_PD, groups)}

    def of_other(other_NPD: Array) -> Values:
        return over(of_layer, (clouds_NPD, other_NPD, nearest_N))

    found = jax.lax.map(of_other, jnp.stack(list(others.values())))
    return values | {f"{kind}_{name}": value[i] for kind, value in found.items() for i, name in enumerate(others)}


FAMILY = Family(of="layers", measure=measure, quantities=QUANTITIES, nulls=(), neighbours=NEIGHBOURS)
