"""DADApy, in an environment of its own: values for `make parity`, tasks for `make bench`."""

import importlib.metadata
import warnings

import numpy as np
from dadapy.data import Data

from benchmarks.peers import peer

VERSION = f"DADApy {importlib.metadata.version('dadapy')}, numpy {np.__version__}"


def values(cloud_PD):
    points = len(cloud_PD)
    warnings.filterwarnings("ignore")  # points with copies, which the table shows
    data = Data(coordinates=cloud_PD, verbose=False)
    bayes, bayes_std, _ = data.compute_id_2NN_wprior()
    try:
        base = data.compute_id_2NN(algorithm="base", mu_fraction=0.9)[0]
    except ValueError:  # the fit refuses the infinite ratio of a point with a copy
        base = np.nan
    found = {
        "twonn": base,
        "twonn_mle": data.compute_id_2NN(algorithm="ml")[0],
        "twonn_bayes": bayes,
        "twonn_bayes_std": bayes_std,
    }
    ranks = peer.ranks(points)
    curve_S = Data(coordinates=cloud_PD, verbose=False).return_id_scaling_gride(
        range_max=2 * ranks[-1]
    )[0]
    return found | {f"gride {first}": value for first, value in zip(ranks, curve_S, strict=True)}


def tasks(cloud_PD):
    # a new object each time: it keeps the distances it has computed
    return {
        "TwoNN": lambda: Data(coordinates=cloud_PD, verbose=False, maxk=2).compute_id_2NN(
            algorithm="base"
        )
    }


if __name__ == "__main__":
    peer.main(VERSION, values, tasks)
