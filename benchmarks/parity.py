"""Compare our values with those of other libraries on the same clouds: `make parity`.

    python -m benchmarks.parity [--points 1024]

Each distinct point is passed once, since libraries differ in what they do with copies. It fails on
a relative difference above 1e-3, but for GRIDE, where the peers' convention must give their value.
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

from anisoscope.metrics.decomposition import spectrum
from anisoscope.metrics.dimension import (
    read_twonn,
    read_twonn_microscope,
    read_twonn_mle,
    twonn_bayes,
)
from anisoscope.metrics.neighbors import nearest_neighbors
from anisoscope.metrics.scale import read_gride
from anisoscope.metrics.spectrum import read_anisotropy, read_isoscore
from anisoscope.utils.compiled import CACHE, keep
from benchmarks.peers import peer
from tests.zoo import ZOO

LIMIT = 1e-3
CONVENTION = "n - 1 for n in the likelihood, extreme ratios cut off: so does NumPy here"
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


def gride_of_the_peers(cloud_PD: np.ndarray, first: int) -> float:
    """Solve GRIDE's score equation with (n - 1)/d in place of n/d, as other libraries do.

    Ratios are cut at q50 + 20 (q95 - q50).
    """
    distance_PP = cdist(*[cloud_PD.astype(np.float64)] * 2)
    distance_PC = np.partition(distance_PP, [first, 2 * first], axis=1)  # 0: the point itself
    ratio_P = distance_PC[:, 2 * first] / distance_PC[:, first]
    middle, high = np.percentile(ratio_P, [50, 95])
    x_P = np.log(ratio_P[ratio_P < middle + 20 * (high - middle)])

    def score(d: float) -> float:
        return (len(x_P) - 1) / d + (
            (first - 1) * x_P / -np.expm1(-d * x_P) - (2 * first - 1) * x_P
        ).sum()

    return float(brentq(score, 1e-3, 1e4, xtol=1e-12))


def explain(row: Row, cloud_PD: np.ndarray) -> str | None:
    """Return why a row differs, '' where it does not, None where no cause shows itself."""
    if row.difference <= LIMIT:
        return ""
    if row.quantity.startswith("gride"):
        by_convention = gride_of_the_peers(cloud_PD, int(row.quantity.split()[1]))
        if (left := difference(by_convention, row.theirs)) <= LIMIT:
            return f"{CONVENTION}, and agrees to {left:.0e}"
    return None


@jax.jit
def measure(cloud_PD: jax.Array) -> dict[str, jax.Array]:
    ranks = peer.ranks(len(cloud_PD))
    neighbors = nearest_neighbors(cloud_PD, 2 * ranks[-1])
    posterior = twonn_bayes(neighbors)
    whole = jax.tree.map(lambda field: field[0], spectrum(cloud_PD))
    return {
        "twonn": read_twonn(neighbors),
        "twonn_mle": read_twonn_mle(neighbors),
        "twonn_bayes": posterior.mean,
        "twonn_bayes_std": posterior.std,
        "twonn_microscope": read_twonn_microscope(neighbors).dimension,
        "anisotropy": read_anisotropy(whole),
        "isoscore": read_isoscore(whole),
        **{f"gride {first}": read_gride(neighbors, first) for first in ranks},
    }


def ask_peers(clouds: dict[str, np.ndarray]) -> tuple[list[str], dict[str, Values]]:
    """Return the other libraries' versions and their values for the clouds, passed in float64."""
    versions, theirs = [], {}
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
    draws = {
        name: member.draw(np.random.default_rng(0), options.points) for name, member in ZOO.items()
    }
    clouds = {name: np.unique(np.float32(cloud_PD), axis=0) for name, cloud_PD in draws.items()}
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
    words = [explain(row, clouds[row.cloud]) for row in rows]
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
