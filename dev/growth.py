"""What measuring costs at any size: operations of benchmarks.cloud timed at a few sizes, and a fit for all others.

python -m dev.growth [--rounds 1 --layers 12]

The fit has the terms that the operations must have: products of all pairs of points, what is chosen from rows of all
pairs, products of all pairs of coordinates, passes over the cloud, and decompositions.
"""

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as in main.py

import jax
import numpy as np
from scipy.optimize import nnls

from anisoscope.measurement.sources.probe import POSITION_SETS
from benchmarks.cloud import operations, timed
from benchmarks.rounds import on_one_core, processor

FOLDS = 8
SIZES = ((1024, 256), (4096, 256), (8192, 256), (4096, 64), (4096, 1024), (1024, 64))  # points, width
TOLD = tuple((points, width) for points in (1024, 4096, 16384) for width in (64, 256, 1024))
TERMS = {
    "P² D": lambda points, width: points**2 * width,
    "P²": lambda points, width: points**2,
    "P D²": lambda points, width: points * width**2,
    "P D": lambda points, width: points * width,
    "D³": lambda points, width: width**3,
}


def measured(points: int, width: int, layers: int, rounds: int) -> tuple[float, float]:
    """Seconds of one core for a layer and set of positions, and megabytes of the operation that takes most."""
    seconds, most = 0.0, 0.0
    for _, of_layer, work, given in operations(points, width, FOLDS, layers):
        if of_layer:
            compiled = jax.jit(work).lower(*given).compile()
            seconds += of_layer * timed(compiled, given, rounds)[1] / 1e3
            most = max(most, compiled.memory_analysis().temp_size_in_bytes / 1e6)
    return seconds, most


def design(sizes: list[tuple[int, int]]) -> np.ndarray:
    return np.array([[term(*map(float, size)) for term in TERMS.values()] for size in sizes])


def fit(sizes: list[tuple[int, int]], seconds: list[float]) -> np.ndarray:
    """Seconds of each of TERMS, none below 0, by least squares of the relative errors."""
    x, y = design(sizes), np.array(seconds)
    scale = x.max(axis=0)
    return nnls(x / scale / y[:, None], np.ones(len(y)))[0] / scale


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--layers", type=int, default=12)
    options = parser.parse_args()
    on_one_core()
    print(f"{options.layers} layers, {jax.devices()[0].device_kind} ({processor()}), jax {jax.__version__}\n")
    print("| points | width | s of one core, a layer and set of positions | MB beside the cloud |")
    print("| --- | --- | --- | --- |")
    found = {}
    for points, width in SIZES:
        found[points, width], memory = measured(points, width, options.layers, options.rounds)
        print(f"| {points:,} | {width:,} | {found[points, width]:.2f} | {memory:.0f} |", flush=True)
    of_terms = fit(list(found), list(found.values()))
    fitted = design(list(found)) @ of_terms
    worst = np.abs(fitted / np.array(list(found.values())) - 1).max()
    print(f"\nThe fit is within {worst:.0%} of these; seconds by term:", end=" ")
    print(", ".join(f"{name} {value:.2g}" for name, value in zip(TERMS, of_terms, strict=True)), end="\n\n")
    print(f"| points | width | s of one core a batch, {options.layers} layers |\n| --- | --- | --- |")
    units = (options.layers + 1) * len(POSITION_SETS)
    for (points, width), seconds in zip(TOLD, design(list(TOLD)) @ of_terms, strict=True):
        print(f"| {points:,} | {width:,} | {units * seconds:.0f} |")


if __name__ == "__main__":
    main()
