"""Compare our values with those of other libraries on the same clouds: `make parity`.

It fails on an unexplained difference.

    python -m benchmarks.parity [--points 1024]

A relative difference above 1e-3 needs a cause, and a cause must show itself: it names another way
to reach the peer's value (the convention of the peer in float64 NumPy, or the peer on other points)
and counts only where that agrees.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.spatial.distance import cdist
from scipy.special import gammainc

from anisoscope.metrics.dimension import twonn, twonn_bayes, twonn_microscope, twonn_mle
from anisoscope.metrics.neighbors import nearest_neighbors
from anisoscope.metrics.scale import gride
from anisoscope.metrics.spectrum import anisotropy, isoscore, spectrum
from anisoscope.utils.compiled import CACHE, keep
from benchmarks.peers import peer
from tests.zoo import ZOO

LIMIT = 1e-3
GOLDEN, ONCE = "golden, 30 points", ", each point once"
# by scikit-dimension's tests until version 0.4
PUBLISHED = {GOLDEN: {"twonn": 4.05496, "twonn at 0.95": 4.11323}}
Values = dict[str, dict[str, float]]  # cloud -> quantity -> value


class Row(NamedTuple):
    peer: str
    cloud: str
    quantity: str
    ours: float
    theirs: float

    @property
    def difference(self) -> float:
        return difference(self.ours, self.theirs)


def difference(ours: float, theirs: float) -> float:
    """Return the difference relative to theirs: 0 if both are NaN, infinite if only one is."""
    if math.isnan(ours) or math.isnan(theirs):
        return 0.0 if math.isnan(ours) and math.isnan(theirs) else math.inf
    return abs(ours - theirs) / abs(theirs)


def distances(cloud_PD: np.ndarray, count: int) -> np.ndarray:
    """Compute every distinct point's distances to its `count` nearest points, ascending."""
    cloud_PD = np.unique(cloud_PD, axis=0).astype(np.float64)
    distance_PP = cdist(cloud_PD, cloud_PD)
    np.fill_diagonal(distance_PP, np.inf)
    return np.sort(np.partition(distance_PP, count - 1, axis=1)[:, :count], axis=1)


def twonn_from_zero(cloud_PD: np.ndarray, fraction: float) -> float:
    """Fit the line of TwoNN with ratios numbered from 0: F = (i - 1)/n, i = 1..n."""
    r1_P, r2_P = distances(cloud_PD, 2).T
    x_P = np.sort(np.log(r2_P / r1_P))[: int(fraction * len(r1_P))]
    y_P = -np.log1p(-np.arange(len(x_P)) / len(r1_P))
    return float((x_P * y_P).sum() / np.square(x_P).sum())


def gride_of_the_peers(cloud_PD: np.ndarray, first: int) -> float:
    """Solve GRIDE's score equation with (n - 1)/d in place of n/d, as other libraries do.

    Ratios are cut at q50 + 20 (q95 - q50).
    """
    distance_PC = distances(cloud_PD, 2 * first)
    ratio_P = distance_PC[:, -1] / distance_PC[:, first - 1]
    middle, high = np.percentile(ratio_P, [50, 95])
    x_P = np.log(ratio_P[ratio_P < middle + 20 * (high - middle)])

    def score(d: float) -> float:
        return (len(x_P) - 1) / d + (
            (first - 1) * x_P / -np.expm1(-d * x_P) - (2 * first - 1) * x_P
        ).sum()

    return float(brentq(score, 1e-3, 1e4, xtol=1e-12))


def explain(row: Row, cloud_PD: np.ndarray, theirs: dict[str, Values]) -> str | None:
    """Return the first cause that explains the row, and the remaining difference.

    A cause counts where it makes two values agree; it is '' for a row that needs none.
    """
    if row.difference <= LIMIT:
        return ""
    causes, ours = [], row.ours
    if row.peer == "published":
        words = "numbered the ratios from 0, F = (i - 1)/n, until version 0.4: so does NumPy here"
        fit = twonn_from_zero(cloud_PD, 0.95 if row.quantity.endswith("0.95") else 0.9)
        causes.append((words, fit, row.theirs))
    if row.quantity.startswith("gride"):
        words = "n - 1 for n in the likelihood, extreme ratios cut off: so does NumPy here"
        ours = gride_of_the_peers(cloud_PD, int(row.quantity.split()[1]))
        causes.append((words, ours, row.theirs))
    if once := theirs[row.peer].get(row.cloud + ONCE):
        words = "copies are neighbors at distance 0: so each point is passed once"
        causes.append((words, ours, once[row.quantity]))
    for words, value, expected in causes:
        if (left := difference(value, expected)) <= LIMIT:
            return f"{words}, and agrees to {left:.0e}"
    return None


