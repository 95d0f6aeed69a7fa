"""Where measuring a cloud spends its time: milliseconds of each operation, and of processor time beside them.

python -m benchmarks.cloud [--points 4096 --width 256 --groups 16 --rounds 5]

An operation whose processor time equals its time keeps one core busy, and leaves the others to other clouds.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.rounds import processor
from metrics import comparison
from metrics.neighbours import nearest_neighbours
from metrics.scale import SCALES
from panel import dimension, outliers, scale, similarity, spectrum
from panel.comparison import NEIGHBOURS
from panel.nulls import gaussian
from panel.resamples import Cloud, search

FEW, FARTHEST = dimension.FAMILY.neighbours, 2 * SCALES[-1]


def operations(points: int, width: int, groups: int) -> Iterator[tuple[str, Callable, tuple]]:
    """Name, function, arguments; the cloud is Gaussian, its variances fall as a power law."""
    generator = np.random.default_rng(0)
    x_PD = generator.normal(size=(points, width)) * np.arange(1, width + 1) ** -0.4
    x_PD, y_PD = jnp.float32(x_PD), jnp.float32(x_PD + 0.3 * generator.normal(size=(points, width)))
    searched = {count: jax.jit(search, static_argnums=(1, 2))(x_PD, count, groups) for count in (FEW, FARTHEST)}

    def of_family(family: object) -> Callable:
        return lambda x_PD, found=None: family.measure(Cloud(x_PD, groups, found))

    yield "product P x P x D", lambda x_PD: jnp.matmul(x_PD, x_PD.T, precision="highest"), (x_PD,)
    for count in (2, NEIGHBOURS, FARTHEST):
        yield f"{count} neighbours", lambda x_PD, count=count: nearest_neighbours(x_PD, count), (x_PD,)
        yield "the same with those in sections", lambda x_PD, count=count: search(x_PD, count, groups), (x_PD,)
    yield "dimension, from neighbours", of_family(dimension), (x_PD, searched[FEW])
    yield "scale, from neighbours, and thinned clouds", of_family(scale), (x_PD, searched[FARTHEST])
    for family in (spectrum, outliers, similarity):
        yield family.__name__.removeprefix("panel."), of_family(family), (x_PD,)
    yield "CKA of two clouds", lambda x_PD, y_PD: comparison.linear_cka(x_PD, y_PD, groups), (x_PD, y_PD)
    yield "a Gaussian null model", lambda x_PD: gaussian(x_PD, jax.random.key(0)), (x_PD,)


def timed(work: Callable, arguments: tuple, rounds: int) -> tuple[float, float]:
    """Median milliseconds, and those of all processors together on average."""
    work = jax.jit(work)
    jax.block_until_ready(work(*arguments))
    seconds, begin = [], sum(os.times()[:2])
    for _ in range(rounds):
        start = time.perf_counter()
        jax.block_until_ready(work(*arguments))
        seconds.append(time.perf_counter() - start)
    return 1e3 * statistics.median(seconds), 1e3 * (sum(os.times()[:2]) - begin) / rounds


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in {"points": 4096, "width": 256, "groups": 16, "rounds": 5}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args(arguments)
    print(
        f"P = {options.points}, D = {options.width}, {options.groups} groups, {jax.devices()[0].device_kind}", end=" "
    )
    print(f"({processor()}), jax {jax.__version__}\n\n| operation | ms | ms of processors |\n| --- | --- | --- |")
    for name, work, given in operations(options.points, options.width, options.groups):
        wall, processors = timed(work, given, options.rounds)
        print(f"| {name} | {wall:.1f} | {processors:.1f} |", flush=True)


if __name__ == "__main__":
    main()
