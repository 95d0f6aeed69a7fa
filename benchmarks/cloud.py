"""Where measuring a checkpoint spends its time: every operation on one cloud, how often the whole panel does it, and
how far it is from the limit that its matrix products set.

python -m benchmarks.cloud [--points 4096 --width 256 --folds 8 --layers 12 --rounds 5]

All on one core, as in a sweep, where each core of a CPU has clouds of its own.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as in main.py

import jax
import jax.numpy as jnp
import numpy as np

from anisoscope.measurement.families import (
    dimension,
    frequency,
    leading,
    outliers,
    scale,
    similarity,
    spectrum,
    windows,
)
from anisoscope.measurement.families.comparison import NEIGHBOURS
from anisoscope.measurement.nulls import PERMUTATIONS, gaussian
from anisoscope.measurement.resamples import Cloud, Places, Searched, Types, search
from anisoscope.measurement.sources.probe import POSITION_SETS
from anisoscope.metrics.comparison import ckas_of, layers_cka, ready
from anisoscope.metrics.scale import SCALES
from benchmarks.rounds import on_one_core, processor

FEW, FARTHEST = dimension.FAMILY.neighbours, 2 * SCALES[-1]
WITH_NULL, PLAIN = 3, 2  # samples of a layer: as measured, shuffled, and for some families Gaussian
OTHERS = 2  # checkpoints that one is compared with


class Operation(NamedTuple):
    name: str
    of_layer: float  # how often the whole panel with null models does it for each layer and set of positions
    work: Callable
    arguments: tuple


def operations(points: int, width: int, folds: int, layers: int) -> Iterator[Operation]:
    """The cloud is Gaussian, its variances fall as a power law; its points are of 128 to a window."""
    generator = np.random.default_rng(0)
    x_PD = generator.normal(size=(points, width)) * np.arange(1, width + 1) ** -0.4
    x_PD, y_PD = jnp.float32(x_PD), jnp.float32(x_PD + 0.3 * generator.normal(size=(points, width)))
    places = Places(jnp.arange(points) // 128, jnp.arange(points) % 128)
    letters_P = np.minimum(generator.geometric(0.1, points), 60)
    type_LP = np.stack([letters_P, letters_P // 2, letters_P // 4])
    types = Types(jnp.int32(type_LP), jnp.float32(-0.1 * type_LP), jnp.int32(letters_P % 4))
    searched = {count: jax.jit(search, static_argnums=(1, 2))(x_PD, count, folds) for count in (FEW, FARTHEST)}

    def of_family(module: Any, count: int, found: Searched | None = None) -> Operation:
        name = module.__name__.removeprefix("panel.") + (", from neighbours" if found else "")
        work = lambda x_PD, found: module.FAMILY.compute(Cloud(x_PD, folds, found, places, types))  # noqa: E731
        return Operation(name, count, work, (x_PD, found))

    def searching(count: int, of_layer: float) -> Operation:
        name = f"{count} neighbours, of the whole and in sections"
        return Operation(name, of_layer, lambda x_PD: search(x_PD, count, folds), (x_PD,))

    # the first: the speed of products is read off it
    yield Operation("product P x P x D", 0, lambda x_PD: jnp.matmul(x_PD, x_PD.T, precision="highest"), (x_PD,))
    yield searching(FEW, 0)  # of a quick look
    yield searching(NEIGHBOURS, PERMUTATIONS)
    yield searching(FARTHEST, WITH_NULL)
    yield of_family(dimension, WITH_NULL, searched[FEW])
    yield of_family(scale, WITH_NULL, searched[FARTHEST])
    for module in (leading, frequency):
        yield of_family(module, WITH_NULL)
    for module in (spectrum, outliers, windows, similarity):
        yield of_family(module, PLAIN)
    own, pairs, share = 1 + PERMUTATIONS + OTHERS, OTHERS * (1 + PERMUTATIONS), (1 + PERMUTATIONS) * (layers + 2) / 12
    yield Operation("CKA, of one cloud alone", own, lambda x_PD: ready(x_PD[None], folds), (x_PD,))
    of_three = jax.jit(ready, static_argnums=1)(jnp.stack([x_PD, y_PD, x_PD + y_PD]), folds)
    two = (jax.tree.map(lambda x, n=n: x[n], of_three) for n in range(2))
    yield Operation("CKA of two clouds", pairs, lambda x, y: ckas_of(x, y, folds), (*two,))
    yield Operation("CKA of three layers with each other", share, lambda x_N: layers_cka(x_N, folds), (of_three,))
    yield Operation("a Gaussian null model", 1, lambda x_PD: gaussian(x_PD, jax.random.key(0)), (x_PD,))


def counted(work: Callable, arguments: tuple) -> dict[str, float]:
    """Operations of products, and decompositions, in all ways of conditions; of loops of unknown length, one turn."""
    found = {"products": 0.0, "decompositions": 0.0}

    def walk(jaxpr: Any, times: float) -> None:
        for equation in jaxpr.eqns:
            name, inner = equation.primitive.name, times
            if name == "dot_general":
                (contracted, _), _ = equation.params["dimension_numbers"]
                depth = np.prod([equation.invars[0].aval.shape[axis] for axis in contracted])
                found["products"] += times * 2 * depth * equation.outvars[0].aval.size
            elif name in ("eigh", "svd"):
                found["decompositions"] += times * np.prod(equation.invars[0].aval.shape[:-2])
            elif name == "scan":
                inner = times * equation.params["length"]
            for value in equation.params.values():
                for one in value if isinstance(value, tuple | list) else (value,):
                    if hasattr(one, "jaxpr"):
                        walk(one.jaxpr, inner)

    walk(jax.make_jaxpr(work)(*arguments).jaxpr, 1.0)
    return found


def timed(work: jax.stages.Compiled, arguments: tuple, rounds: int) -> tuple[float, float]:
    """Median milliseconds, and those of all processors together."""
    jax.block_until_ready(work(*arguments))
    seconds, processors = [], []
    for _ in range(rounds):
        start, begin = time.perf_counter(), time.process_time()
        jax.block_until_ready(work(*arguments))
        seconds.append(time.perf_counter() - start)
        processors.append(time.process_time() - begin)
    return 1e3 * statistics.median(seconds), 1e3 * statistics.median(processors)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in {"points": 4096, "width": 256, "folds": 8, "layers": 12, "rounds": 5}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args(arguments)
    on_one_core()
    units = (options.layers + 1) * len(POSITION_SETS)
    print(f"P = {options.points}, D = {options.width}, {options.folds} folds, {options.layers} layers", end=", ")
    print(f"{jax.devices()[0].device_kind} ({processor()}), jax {jax.__version__}\n")
    print("| operation | ms | ms of processors | of them products | decompositions | times a batch | s a batch |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    total, speed = 0.0, 0.0
    for name, of_layer, work, given in operations(options.points, options.width, options.folds, options.layers):
        wall, processors = timed(jax.jit(work).lower(*given).compile(), given, options.rounds)
        done, times = counted(work, given), of_layer * units
        speed = speed or done["products"] / processors
        total += times * processors / 1e3
        limit = f"{done['products'] / speed:.0f} | {done['decompositions']:.0f}"
        print(f"| {name} | {wall:.1f} | {processors:.1f} | {limit} | {times:.0f} | {times * processors / 1e3:.1f} |")
    print(f"\n{total:.1f} s of processors for the clouds of one batch, beside attention and the network itself.")
    print("Products: at the speed of the first row, all ways of conditions, one turn of loops without a known end.")


if __name__ == "__main__":
    main()
