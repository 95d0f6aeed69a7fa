"""How often the intervals of `anisoscope.measure` hold what is estimated, where a user's clusters are of unequal size.

    python -m dev.unequal_groups [--draws 200] [--points 1024]

Each draw is a cloud of clusters with log-normal sizes, the same in all draws: each cluster has its own centre, and its
points lie around that. In the second cloud larger clusters lie farther out, so that their sizes
matter. Held is the estimator's expectation, its mean over all draws, as in benchmarks/coverage.py.
"""

import argparse
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
from tqdm import tqdm

from anisoscope.config.data import CACHE
from anisoscope.measurement.api import measure
from anisoscope.measurement.families.entries import quantities
from anisoscope.measurement.intervals import LEVEL
from anisoscope.utils.compiled import keep
from benchmarks.rounds import hardware

CLUSTERS, WIDTH = 64, 16
FAMILIES = ("spectrum", "dimension", "similarity")
CLOUDS = {"sizes without meaning": 0.0, "larger clusters farther out": 1.0}


def draw(number: int, points: int, farther: float) -> tuple[np.ndarray, np.ndarray]:
    """Points and the clusters they come from; a function of its number alone."""
    generator = np.random.default_rng(number)
    share_L = np.random.default_rng(0).lognormal(sigma=0.8, size=CLUSTERS)
    label_P = np.searchsorted(np.cumsum(share_L) / share_L.sum(), np.arange(points) / points, side="right")
    spread_D = np.arange(1, WIDTH + 1) ** -0.5
    centre_LD = generator.normal(size=(CLUSTERS, WIDTH)) * spread_D
    centre_LD[:, 0] += 1 + farther * np.log(share_L)
    return centre_LD[label_P] + generator.normal(size=(points, WIDTH)) * spread_D, label_P


def coverage(points: int, draws: int, farther: float) -> dict[str, tuple[float, float, float, float]]:
    """Of each quantity: expectation, share of the intervals that hold it, mean half-width, deviation over draws."""
    names = [name for name, quantity in quantities().items() if quantity.resampling and not quantity.derived]

    def of_draw(number: int) -> dict[str, np.ndarray]:
        cloud_PD, label_P = draw(number, points, farther)
        table = measure(cloud_PD, label_P, families=FAMILIES, nulls=())
        ends = table.sel(statistic=["mean", "low", "high"])
        return {name: ends[name].values for name in names if name in ends and ends[name].dims == ("statistic",)}

    with ThreadPoolExecutor(2) as pool:
        found = list(tqdm(pool.map(of_draw, range(draws)), f"{points} points", draws, leave=False))
    rows = {}
    for name in found[0]:
        mean, low, high = np.array([one[name] for one in found]).T
        held = ((low <= mean.mean()) & (mean.mean() <= high)).mean()
        rows[name] = float(mean.mean()), float(held), float((high - low).mean() / 2), float(mean.std())
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--points", type=int, default=1024)
    options = parser.parse_args()
    begin = time.perf_counter()
    tables = {name: coverage(options.points, options.draws, farther) for name, farther in CLOUDS.items()}
    seconds, machine = time.perf_counter() - begin, hardware(jax.devices()[0].device_kind)
    print(f"Nominal {LEVEL:.0%}, {options.points} points in {CLUSTERS} clusters of log-normal size,")
    print(f"{options.draws} draws, {seconds:.0f} s on {machine}\n")
    for cloud, rows in tables.items():
        print(f"{cloud}:\n\n| quantity | expectation | holds it | half-width / deviation |\n|---|---|---|---|")
        for name, (mean, held, half, deviation) in rows.items():
            print(f"| {name} | {mean:.4g} | {held:.1%} | {half / deviation:.2f} |")
        print()


if __name__ == "__main__":
    keep(CACHE)
    main()
