"""What every metric has in common: what it does not see, NaN, vmap, and clouds in bfloat16.

A metric here is a function of a cloud and of the place of each point in the text, by which windows,
times and types are told; so the order of points can change. Of pairs the second cloud stays.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.metrics import (
    alignment,
    attention,
    comparison,
    decomposition,
    dimension,
    estimators,
    frequency,
    imbalance,
    leading,
    linear_maps,
    neighborhoods,
    outliers,
    scale,
    similarity,
    spectrum,
    tangent,
    windows,
)
from anisoscope.metrics.cloud import centered, point_weights
from anisoscope.metrics.neighbors import nearest_neighbors
from tests.metrics.clouds import gaussian, rotation

POINTS, WIDTH, TIME = 120, 12, 10
CLOUD = gaussian(POINTS, WIDTH, 3) * np.linspace(3, 1, WIDTH, dtype=np.float32) + np.float32(0.5)
OTHER = gaussian(POINTS, WIDTH, 4) + CLOUD[:, ::-1]
PLACE = np.arange(POINTS)
ALL, NO_ORIGIN = "rotation scale translation order", "rotation scale order"
FOUR = point_weights(4, POINTS)
KEEP = np.float32(np.random.default_rng(1).random(POINTS) > 0.2)


def of_neighbors(cloud, place):
    found = nearest_neighbors(cloud, 20)
    dimensions = [dimension.read_twonn(found), dimension.read_twonn_mle(found)]
    dimensions += [scale.read_levina_bickel(found), scale.read_gride(found, 4)]
    dimensions.append(dimension.read_twonn_microscope(found).dimension)
    pairs = estimators.part_correlation_dimension(cloud, found)
    local = scale.local_quantiles(found), neighborhoods.local_isotropy(cloud, found)
    return dimensions, pairs, local, neighborhoods.hubs(found).skewness


def of_spectrum(cloud, place):
    names = "anisotropy participation_ratio participation_ratio_corrected effective_rank"
    names += " rankme_centered stable_rank isoscore isoscore_star"
    found = decomposition.spectrum(cloud)
    return [getattr(spectrum, f"read_{name}")(found) for name in names.split()]


def of_pair(read):
    return lambda cloud, place: read(cloud, jnp.asarray(OTHER)[place])


def nearest(cloud):
    return comparison.select_nearest(nearest_neighbors(cloud, 10))


def imbalances(cloud, other):
    a, b = nearest(cloud), nearest(other)
    part = jnp.ones((1, len(cloud)), bool)
    there = imbalance.part_imbalance(a.index_PC[None, :, 0], a.first_P[None], other, part)
    return there, imbalance.part_imbalance(b.index_PC[None, :, 0], b.first_P[None], cloud, part)


def turns(cloud, place):
    found = windows.turns(cloud, place // TIME, place % TIME)
    return jnp.where(found.valid_P, found.angle_P, 0 * found.angle_P)[jnp.argsort(place)]


def types(cloud, place):
    number = frequency.number_frequent_types(place % 5)
    found = frequency.type_statistics(cloud, number, jnp.log(1.0 + place % 5))
    return found.correlation, found.correlation_of_types, found.share_between


def first_direction(cloud, place):
    keep = jnp.asarray(KEEP)[place][None]
    found = leading.first_direction(cloud, place % TIME > 0, keep, place % TIME)
    return found, leading.share_between(cloud, place % TIME == 0, keep[0])


def of_coordinates(cloud, place):
    keep, kurtosis = jnp.asarray(KEEP)[place], outliers.coordinate_kurtosis
    shares = (
        outliers.top_coordinate_variance_share(cloud, keep),
        outliers.anisotropy_without_top_coordinates(cloud, keep[None]),
    )
    return kurtosis(cloud, keep), outliers.activation_kurtosis(cloud, keep), *shares


def of_cosines(cloud, place):
    keep = jnp.asarray(KEEP)[place]
    flipped = [
        read(cloud, place // TIME, keep)
        for read in (similarity.mean_cosine_flipped, similarity.relative_drift_flipped)
    ]
    own = (
        similarity.weighted_mean_cosine(cloud, keep),
        similarity.weighted_relative_drift(cloud, keep),
    )
    return own, similarity.mean_cosine_parts(cloud, keep), flipped


def of_norms(cloud, place):
    keep = jnp.asarray(KEEP)[place]
    return [
        read(cloud, keep)
        for read in (
            similarity.weighted_drift,
            similarity.fluctuation,
            similarity.weighted_mean_norm,
        )
    ]


def heads(cloud, place):
    q, k = cloud[jnp.argsort(place)].reshape(2, -1, TIME, WIDTH)
    return attention.attention_statistics(attention.attention_sums(q, k, jnp.tri(TIME, dtype=bool)))


def norm_ratio(cloud, place):
    return leading.norm_ratio(cloud), leading.share_by_norm(cloud, place % TIME == 0)


METRICS = {  # the metric, and what it does not see
    "spectrum": (of_spectrum, ALL),
    "uncentered": (
        lambda x, _: spectrum.read_anisotropy_uncentered(decomposition.spectrum(x)),
        NO_ORIGIN,
    ),
    "cosines": (of_cosines, NO_ORIGIN),
    "norms": (of_norms, "rotation order"),
    "partition": (lambda x, _: similarity.log_partition_isotropy(x), "rotation order"),
    "neighbors": (of_neighbors, ALL),
    "tree": (lambda x, _: estimators.part_ph_dimension(x), "rotation scale translation"),
    "coordinates": (of_coordinates, "scale translation order"),
    "first direction": (first_direction, ALL),
    "norm ratio": (norm_ratio, NO_ORIGIN),
    "types": (types, ALL),
    "turns": (turns, ALL),
    "windows": (
        lambda x, place: windows.prompt_entropy(x, place // TIME)[0][jnp.argsort(place)],
        NO_ORIGIN,
    ),
    "cka": (of_pair(comparison.ckas), ALL),
    "alignment": (of_pair(alignment.alignments), ALL),
    "linearity": (of_pair(linear_maps.linear_fit), ALL),
    "overlap": (of_pair(lambda x, y: comparison.nearest_overlap(nearest(x), nearest(y))), ALL),
    "imbalance": (of_pair(imbalances), ALL),
    "attention": (heads, "rotation"),
    "variance share": (
        lambda x, _: tangent.variance_share(np.eye(WIDTH, 3), x),
        "scale translation order",
    ),
}
ON_VMAP = ("attention", "neighbors", "spectrum")  # of every way to compute


@pytest.fixture(scope="module", params=METRICS)
def metric(request):
    """Compiled once for all that is asked of it."""
    read, unseen = METRICS[request.param]
    return request.param, jax.jit(read), unseen


def test_does_not_see(metric):
    _, read, unseen = metric
    order = np.random.default_rng(2).permutation(POINTS)
    before = read(CLOUD, PLACE)
    moved = {
        "rotation": (CLOUD @ rotation(WIDTH, 3), PLACE),
        "scale": (CLOUD * 3e-3, PLACE),
        "translation": (CLOUD + np.linspace(-9, 9, WIDTH), PLACE),
        "order": (CLOUD[order], order),
    }
    for name in unseen.split():
        cloud, place = moved[name]
        after = read(cloud.astype(np.float32), place)
        jax.tree.map(
            lambda x, y, name=name: np.testing.assert_allclose(
                x, y, rtol=2e-3, atol=2e-5, err_msg=name
            ),
            after,
            before,
        )


def test_what_is_not_finite_is_not_finite(metric):
    name, read, _ = metric
    cloud = CLOUD.copy()
    cloud[5, 3] = np.nan
    for leaf in jax.tree.leaves(read(cloud, PLACE)):
        assert not np.isfinite(leaf).any(), name


@pytest.mark.parametrize("metric", ON_VMAP, indirect=True)
def test_is_under_vmap_as_one_after_another(metric):
    _, read, _ = metric
    clouds = np.stack([CLOUD, OTHER])
    together = jax.jit(jax.vmap(read, in_axes=(0, None)))(clouds, PLACE)
    alone = [read(cloud, PLACE) for cloud in clouds]
    jax.tree.map(
        lambda both, *one: np.testing.assert_allclose(both, one, rtol=1e-4, atol=1e-5),
        together,
        *alone,
    )


IN_FOLDS = {
    "spectrum in folds": lambda x, _: decomposition.spectrum(x, FOUR),
    "spectrum of few points in folds": lambda x, _: decomposition.spectrum(
        x[:8], point_weights(4, 8)
    ),
    "types in folds": lambda x, place: frequency.type_statistics(x, place % 5, x[:, 0], 4),
    "cka in folds": lambda x, _: comparison.ckas(x, OTHER, FOUR),
    "partition in folds": lambda x, _: similarity.log_partition_isotropy(x, FOUR),
}


@pytest.mark.parametrize("name", [*METRICS, *IN_FOLDS])
def test_everything_is_computed_in_full_float32(name):
    """An accelerator would round the factors of other products to TF32 or bfloat16.

    A cloud in bfloat16 is moved at most before it is read in float32.
    """
    read = IN_FOLDS.get(name) or METRICS[name][0]
    program = str(jax.make_jaxpr(read)(jnp.asarray(CLOUD, jnp.bfloat16), PLACE))
    computed = re.findall(r"\w+:bf16\[[\d,]*\] = (\w+)", program)
    assert set(computed) <= {"gather", "reshape", "slice", "squeeze", "split", "broadcast_in_dim"}
    exact = r"precision=(HIGHEST|\(Precision.HIGHEST, Precision.HIGHEST\))"
    assert len(re.findall(exact, program)) == program.count("dot_general[")


def test_centering_far_from_the_origin_is_exact_where_a_compiler_fuses_it():
    """Compiled so, a mean in all its bits is once rounded and once not: 0.06 of a spread of 1."""
    cloud = np.float32(1e6 * np.linspace(1, 2, WIDTH) + gaussian(POINTS, WIDTH))
    options = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    found = jax.jit(centered).lower(cloud).compile(options)(cloud)
    exact = cloud - cloud.astype(np.float64).mean(axis=0)
    np.testing.assert_allclose(found, exact, atol=1e-5)
