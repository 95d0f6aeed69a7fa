"""Family comparison: pairs of layers, and pairs of clouds of the same points.

Letter: M layers of another model.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
from jax import Array

from anisoscope.measurement.null_models import PERMUTED
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
from anisoscope.measurement.resampling import (
    Labels,
    LayerClouds,
    Searched,
    map_samples,
    over_sections,
    search,
)
from anisoscope.metrics.cloud_pairs import align_prepared
from anisoscope.metrics.comparison import (
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
SIMILARITIES = {
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
ALIGNED = {
    "rsa": correlation(
        "representational similarity",
        "Pearson's correlation of |x_i - x_j|^2 and |y_i - y_j|^2 over all pairs of points",
        "Kriegeskorte et al. 2008; distances and correlation as in rsatoolbox (euclidean, corr)",
    ),
    "procrustes": share(
        "orthogonal Procrustes similarity",
        "max over rotations Q of <X Q, Y> / (|X|_F |Y|_F) = |X^T Y|_* / (|X|_F |Y|_F), centered",
        "Schoenemann 1966; Williams et al. 2021, Generalized shape metrics",
    ),
}


def _quantity(kind: str, dims: tuple[str, ...], words: str) -> Quantity:
    entry = (SIMILARITIES | ALIGNED)[kind]
    return dataclasses.replace(entry, dims=dims, long_name=f"{entry.long_name} {words}")


BETWEEN_MODELS = {
    kind: _quantity(kind, LAYERS, "of layers of two models") for kind in SIMILARITIES | ALIGNED
}
ALIGNMENT = {f"{kind}_layers": _quantity(kind, LAYERS, "of two layers") for kind in ALIGNED}
COMPARISON = {
    f"{kind}_{name}": _quantity(kind, *attributes)
    for kind in SIMILARITIES
    for name, attributes in WITH.items()
}
NEEDS_PREVIOUS_CHECKPOINT = {f"{kind}_previous" for kind in SIMILARITIES}


def keep_nearest(searched: Searched) -> Searched:
    """Keep the NEIGHBORS nearest, which the overlap needs, of a search for several quantities."""
    return select_nearest(searched, NEIGHBORS)


def search_nearest(cloud_PD: Array, labels: Labels) -> Searched:
    """Search the NEIGHBORS nearest of every point, in the cloud and in its sections."""
    return keep_nearest(search(cloud_PD, NEIGHBORS, labels))


class Prepared(NamedTuple):
    """A cloud prepared for comparison: what CKA reads, and the nearest neighbors."""

    ready: PreparedCloud
    nearest: Searched


def prepare_comparison(cloud_PD: Array, labels: Labels) -> Prepared:
    """Prepare a cloud for `compare_pair`."""
    return Prepared(prepare_cloud(cloud_PD, labels.keep_RP), search_nearest(cloud_PD, labels))


def compare_pair(a: Prepared, b: Prepared, labels: Labels) -> Values:
    """Compare two clouds of the same points, {kind: (R,)}."""
    cka = compare_prepared(a.ready, b.ready, labels.keep_RP)
    overlap = over_sections(
        lambda *nearest: {"neighbor_overlap": neighbor_overlap(*nearest)},
        labels,
        a.nearest,
        b.nearest,
    )
    return {"cka": cka.biased, "cka_unbiased": cka.unbiased} | overlap


def measure_comparison(clouds: LayerClouds) -> dict[str, Values]:
    """Compare every layer with every other, and with the same layer of each of the `others`.

    Returns:
        {"measured": values of the clouds}; and where the windows can be permuted, "permuted": the
        permuted clouds compared with the clouds themselves.
    """
    labels = clouds.labels
    measured_N = Prepared(prepare_clouds(clouds.points_NPD, labels.keep_RP), clouds.nearest_N)
    prepared = map_samples(
        lambda z_NPD: jax.lax.map(lambda cloud_PD: prepare_comparison(cloud_PD, labels), z_NPD),
        clouds.nulls | clouds.reference_clouds,
    )
    reference_clouds = {name: prepared.pop(name) for name in clouds.reference_clouds}

    compare = functools.partial(compare_pair, labels=labels)

    def compare_layers(layers_N: Prepared) -> Values:
        found = map_samples(
            lambda other_N: jax.lax.map(lambda pair: compare(*pair), (layers_N, other_N)),
            reference_clouds,
        )
        found["layers"] = map_pairs(compare, layers_N, measured_N)
        return {
            f"{kind}_{name}": value
            for name, values in found.items()
            for kind, value in values.items()
        }

    return map_samples(compare_layers, {MEASURED: measured_N} | prepared)


@functools.partial(jax.jit, static_argnames=("aligned",))
@jax.default_matmul_precision("highest")
def compare_every_layer(
    first_NPD: Array,
    second_MPE: Array,
    permuted_NPD: Array | None,
    labels: Labels,
    aligned: bool = False,
) -> dict[str, Values]:
    """Compare every layer of one model with every layer of another, on the same points.

    Args:
        first_NPD: Clouds of the first model.
        second_MPE: Clouds of the second model.
        permuted_NPD: The null model: clouds of the first model with its points in another order;
            None for none.
        labels: Which points count, and which are resampled together.
        aligned: Compute the kinds of ALIGNED too, with a decomposition for each pair of layers.

    Returns:
        {"measured" or "permuted": {kind: (layer, other layer, R)}}.
    """
    second_M = jax.lax.map(lambda cloud_PD: prepare_comparison(cloud_PD, labels), second_MPE)

    def compare_layer(first_PD: Array) -> Values:
        first = prepare_comparison(first_PD, labels)

        def compare(second: Prepared) -> Values:
            values = compare_pair(first, second, labels)
            if aligned:
                found = align_prepared(first.ready, second.ready, labels.keep_RP)
                values |= dict(zip(ALIGNED, found, strict=True))
            return values

        return jax.lax.map(compare, second_M)

    samples = {MEASURED: first_NPD}
    samples |= {} if permuted_NPD is None else {PERMUTED: permuted_NPD}
    return map_samples(lambda clouds_NPD: jax.lax.map(compare_layer, clouds_NPD), samples)


FAMILIES = {"comparison": Family(measure_comparison, COMPARISON, (PERMUTED,), neighbors=NEIGHBORS)}
