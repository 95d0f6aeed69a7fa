"""The programs of the engine: one for each family, and for copies, neighbors and null draws.

N are layers, G groupings of the points, P points and their padding.
"""

from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from anisoscope.config.measure_config import GAUSSIAN
from anisoscope.engine import programs
from anisoscope.engine.null_models import DRAWS, Spread, factor_covariance, gaussian
from anisoscope.engine.sizes import Layout
from anisoscope.metrics import comparison
from anisoscope.metrics.attention import Heads
from anisoscope.metrics.cloud import only
from anisoscope.metrics.copies import Copies, copies
from anisoscope.metrics.neighbors import Neighbors
from anisoscope.metrics.quantity import MEASURED, Values
from anisoscope.metrics.registry import FAMILIES, select_kind
from anisoscope.metrics.resampling import (
    Cloud,
    Labels,
    LayerClouds,
    Searched,
    TokenPositions,
    Types,
    search,
    stack_trees,
)

Constants = dict[str, Any]  # by family: what it computes from the numbers of points and dimensions


class Selection(NamedTuple):
    """What is measured: families and null models by name."""

    families: tuple[str, ...]
    nulls: tuple[str, ...]

    def families_reading(self, kind: str) -> tuple[str, ...]:
        """List the families that read this kind of input."""
        return select_kind(self.families, kind)

    @property
    def neighbors(self) -> tuple[int, ...]:
        """List the numbers of neighbors that families read."""
        names = self.families_reading("cloud")
        return tuple(sorted({FAMILIES[name].neighbors for name in names} - {0}))

    @property
    def compares(self) -> bool:
        """Tell whether layers are compared by their neighbors."""
        return any(FAMILIES[name].neighbors for name in self.families_reading("layers"))


class Layer(NamedTuple):
    """What is read of one layer: values of each named cloud, the copies, and nearest neighbors."""

    values: dict[str, Values]
    copies: Copies
    nearest_G: Searched | None


def find_copies(x_PD: Array, labels: Labels) -> Copies:
    """Find copies: a program of its own, for all that counts copies."""
    return copies(x_PD, labels.valid_P)


def find_neighbors(
    x_PD: Array, labels: Labels, found: Copies, *, counts: tuple[int, ...], compared: bool
) -> tuple[dict[int, Neighbors], Searched | None]:
    """Search once for all families: {number of neighbors: Neighbors}, and those for comparisons."""
    least = comparison.NEIGHBORS if compared else 0
    searched = search(only(x_PD, labels.valid_P), max(*counts, least, 2), labels, found)
    by_count = {count: searched.nearest(count) for count in counts if count}
    return by_count, comparison.keep_nearest(searched) if compared else None


def measure_family(
    x_PD: Array,
    labels: Labels,
    searched: Neighbors | None,
    places: TokenPositions,
    types: Types | None,
    constants: Any,
    *,
    name: str,
) -> dict[str, Values]:
    """Measure one family of one cloud: {cloud: {quantity: (…, R)}}, with nulls that need no draw."""
    family = FAMILIES[name]
    x_PD = only(x_PD, labels.valid_P)
    found = family.compute(Cloud(x_PD, labels, places, searched, types, constants))
    return found if family.exact_nulls else {MEASURED: found}


def factor_cloud(x_PD: Array, labels: Labels, found: Copies, key: Array, number: Array) -> Spread:
    """Factor a cloud once for all draws of its Gaussian null model."""
    return factor_covariance(
        x_PD, jax.random.fold_in(key, number), labels.valid_P, found.original_P
    )


def draw_cloud(factor: Spread, key: Array, number: Array, draw: Array) -> tuple[Array, Copies]:
    """Draw a Gaussian cloud, which has copies where the cloud has, and in no digit apart."""
    key = jax.random.fold_in(jax.random.fold_in(key, number), draw)
    return gaussian(factor, key), Copies(factor.original_P, factor.original_P)


class ReferenceClouds(NamedTuple):
    """Clouds of the same points, each with as many layers, by name."""

    clouds: dict[str, Array]  # (layer, P, D), to compare with
    nulls: dict[str, Array]


def measure_stack(
    clouds: list[Array],
    labels: Labels,
    nearest: list[Searched] | None,
    compared: ReferenceClouds,
    *,
    name: str,
) -> dict[str, Values]:
    """Measure a family that compares layers."""
    kept = jax.vmap(only, (0, None))
    references, nulls = jax.tree.map(lambda x_NPD: kept(x_NPD, labels.valid_P), tuple(compared))
    nearest_N = None if nearest is None else stack_trees(nearest)
    x_NPD = _stack(clouds, labels)
    return FAMILIES[name].compute(LayerClouds(x_NPD, labels, nearest_N, references, nulls))


def measure_lens(
    clouds: list[Array], labels: Labels, unembedding: Any, target_P: Array, *, name: str
) -> dict[str, Values]:
    """Measure a family that maps all layers to logits."""
    family = FAMILIES[name]
    return {MEASURED: family.compute(_stack(clouds, labels), unembedding, target_P, labels)}


def measure_head_family(heads: Heads, keep_RB: Array, *, name: str) -> Values:
    """Measure a family of queries and keys; `keep_RB` weights the windows."""
    return FAMILIES[name].compute(heads, keep_RB)


def _stack(clouds: list[Array], labels: Labels) -> Array:
    """Stack layers; columns of zeros change no distance, where layers of other widths are compared."""
    width = max(x_PD.shape[1] for x_PD in clouds)
    return jax.numpy.stack(
        [
            jax.numpy.pad(only(x_PD, labels.valid_P), ((0, 0), (0, width - x_PD.shape[1])))
            for x_PD in clouds
        ]
    )


def measure_layer(
    call: programs.Call,
    x_PD: Any,
    layout: Layout,
    selection: Selection,
    constants: Constants,
    key: Array,
    number: np.uint32,
) -> Layer:
    """Measure the families of single clouds; `call` runs a program, or only plans it."""
    labels, names = layout.labels, selection.families_reading("cloud")
    found, values = call(find_copies, x_PD, labels), {MEASURED: {}}
    nearest_G = None

    def read(x_PD: Any, found: Copies, draw: bool) -> list[dict[str, Values]]:
        nonlocal nearest_G
        counts, compared, searched = selection.neighbors, selection.compares, {}
        if counts or (compared and not draw):  # the same program for draws
            arrays, settings = (x_PD, labels, found), {"counts": counts or (0,)}
            searched, nearest = call(find_neighbors, *arrays, **settings, compared=compared)
            nearest_G = nearest_G if draw else nearest
        return [
            call(
                measure_family,
                *(x_PD, labels, searched.get(FAMILIES[name].neighbors)),
                layout.places,
                layout.types if FAMILIES[name].reads_types else None,
                constants.get(name),
                name=name,
            )
            for name in names
            if not draw or GAUSSIAN in FAMILIES[name].nulls
        ]

    for by_cloud in read(x_PD, found, draw=False):
        for cloud, by_name in by_cloud.items():
            if cloud in (MEASURED, *selection.nulls):
                values.setdefault(cloud, {}).update(by_name)
    if GAUSSIAN in selection.nulls and any(GAUSSIAN in FAMILIES[name].nulls for name in names):
        factor = call(factor_cloud, x_PD, labels, found, key, number)
        draws = []
        for draw in range(DRAWS):
            draw_and_copies = call(draw_cloud, factor, key, number, np.int32(draw))
            draws.append(read(*draw_and_copies, draw=True))
        values[GAUSSIAN] = draws
    return Layer(values, found, nearest_G)
