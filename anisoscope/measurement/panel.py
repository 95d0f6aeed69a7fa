"""Measure every quantity of named clouds; sources supply the clouds.

The panel knows neither models nor steps. Shape letters are those of docs/reference/letters.md; Z are named samples,
R replicates (measurement/intervals.py).
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from anisoscope.config.measure_config import INPUT_KINDS, MeasureConfig
from anisoscope.measurement.families import comparison_family
from anisoscope.measurement.families.attention_family import Heads
from anisoscope.measurement.families.registry import FAMILIES
from anisoscope.measurement.null_models import (
    DRAWS,
    PERMUTED,
    Spread,
    factor_covariance,
    gaussian,
    layer_keys,
)
from anisoscope.measurement.quantity import MEASURED, Family, Values
from anisoscope.measurement.resampling import (
    Cloud,
    Labels,
    LayerClouds,
    Places,
    Searched,
    Types,
    equal_labels,
    map_samples,
    search,
    stack_trees,
    unstack,
)
from anisoscope.metrics.cloud import point_weights
from anisoscope.metrics.logit_lens import Unembedding

# (work, stacked) -> the results of work on each entry of the first axis, stacked
Over = Callable[[Callable, Any], Any]


class Sample(NamedTuple):
    """Clouds of N layers with the same P points, fold-major, and attention heads if any.

    All samples of a measurement have the same places. Either every sample has types of its own, or
    none has.
    """

    clouds_NPD: Array
    heads: Heads | None = None
    places: Places | None = None
    types: Types | None = None
    unembedding: Unembedding | None = None
    target_P: Array | None = None  # the token that each point predicts; below 0: none


class GaussianNull(NamedTuple):
    """The Gaussian null model of each of N layers."""

    spread_N: Spread
    key_N: Array


def estimate_cloud_bytes(points: int, width: int, families: Iterable[str]) -> int:
    """Estimate the memory of one more cloud measured at the same time.

    It is a fifth above XLA's figures for 1,024 × 64 and 4,096 × 256 on a CPU.
    """
    distances = max((FAMILIES[name].distances for name in families), default=0) * points
    return 4 * points * (8 * width + 2048 + distances)


# Accelerators round the factors of float32 products to TF32 or bfloat16 by default.
@jax.default_matmul_precision("highest")
def measure_panel(
    samples: dict[str, Sample],
    others: dict[str, Array],
    settings: MeasureConfig,
    key: Array,
    over: Over = jax.lax.map,
    permuted_NPD: Array | None = None,
    sections: int | None = None,
) -> dict[str, Values]:
    """Measure every quantity of every sample; pure and not jitted.

    Args:
        samples: "measured", and the null models that a source makes of its input, all of the same
            shapes. The points come in `settings.folds` folds of equal size, fold after fold.
        others: Clouds (N, P, D) of the same points to compare with.
        settings: Families, null models and folds.
        key: For the Gaussian null model: a single key, from which each layer's is made by its
            number, or a key for each layer (N,).
        over: Maps work over clouds and heads, one after another or several at once. Memory is that
            of the samples and of the clouds in work.
        permuted_NPD: The measured clouds with their windows in another order: the null model of
            comparisons.
        sections: Number of sections that neighbors are resampled by; None for the number that the
            folds allow.

    Returns:
        {sample: {quantity: (*dims, R)}}, with the null models of `settings` that need no source.
    """
    families = [(INPUT_KINDS[name], FAMILIES[name]) for name in settings.families]
    measured, folds = samples[MEASURED], settings.folds
    labels = equal_labels(folds, measured.clouds_NPD.shape[1], sections)
    values: dict[str, Values] = {name: {} for name in samples}

    def add(by_sample: dict[str, Values]) -> None:
        for name, quantities in by_sample.items():
            values.setdefault(name, {}).update(quantities)

    # families with a Gaussian null model share neighbors with it, and with comparisons
    few = max((family.neighbors for kind, family in families if kind == "layers"), default=0)
    nearest_N = None
    for with_null in (False, True):
        group = [
            family
            for kind, family in families
            if kind == "cloud" and ("gaussian" in family.nulls) == with_null
        ]
        compared = few if with_null else 0
        if not group and not compared:
            continue
        null = None
        if with_null and group and "gaussian" in settings.nulls:
            layers = jnp.arange(len(measured.clouds_NPD))
            key_N = key if key.ndim else layer_keys(key, layers)
            spread_N = over(lambda layer: factor_covariance(*layer), (measured.clouds_NPD, key_N))
            null = GaussianNull(spread_N, key_N)
        clouds = samples if group else {MEASURED: measured}
        by_sample, nearest_ZN = _over_clouds(clouds, group, settings, labels, over, null, compared)
        add(by_sample)
        if compared:
            nearest_N = jax.tree.map(lambda x_Z: x_Z[0], nearest_ZN)

    nulls = {} if permuted_NPD is None else {PERMUTED: permuted_NPD}
    clouds = LayerClouds(measured.clouds_NPD, labels, nearest_N, others, nulls, over)
    for kind, family in families:
        if kind == "layers":
            add(family.compute(clouds))
        elif kind == "heads":
            keep_RB = point_weights(folds, measured.heads.q_NBTHK.shape[1])
            compute = functools.partial(family.compute, keep_RB=keep_RB, over=over)
            add(map_samples(compute, {name: sample.heads for name, sample in samples.items()}))
        elif kind == "logit_lens":
            read = measured.unembedding, measured.target_P
            add({MEASURED: family.compute(measured.clouds_NPD, *read, labels, over)})
    return values


def _over_clouds(
    samples: dict[str, Sample],
    families: list[Family],
    settings: MeasureConfig,
    labels: Labels,
    over: Over,
    null: GaussianNull | None,
    compared: int,
) -> tuple[dict[str, Values], Searched | None]:
    """Measure the families in every cloud, in one loop over samples and layers.

    For the first sample the null models that need no draw are measured too. The draws of the
    Gaussian null model follow, each made when its turn comes. The few nearest neighbors are
    returned where `compared` is above 0.
    """
    clouds_ZNPD = jnp.stack([sample.clouds_NPD for sample in samples.values()])
    types_Z = stack_trees([sample.types for sample in samples.values()])
    places = next(iter(samples.values())).places
    count = max([compared, *(family.neighbors for family in families)], default=0)
    layers = clouds_ZNPD.shape[1]

    def cloud_at(z: Array, n: Array) -> Array:
        if null is None:
            return clouds_ZNPD[z, n]
        layer = jax.tree.map(lambda x_N: x_N[n], null)
        key = jax.random.fold_in(layer.key_N, z - len(samples))
        return jax.lax.cond(
            z >= len(samples), lambda: gaussian(layer.spread_N, key), lambda: clouds_ZNPD[z, n]
        )

    constants = [
        family.constants and family.constants(*clouds_ZNPD.shape[2:], *[clouds_ZNPD.shape[2]] * 2)
        for family in families
    ]

    def measure(number: Array) -> tuple[dict[str, Values], Searched | None]:
        z, n = number // layers, number % layers
        own = jnp.where(z < len(samples), z, 0)  # draws have the types of the first sample
        cloud_PD, types = cloud_at(z, n), jax.tree.map(lambda x_Z: x_Z[own], types_Z)
        searched = search(cloud_PD, count, labels)
        values: dict[str, Values] = {MEASURED: {}}
        for family, known in zip(families, constants, strict=True):
            cloud = Cloud(cloud_PD, labels, searched, places, types, known)
            found = family.compute(cloud)
            for name, quantities in (found if family.exact_nulls else {MEASURED: found}).items():
                if name in (MEASURED, *settings.nulls):
                    values.setdefault(name, {}).update(quantities)
        return values, comparison_family.keep_nearest(searched) if compared else None

    total = len(samples) + (0 if null is None else DRAWS)
    results = over(measure, jnp.arange(total * layers))
    found, nearest_ZN = jax.tree.map(lambda x: x.reshape(total, layers, *x.shape[1:]), results)
    values_ZN = found.pop(MEASURED)
    by_sample = unstack(samples, values_ZN)
    for name, exact_ZN in found.items():  # a source may make a null model of this name too
        exact = {quantity: value_ZN[0] for quantity, value_ZN in exact_ZN.items()}
        by_sample[name] = by_sample.get(name, {}) | exact
    if null is not None:
        by_sample["gaussian"] = jax.tree.map(lambda x_ZN: x_ZN[len(samples) :].mean(0), values_ZN)
    return by_sample, nearest_ZN
