"""Coverage of `anisoscope.measure` with unequal clusters, and of Gaussian clouds' excess.

    python -m benchmarks.coverage_clusters [--draws 200] [--part clusters|null]

Sizes of clusters are the same in all draws of a process. Held is the estimator's expectation, its
mean over draws; the ideal half-width is 1.96 deviations over draws. Of Gaussian clouds the excess
to be held is 0.
"""

import argparse
from collections.abc import Callable

import numpy as np

from anisoscope import measure
from anisoscope.utils.compiled import CACHE, keep

WIDTH = 8
SPREAD_D = np.arange(1, WIDTH + 1) ** -0.5
QUANTITIES = ("anisotropy", "participation_ratio", "twonn")
SHAPES = ((512, 32, 0.75), (256, 384, 0.5), (128, 256, 0.25), (1024, 16, 0.5), (200, 256, 0.75))


def sizes_of(name: str) -> np.ndarray:
    generator = np.random.default_rng(7)
    if name == "shifted":
        return np.exp(generator.uniform(0, np.log(200), 20)).round().astype(int)
    return generator.integers(1, 201, 16 if name == "chains" else 18)


def shifted(generator: np.random.Generator, size_L: np.ndarray) -> np.ndarray:
    """Clusters have centers of their own."""
    center_LD = 0.7 * generator.normal(size=(size_L.size, WIDTH))
    return (
        center_LD.repeat(size_L, axis=0) + generator.normal(size=(size_L.sum(), WIDTH))
    ) * SPREAD_D


def chains(generator: np.random.Generator, size_L: np.ndarray) -> np.ndarray:
    """Each cluster is a chain: a point correlates by 0.9 with the one before."""
    clusters = []
    for size in size_L:
        step_PD = generator.normal(size=(size, WIDTH)) * (1 - 0.9**2) ** 0.5
        step_PD[0] = generator.normal(size=WIDTH)
        for place in range(1, size):
            step_PD[place] += 0.9 * step_PD[place - 1]
        clusters.append(step_PD)
    return np.concatenate(clusters) * SPREAD_D


def scaled(generator: np.random.Generator, size_L: np.ndarray) -> np.ndarray:
    """Clusters have centers and spreads of their own."""
    center_LD = 0.5 * generator.normal(size=(size_L.size, WIDTH))
    scale_L1 = np.exp(0.3 * generator.normal(size=(size_L.size, 1)))
    noise_PD = generator.normal(size=(size_L.sum(), WIDTH)) * scale_L1.repeat(size_L, axis=0)
    return (center_LD.repeat(size_L, axis=0) + noise_PD) * SPREAD_D


def cover_clusters(process: Callable, draws: int) -> None:
    """Draws are layers of one array: one program measures them all."""
    size_L = sizes_of(process.__name__)
    clouds = np.stack([process(np.random.default_rng(draw), size_L) for draw in range(draws)])
    label_P = np.arange(size_L.size).repeat(size_L)
    table = measure(clouds, label_P, families=("spectrum", "dimension"), nulls=())
    for name in QUANTITIES:
        mean, low, high = (table[name].sel(statistic=end).values for end in ("mean", "low", "high"))
        held = ((low <= mean.mean()) & (high >= mean.mean())).mean()
        width = (high - low).mean() / 2 / (1.96 * mean.std(ddof=1))
        words = f"{process.__name__}, {size_L.size} clusters of {size_L.min()} to {size_L.max()}"
        print(
            f"| {words} | `{name}` | {table.attrs['folds']} | {held:.1%} | {width:.2f} |",
            flush=True,
        )


def cover_null(points: int, width: int, decay: float) -> None:
    clouds = (
        np.random.default_rng(1).normal(size=(60, points, width))
        * np.arange(1, width + 1) ** -decay
    )
    table = measure(clouds, families=("dimension", "hubness", "local"), nulls="gaussian")
    for name in ("twonn", "antihub_share", "local_participation_ratio"):
        excess = table[f"{name}_excess"].sel(null="gaussian")
        mean, low, high = (excess.sel(statistic=end).values for end in ("mean", "low", "high"))
        error, held = mean.std(ddof=1) / len(mean) ** 0.5, ((low <= 0) & (high >= 0)).mean()
        words = f"{mean.mean():+.3f} ± {error:.3f} | {held:.0%}"
        print(f"| {points} × {width}, i^-{2 * decay:g} | `{name}_excess` | {words} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--part", choices=("clusters", "null"))
    options = parser.parse_args()
    if options.part != "null":
        print(
            "| process | quantity | folds | held | half-width over ideal |\n| --- | --- | --- | --- | --- |"
        )
        for process in (shifted, chains, scaled):
            cover_clusters(process, options.draws)
    if options.part != "clusters":
        print("\n| clouds | quantity | mean excess | 0 held |\n| --- | --- | --- | --- |")
        for shape in SHAPES:
            cover_null(*shape)


if __name__ == "__main__":
    keep(CACHE)
    main()