def draw_clouds(points: int) -> dict[str, np.ndarray]:
    """Draw float32 clouds.

    Among them is scikit-dimension's ball of 5 dimensions in 30, made by its generator with seed 0.
    """
    clouds = {
        name: member.draw(np.random.default_rng(0), points).astype(np.float32)
        for name, member in ZOO.items()
    }
    distinct = {name: np.unique(cloud_PD, axis=0) for name, cloud_PD in clouds.items()}
    clouds |= {
        name + ONCE: once_PD
        for name, once_PD in distinct.items()
        if len(once_PD) < len(clouds[name])
    }
    # the generator behind the published values
    normal_PK = np.random.RandomState(0).normal(size=(30, 5))
    square_P1 = np.square(normal_PK).sum(axis=1, keepdims=True)
    ball_PK = normal_PK / np.sqrt(square_P1) * gammainc(5 / 2, square_P1 / 2) ** (1 / 5)
    clouds[GOLDEN] = np.pad(ball_PK, ((0, 0), (0, 25)))
    return clouds


@jax.jit
def measure(cloud_PD: jax.Array) -> dict[str, jax.Array]:
    ranks = peer.ranks(len(cloud_PD))
    neighbors = nearest_neighbors(cloud_PD, 2 * ranks[-1])
    posterior = twonn_bayes(neighbors)
    whole = jax.tree.map(lambda field: field[0], spectrum(cloud_PD))
    return {
        "twonn": twonn(neighbors),
        "twonn at 0.95": twonn(neighbors, 0.95),
        "twonn_mle": twonn_mle(neighbors),
        "twonn_bayes": posterior.mean,
        "twonn_bayes_std": posterior.std,
        "twonn_microscope": twonn_microscope(neighbors).dimension,
        "anisotropy": anisotropy(whole),
        "isoscore": isoscore(whole),
        **{f"gride {first}": gride(neighbors, first) for first in ranks},
    }


def ask_peers(clouds: dict[str, np.ndarray]) -> tuple[list[str], dict[str, Values]]:
    """Return the other libraries' versions and their values for the clouds, passed in float64."""
    versions, theirs = [], {"published": PUBLISHED}
    with tempfile.TemporaryDirectory() as folder:
        for name, cloud_PD in clouds.items():
            np.save(pathlib.Path(folder) / f"{name}.npy", cloud_PD.astype(np.float64))
        for name in peer.PEERS:
            command = peer.library_command(name, "values", folder)
            answer = json.loads(
                subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
            )
            versions.append(answer["version"])
            theirs[name] = answer["values"]
    return versions, theirs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=1024)
    options = parser.parse_args()
    clouds = draw_clouds(options.points)
    versions, theirs = ask_peers(clouds)
    with jax.default_matmul_precision("highest"):
        ours = {
            name: jax.tree.map(float, measure(jnp.asarray(cloud_PD, jnp.float32)))
            for name, cloud_PD in clouds.items()
        }
    rows = [
        Row(name, cloud, quantity, ours[cloud][quantity], value)
        for name, values in theirs.items()
        for cloud, by_quantity in values.items()
        for quantity, value in by_quantity.items()
    ]
    words = [explain(row, clouds[row.cloud], theirs) for row in rows]
    print(
        f"{options.points} points a cloud; ours in float32 on {jax.default_backend()}, jax {jax.__version__};",
        end=" ",
    )
    print(f"peers in float64: {'; '.join(versions)}\n")
    found = pd.DataFrame(rows, columns=Row._fields)
    found["difference"] = [row.difference for row in rows]
    found["because"] = ["**unexplained**" if cause is None else cause for cause in words]
    agreeing = found[found["difference"] <= LIMIT].groupby(["peer", "quantity"])["difference"]
    print(agreeing.agg(["count", "max"]).to_string(), end="\n\n")
    print(found[found["because"] != ""].to_string(index=False))
    unexplained = words.count(None)
    sys.exit(f"{unexplained} differences over {LIMIT:g} are not explained" if unexplained else 0)


if __name__ == "__main__":
    keep(CACHE)
    main()
