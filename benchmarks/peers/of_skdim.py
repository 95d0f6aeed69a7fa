"""scikit-dimension, in an environment with it: values for `make parity`, tasks for `make bench`."""

import warnings

import skdim

from benchmarks.peers import peer

VERSION = f"scikit-dimension {skdim.__version__}"


def values(cloud_PD):
    points = len(cloud_PD)
    # points with copies, which the table shows
    warnings.filterwarnings("ignore", message="Dropping|Gride")
    found = {
        "twonn": skdim.id.TwoNN(discard_fraction=0.1).fit(cloud_PD).dimension_,
        "twonn_mle": skdim.id.TwoNN(discard_fraction=0.0, method="mle").fit(cloud_PD).dimension_,
    }
    for first in peer.ranks(points):
        found[f"gride {first}"] = skdim.id.GRIDE(n1=first).fit(cloud_PD).dimension_
    return found


def tasks(cloud_PD):
    return {"TwoNN": lambda: skdim.id.TwoNN(discard_fraction=0.1).fit(cloud_PD)}


if __name__ == "__main__":
    peer.main(VERSION, values, tasks)
