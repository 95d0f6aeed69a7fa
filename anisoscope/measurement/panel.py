"""The panel: named clouds in, every quantity out. It knows neither models nor steps; sources bring
the clouds.

Arrays carry the letters of `models`, and Z named samples, R replicates (see
measurement/intervals.py).
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.measurement.families import comparison_family
from anisoscope.measurement.families.attention_family import Heads
from anisoscope.measurement.families.registry import FAMILIES
from anisoscope.measurement.null_models import DRAWS, Spread, gaussian, layer_keys, spread
from anisoscope.measurement.quantity import MEASURED, Family, Values
from anisoscope.measurement.resampling import (
    Cloud,
    Clouds,
    Places,
    Searched,
    Types,
    search,
    stacked,
)
from anisoscope.metrics.logit_lens import Readout

# (work, stacked) -> what work gives of each entry of the first axis, stacked
Over = Callable[[Callable, Any], Any]


class Sample(NamedTuple):
    """What is measured together: a cloud for each of N layers, of the same P points, fold-major;
    and heads, if any.

    All samples of a measurement have the same places, and each has types of its own, or none has.
    """

    clouds_NPD: Array
    heads: Heads | None = None
    places: Places | None = None
    types: Types | None = None
    readout: Readout | None = None
    target_P: Array | None = None  # the token that each point is to predict; below 0: none


class Known(NamedTuple):
    """What was found before."""

    # of each cloud to compare with: what `Found` had when it was measured itself
    nearest: dict[str, Searched]
    # whether all is wanted; if not, the measured clouds are searched, and all else is left at zeros
    whole: Array


class Drawn(NamedTuple):
    """What the Gaussian null model of each of N layers is drawn from."""

    spread_N: Spread
    key_N: Array


class Found(NamedTuple):
    values: dict[str, Values]
    # the few of every point of the measured clouds that comparisons read; None without them
    nearest_N: Searched | None


def bytes_of_cloud(points: int, width: int, families: Iterable[str]) -> int:
    """What one more cloud at once takes: a fifth above what XLA says of 1,024 × 64 and 4,096 × 256
    on a CPU.
    """
    distances = max((FAMILIES[name].distances for name in families), default=0) * points
    return 4 * points * (8 * width + 2048 + distances)


def panel(
    samples: dict[str, Sample],
    others: dict[str, Array],
    settings: MeasureConfig,
    key: Array,
    over: Over = jax.lax.map,
    permuted: Callable[[Array], Array] | None = None,
    parts: int | None = None,
) -> dict[str, Values]:
    """The values of `panel_and_nearest`; clouds to compare with are searched."""
    return panel_and_nearest(samples, others, None, settings, key, over, permuted, parts).values


# Accelerators round the factors of float32 products to TF32 or bfloat16 unless told not to.
@jax.default_matmul_precision("highest")
def panel_and_nearest(
    samples: dict[str, Sample],
    others: dict[str, Array],
    known: Known | None,
    settings: MeasureConfig,
    key: Array,
    over: Over = jax.lax.map,
    permuted: Callable[[Array], Array] | None = None,
    parts: int | None = None,
) -> Found:
    """Values {name of the sample: {quantity: (*dims, R)}}, un-jitted; "gaussian" is added where it
    is asked for.

    `samples` are the measured one and the null models that a source makes of its input, all of the
    same shapes; the points come in `settings.folds` folds of equal size, one after another.
    `others` are clouds (N, P, D) of the same points to compare with, whose neighbours may be
    `known`. `key` draws the Gaussian null model: one, from which each layer's is made by its
    number, or one for each layer (N,). `permuted(number)` gives the measured clouds with their
    windows in another order, the null model of comparisons, from sources that can. Neighbours are
    resampled by so many `parts`; left out, as many sections as the folds make. Clouds and heads go
    one after another, or as many at once as `over(work, stacked)` takes: the memory is that of the
    samples and of so many clouds' work.
    """
    families = {kind: [] for kind in ("cloud", "layers", "heads", "readout", "vectors")}
    for name in settings.families:
        families[FAMILIES[name].of].append(FAMILIES[name])
    clouds_ZNPD = jnp.stack([sample.clouds_NPD for sample in samples.values()])
    values: dict[str, Values] = {name: {} for name in samples}
    places = next(iter(samples.values())).places
    types_Z = stacked([sample.types for sample in samples.values()])

    whole, nearest_N = None if known is None else known.whole, None
    plain = [family for family in families["cloud"] if "gaussian" not in family.nulls]
    # share clouds and neighbours
    with_null = [family for family in families["cloud"] if "gaussian" in family.nulls]
    values_ZN, _ = _over_clouds(clouds_ZNPD, places, types_Z, plain, settings.folds, 0, over, whole)
    _add(values, samples, values_ZN)

    if with_null or families["layers"]:
        names = list(samples) if with_null else [MEASURED]
        clouds_ZNPD, types_Z = jax.tree.map(lambda x_Z: x_Z[: len(names)], (clouds_ZNPD, types_Z))
        drawn = None
        if with_null and "gaussian" in settings.nulls:
            key_N = key if key.ndim else layer_keys(key, jnp.arange(clouds_ZNPD.shape[1]))
            given = clouds_ZNPD[0], key_N
            drawn = Drawn(over(lambda one: _if(whole, lambda: spread(*one)), given), key_N)
        compared = max((family.neighbours for family in families["layers"]), default=0)
        of_clouds = with_null, settings.folds, compared, over, whole, drawn, parts
        values_ZN, nearest_ZN = _over_clouds(clouds_ZNPD, places, types_Z, *of_clouds)
        _add(values, names, values_ZN)
        if drawn is not None:
            values["gaussian"] = jax.tree.map(lambda x_ZN: x_ZN[len(names) :].mean(0), values_ZN)
        nearest_N = jax.tree.map(lambda x: x[0], nearest_ZN)
        nearest = None if known is None else known.nearest
        clouds = Clouds(clouds_ZNPD[0], settings.folds, nearest_N, others, over, permuted, nearest)
        for family in families["layers"]:
            for name, own in _if(whole, functools.partial(family.compute, clouds)).items():
                values.setdefault(name, {}).update(own)

    for family in families["heads"]:
        heads_Z = stacked([sample.heads for sample in samples.values()])
        compute = functools.partial(family.compute, folds=settings.folds, over=over)
        _add(values, samples, _if(whole, functools.partial(jax.lax.map, compute, heads_Z)))
    for family in families["readout"]:
        own = samples[MEASURED]
        read = own.clouds_NPD, own.readout, own.target_P, settings.folds, over
        values[MEASURED].update(_if(whole, functools.partial(family.compute, *read)))
    return Found(values, nearest_N)


def _if(wanted: Array | None, work: Callable[[], Any]) -> Any:
    """What the work gives; zeros, and no work, where it is not wanted."""
    if wanted is None:
        return work()
    shapes = jax.eval_shape(work)
    return jax.lax.cond(
        wanted, work, lambda: jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    )


def _over_clouds(
    clouds_ZNPD: Array,
    places: Places | None,
    types_Z: Types | None,
    families: list[Family],
    folds: int,
    compared: int,
    over: Over,
    whole: Array | None,
    drawn: Drawn | None = None,
    parts: int | None = None,
) -> tuple[Values, Searched | None]:
    """What the families find in every cloud, one after another in one loop over samples and layers.

    The draws of the Gaussian null model follow the samples; each is made when its turn comes, so
    that no more of them exist than clouds are measured at once. Neighbours are searched once for
    all families, and the few nearest returned where `compared` are asked for. Where not the `whole`
    is wanted, the first sample is searched and nothing else is done: in this loop too, since
    another program could round otherwise.
    """
    count = max([compared, *(family.neighbours for family in families)], default=0)
    samples, layers = clouds_ZNPD.shape[:2]

    def cloud_of(z: Array, n: Array) -> Array:
        if drawn is None:
            return clouds_ZNPD[z, n]
        of_layer = jax.tree.map(lambda x_N: x_N[n], drawn)
        null = z >= samples if whole is None else whole & (z >= samples)
        draw = jax.random.fold_in(of_layer.key_N, z - samples)
        return jax.lax.cond(
            null, lambda: gaussian(of_layer.spread_N, draw), lambda: clouds_ZNPD[z, n]
        )

    def of_cloud(number: Array) -> tuple[Values, Searched | None]:
        z, n = number // layers, number % layers
        cloud_PD, types = cloud_of(z, n), jax.tree.map(lambda x_Z: x_Z[z % samples], types_Z)
        wanted = None if whole is None else whole | (number < layers)
        searched = _if(wanted, lambda: search(cloud_PD, count, folds, parts))

        def of_families() -> Values:
            values: Values = {}
            for family in families:
                values |= family.compute(Cloud(cloud_PD, folds, searched, places, types))
            return values

        return _if(whole, of_families), comparison_family.few(searched) if compared else None

    total = samples + (0 if drawn is None else DRAWS)
    results = over(of_cloud, jnp.arange(total * layers))
    return jax.tree.map(lambda x: x.reshape(total, layers, *x.shape[1:]), results)


def _add(values: dict[str, Values], names: Any, values_Z: Values) -> None:
    """Put what was found of the named samples, stacked on the first axis, under their names."""
    for z, name in enumerate(names):
        values.setdefault(name, {}).update(
            {quantity: value[z] for quantity, value in values_Z.items()}
        )
