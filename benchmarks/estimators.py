"""Dimensions by five estimators on scikit-dimension's own manifolds, beside its CorrInt, by the number of points.

    .venv-bench/bin/python -m benchmarks.estimators [--points 1024 4096 --draws 2 --manifolds M1_Sphere M9_Affine]

Each number is the mean over the draws. The table is that of docs/explanation/statistics.md.
"""

import argparse
import collections

import jax
import numpy as np
import skdim

from anisoscope.metrics.dimension import twonn
from anisoscope.metrics.estimators import FAR, correlation_dimension, tree_dimension
from anisoscope.metrics.neighbours import nearest_neighbours
from anisoscope.metrics.scale import levina_bickel

LEFT_OUT = ("M5a_Helix1d", "M13b_Spiral")  # curves: a tree of dimension 1 has no growth to fit


@jax.jit
def ours(cloud_PD: jax.Array) -> dict[str, jax.Array]:
    neighbours = nearest_neighbours(cloud_PD, FAR)
    return {
        "TwoNN": twonn(neighbours),
        "Levina–Bickel": levina_bickel(neighbours),
        "correlation": correlation_dimension(cloud_PD, neighbours),
        "tree": tree_dimension(cloud_PD),
    }


def row(clouds: list[np.ndarray]) -> dict[str, float]:
    found = collections.defaultdict(list)
    for cloud in clouds:
        cloud_PD = np.float32(cloud)
        values = ours(cloud_PD) | {"CorrInt": skdim.id.CorrInt().fit(cloud_PD).dimension_}
        for name, value in values.items():
            found[name].append(float(value))
    return {name: float(np.mean(values)) for name, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, nargs="+", default=(1024, 4096))
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--manifolds", nargs="+", help="only these")
    options = parser.parse_args()
    truth = skdim.datasets.BenchmarkManifolds().truth["Intrinsic Dimension"]
    print(f"scikit-dimension {skdim.__version__}, {options.draws} draws\n")
    for points in options.points:
        every = [
            skdim.datasets.BenchmarkManifolds(random_state=seed).generate("all", n=points)
            for seed in range(options.draws)
        ]
        heading = None
        for name in options.manifolds or (name for name in truth.index if name not in LEFT_OUT):
            found = row([clouds[name] for clouds in every])
            if heading is None:
                heading = f"| {points:,} points | dimension | {' | '.join(found)} |"
                print(heading, "| --- " * (2 + len(found)) + "|", sep="\n")
            print(f"| {name} | {truth[name]} | {' | '.join(f'{value:.1f}' for value in found.values())} |", flush=True)
        print()


if __name__ == "__main__":
    main()
