"""One layer beside another, and one checkpoint beside another: the same points, other coordinates."""

import jax
import jax.numpy as jnp
from jax import Array

from metrics.comparison import layers_cka, layers_overlap, linear_cka, neighbourhood_overlap
from metrics.neighbours import Neighbours
from panel.clouds import Searched, Values, over_sections, search
from panel.quantities import OVERLAP_NEIGHBOURS


def nearest(searched: Searched) -> Searched:
    """The few nearest of neighbours that were found for other purposes too."""

    def few(neighbours: Neighbours) -> Neighbours:
        return neighbours._replace(
            distance_PC=neighbours.distance_PC[..., :OVERLAP_NEIGHBOURS],
            index_PC=neighbours.index_PC[..., :OVERLAP_NEIGHBOURS],
        )

    return Searched(few(searched.whole), None if searched.parts is None else few(searched.parts))


def compare(clouds_NPD: Array, nearest_N: Searched, others_NPD: dict[str, Array], groups: int) -> Values:
    """Every layer with every other, and with itself at the checkpoints in `others_NPD`; arrays (layer, …, R)."""
    sections_first = Searched(nearest_N.whole, jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), nearest_N.parts))
    values = {"cka_layers": jnp.moveaxis(layers_cka(clouds_NPD, groups), 0, -1)}
    values |= over_sections(
        lambda layers: {"overlap_layers": layers_overlap(layers, OVERLAP_NEIGHBOURS)}, sections_first
    )
    if not others_NPD:
        return values

    def of_layer(pair: tuple[Array, Array, Searched]) -> Values:
        cloud_PD, other_PD, found = pair
        other = search(other_PD, ("comparison",), groups)
        overlap = over_sections(lambda a, b: {"overlap": neighbourhood_overlap(a, b, OVERLAP_NEIGHBOURS)}, found, other)
        return overlap | {"cka": linear_cka(cloud_PD, other_PD, groups)}

    def of_checkpoint(other_NPD: Array) -> Values:
        return jax.lax.map(of_layer, (clouds_NPD, other_NPD, nearest_N))

    found = jax.lax.map(of_checkpoint, jnp.stack(list(others_NPD.values())))
    return values | {f"{kind}_{name}": value[i] for kind, value in found.items() for i, name in enumerate(others_NPD)}
