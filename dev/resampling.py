"""Why neighbour statistics are resampled by sections: standard errors by four methods over the true one.

    python -m dev.resampling [--points 2048 --draws 80]

GRIDE on Gaussian clouds of independent points, so that folds of points stand for folds of windows. The true error is
the deviation over draws. Independent ratios: d/sqrt(P) at rank 1, which is the usual error bar of TwoNN.
"""

import argparse

import jax
import numpy as np
from tqdm import tqdm

from anisoscope.config.data import CACHE
from anisoscope.measurement.intervals import variance
from anisoscope.measurement.resamples import section_count
from anisoscope.metrics.neighbours import nearest_neighbours
from anisoscope.metrics.scale import SCALES, gride_curve
from anisoscope.utils.compiled import keep

FOLDS = 8


@jax.jit
def curve(cloud_PD: jax.Array) -> jax.Array:
    return gride_curve(nearest_neighbours(cloud_PD, 2 * SCALES[-1]))


@jax.jit
def held(cloud_PD: jax.Array, of_PG: jax.Array) -> jax.Array:
    """Without each fold in turn, the neighbours of the others held fixed."""
    neighbours = nearest_neighbours(cloud_PD, 2 * SCALES[-1])
    return jax.lax.map(lambda kept_P: gride_curve(neighbours._replace(first_P=kept_P)), of_PG.T)


def errors(dimension: int, points: int, draws: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The mean curve; and by method, standard errors over the true one, root mean square over draws."""
    fold_P = np.arange(points) % FOLDS
    section_P = np.arange(points) % section_count(FOLDS)
    found, squares = [], {name: [] for name in ("neighbours held", "jackknife", "sections")}
    for draw in tqdm(range(draws), f"d = {dimension}", leave=False):
        cloud_PD = np.random.default_rng([dimension, draw]).normal(size=(points, dimension)).astype(np.float32)
        found.append(np.asarray(curve(cloud_PD)))
        replicates = {
            "neighbours held": np.asarray(held(cloud_PD, fold_P[:, None] != np.arange(FOLDS)[None])),
            "jackknife": np.stack([curve(cloud_PD[fold_P != fold]) for fold in range(FOLDS)]),
            "sections": np.stack([curve(cloud_PD[section_P == part]) for part in range(section_P.max() + 1)]),
        }
        for name, values in replicates.items():
            if name == "sections":
                values = values * found[-1] / values.mean(axis=0)
            squares[name].append(variance(values[None], "sections" if name == "sections" else "jackknife")[0])
    true = np.std(found, axis=0, ddof=1)
    ratios = {"independent ratios": np.append(dimension / np.sqrt(points) / true[0], [np.nan] * (len(SCALES) - 1))}
    return np.mean(found, axis=0), ratios | {name: np.sqrt(np.mean(s, axis=0)) / true for name, s in squares.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=2048)
    parser.add_argument("--draws", type=int, default=80)
    options = parser.parse_args()
    print(f"GRIDE, {options.points} points, {options.draws} draws: estimate, then standard error / true error\n")
    print(f"| d | | {' | '.join(f'{scale}-{2 * scale}' for scale in SCALES)} |\n| --- | --- |{' --- |' * len(SCALES)}")
    for dimension in (2, 5, 10):
        mean, ratios = errors(dimension, options.points, options.draws)
        print(f"| {dimension} | estimate | {' | '.join(f'{value:.2f}' for value in mean)} |")
        for name, ratio in ratios.items():
            print(f"| {dimension} | {name} | {' | '.join(f'{r:.2f}' if r == r else '' for r in ratio)} |", flush=True)


if __name__ == "__main__":
    keep(CACHE)
    main()
