"""Family comparison: pairs of layers, and pairs of clouds of the same points.

Letters: M layers of another model, O other clouds to compare with, X null clouds and these together.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from anisoscope.measurement.null_models import PERMUTATIONS, PERMUTED
from anisoscope.measurement.quantity import (
    LAYER,
    LAYERS,
    MEASURED,
    Family,
    Quantity,
    Values,
    correlation,
    share,
)
from anisoscope.measurement.resampling import Clouds, Searched, over_sections, search, stack_trees
from anisoscope.metrics.comparison import (
    Cka,
    Nearest,
    PreparedCloud,
    compare_prepared,
    map_pairs,
    neighbor_overlap,
    prepare_cloud,
    prepare_clouds,
    select_nearest,
)

NEIGHBORS = 10
WITH = {  # what a layer is compared with: (dimensions, words for the long name)
    "layers": (LAYERS, "of two layers"),
    "previous": (LAYER, "with the checkpoint before"),
    "last": (LAYER, "with the last checkpoint"),
}
KINDS = {
    "cka": share(
        "linear CKA", "|X^T Y|_F^2 / (|X^T X|_F |Y^T Y|_F), centered", "Kornblith et al. 2019"
    ),
    "cka_unbiased": correlation(
        "linear CKA without bias",
        "HSIC_1(K, L) / sqrt(HSIC_1(K, K) HSIC_1(L, L)), K = X X^T, L = Y Y^T; HSIC_1 is unbiased "
        "for independent points; 0 on average for independent clouds of them",
        "Nguyen et al. 2021; HSIC_1: Song et al. 2012",
    ),
    "neighbor_overlap": share(
        "neighborhood overlap",
        f"share of common points among the {NEIGHBORS} nearest distinct points of each point that "
        "is the first of its copies in both clouds",
        "Doimo et al. 2020, where copies are neighbors too, and theirs is then higher",
        resampling="share_sections",
    ),
}


def _quantity(kind: str, dims: tuple[str, ...], words: str) -> Quantity:
    return dataclasses.replace(KINDS[kind], dims=dims, long_name=f"{KINDS[kind].long_name} {words}")


ACROSS = {kind: _quantity(kind, LAYERS, "of layers of two models") for kind in KINDS}
QUANTITIES = {
    f"{kind}_{name}": _quantity(kind, *about) for kind in KINDS for name, about in WITH.items()
}
NEEDS_PREVIOUS_CHECKPOINT = {f"{kind}_previous" for kind in KINDS}


def keep_nearest(searched: Searched) -> Searched:
    """Keep the NEIGHBORS nearest, which the overlap needs, of a search for several quantities."""
    whole, parts = searched
    return Searched(
        select_nearest(whole, NEIGHBORS),
        None if parts is None else select_nearest(parts, NEIGHBORS),
    )


def search_nearest(cloud_PD: Array, folds: int, parts: int | None = None) -> Searched:
    """Search the NEIGHBORS nearest of every point, in the cloud and in its sections."""
    return keep_nearest(search(cloud_PD, NEIGHBORS, folds, parts))


class Layers(NamedTuple):
    """Layers prepared for comparison: the clouds that CKA reads, and the nearest neighbors."""

    ready_N: PreparedCloud
    nearest_N: Searched


def compute(clouds: Clouds) -> dict[str, Values]:
    """Compare every layer with every other, and with the same layer of each of the `others`.

    Returns:
        {"measured": values of the clouds}; and where the windows can be permuted, "permuted": the
        mean over a few permutations of the permuted clouds compared with the clouds themselves.
    """
    others, folds, over, permuted = clouds.others, clouds.folds, clouds.over, clouds.permuted

    def layers(z_NPD: Array) -> Layers:
        nearest_N = over(lambda cloud_PD: search_nearest(cloud_PD, folds), z_NPD)
        return Layers(prepare_clouds(z_NPD, folds), nearest_N)

    measured = Layers(prepare_clouds(clouds.points_NPD, folds), clouds.nearest_N)
    nulls = [] if permuted is None else [permuted(number) for number in jnp.arange(PERMUTATIONS)]
    null_K = others_O = None
    if further := [*nulls, *others.values()]:
        layers_X = jax.lax.map(layers, stack_trees(further))  # the search is compiled once for all
        null_K = jax.tree.map(lambda x_X: x_X[: len(nulls)], layers_X)
        others_O = jax.tree.map(lambda x_X: x_X[len(nulls) :], layers_X) if others else None
    names = list(others)
    by_cloud = {MEASURED: _compare(measured, measured, others_O, names, folds, over)}
    if nulls:
        values_K = jax.lax.map(
            lambda null: _compare(null, measured, others_O, names, folds, over), null_K
        )
        by_cloud[PERMUTED] = {name: value_K.mean(axis=0) for name, value_K in values_K.items()}
    return by_cloud


def compare_models(
    a_NPD: Array,
    b_MPE: Array,
    folds: int,
    permuted: Callable[[Array], Array],
    parts: int | None = None,
) -> dict[str, Values]:
    """Compare every layer of one model with every layer of another, on the same points.

    Works as `compute`, except that `permuted(number)` returns clouds of the first model. `parts` is
    the number of sections that neighbors are resampled by; None for the number that folds allow.
    """

    def find_neighbors(z_NPD: Array) -> Searched:
        return _sections_first(
            jax.lax.map(lambda cloud_PD: search_nearest(cloud_PD, folds, parts), z_NPD)
        )

    def overlaps(a_N: Nearest, b_M: Nearest) -> Values:
        by_layer = jax.lax.map(lambda a: jax.lax.map(lambda b: neighbor_overlap(a, b), b_M), a_N)
        return {"neighbor_overlap": by_layer}

    b_M, b_neighbors = prepare_clouds(b_MPE, folds), find_neighbors(b_MPE)

    def compare_layer(a_PD: Array) -> Cka:
        a = prepare_cloud(a_PD, folds)
        return jax.lax.map(lambda b: compare_prepared(a, b, folds), b_M)

    def compare(z_NPD: Array) -> Values:
        overlap = over_sections(overlaps, find_neighbors(z_NPD), b_neighbors)
        return _named(jax.lax.map(compare_layer, z_NPD)) | overlap

    null_K = jax.lax.map(lambda number: compare(permuted(number)), jnp.arange(PERMUTATIONS))
    return {
        MEASURED: compare(a_NPD),
        PERMUTED: {name: value_K.mean(axis=0) for name, value_K in null_K.items()},
    }


def _compare(
    layers: Layers,
    measured: Layers,
    others_O: Layers | None,
    names: list[str],
    folds: int,
    over: Callable,
) -> Values:
    """Compare clouds, measured or permuted, with the measured clouds and with others."""
    compare_ready = functools.partial(compare_prepared, folds=folds)
    cka = map_pairs(compare_ready, layers.ready_N, measured.ready_N)
    values = {f"{kind}_layers": value for kind, value in _named(cka).items()}
    sections_first = [_sections_first(each.nearest_N) for each in (layers, measured)]
    values |= over_sections(
        lambda a, b: {"neighbor_overlap_layers": map_pairs(neighbor_overlap, a, b)}, *sections_first
    )
    if others_O is None:
        return values

    def compare_layer(pair: tuple[Layers, Layers]) -> Values:
        layer, other = pair
        pair_nearest = layer.nearest_N, other.nearest_N
        overlap = over_sections(
            lambda a, b: {"neighbor_overlap": neighbor_overlap(a, b)}, *pair_nearest
        )
        return overlap | _named(compare_ready(layer.ready_N, other.ready_N))

    values_O = jax.lax.map(lambda other: over(compare_layer, (layers, other)), others_O)
    return values | {
        f"{kind}_{name}": value[i]
        for kind, value in values_O.items()
        for i, name in enumerate(names)
    }


def _named(cka: Cka) -> Values:
    return {"cka": cka.biased, "cka_unbiased": cka.unbiased}


def _sections_first(nearest_N: Searched) -> Searched:
    return Searched(nearest_N.whole, jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), nearest_N.parts))


FAMILIES = {"comparison": Family("layers", compute, QUANTITIES, (PERMUTED,), neighbors=NEIGHBORS)}
