"""Clouds that metrics must measure right, as float32 arrays; and what leaves their geometry as it
was.

Nearly all have one shape, SHAPE, so that a program is compiled once for all of them: `filled`
brings a small cloud to it by copies and by coordinates that do not vary, wherever neither counts.
"""

import jax
import numpy as np

from anisoscope.metrics.neighbors import nearest_neighbors
from tests import reference, zoo

# of the zoo's width; more points than the search for neighbors has in a chunk
SHAPE = POINTS, WIDTH = 601, 64
# neighbors: found by pairs of blocks, by whole columns, and as many as the scales need
FEW, MANY, ALL = 2, 20, 128

# compiled once for them all
find = jax.jit(nearest_neighbors, static_argnums=1)


def gaussian(points=POINTS, width=WIDTH, seed=0):
    return np.random.default_rng(seed).normal(size=(points, width)).astype(np.float32)


def filled(cloud, shape=SHAPE):
    """Append copies of the last point, and coordinates of zeros."""
    cloud = np.asarray(cloud, np.float32)
    points, width = (wanted - there for wanted, there in zip(shape, cloud.shape, strict=True))
    return np.pad(np.pad(cloud, ((0, points), (0, 0)), mode="edge"), ((0, 0), (0, width)))


def with_copies(cloud, share=0.2):
    """Overwrite a share of the points by others, the first of them by several of one."""
    copied = cloud.copy()
    count = int(share * len(cloud))
    copied[:count] = cloud[count : 2 * count]
    copied[:3] = cloud[-1]
    return copied


def crowded(cloud, crowd, apart):
    """Put a crowd in place of every point, at this share of the coordinates' spread."""
    moved = np.random.default_rng(6).normal(size=(crowd, *cloud.shape)) * apart + cloud
    return moved.reshape(-1, cloud.shape[1]).astype(np.float32)


def curve():
    """Bend a line into a helix, so that neighbors are far closer than the cloud is wide."""
    t = np.random.default_rng(3).uniform(0, 3, POINTS)
    x = np.zeros(SHAPE)
    x[:, 0], x[:, 1], x[:, 2] = np.cos(t), np.sin(t), t
    return (x @ rotation(WIDTH)).astype(np.float32)


def rogue():
    """One coordinate a hundred times the others."""
    cloud = gaussian(seed=4)
    cloud[:, 5] *= 100
    return cloud


def with_one(value):
    """A coordinate of this value among those of a Gaussian."""
    cloud = gaussian()
    cloud[7, 1] = value
    return cloud


def assert_neighbors(neighbors, cloud, rtol):
    """Compare distances with the float64 twin, and check that indices name such points."""
    distance_PC, index_PC = np.asarray(neighbors.distance_PC), np.asarray(neighbors.index_PC)
    count = distance_PC.shape[1]
    np.testing.assert_allclose(distance_PC, reference.distinct_distances(cloud, count), rtol=rtol)
    x, there = reference.float64(cloud), np.isfinite(distance_PC)
    named = np.linalg.norm(x[index_PC] - x[np.asarray(neighbors.original_P)][:, None], axis=2)
    np.testing.assert_allclose(named[there], distance_PC[there], rtol=1e-5)
    assert np.asarray(neighbors.first_P)[index_PC[there]].all()
    assert (np.diff(np.sort(np.where(there, index_PC, -1 - np.arange(count)), axis=1)) > 0).all()


def rotation(width, seed=0):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(width, width)))[0]


def in_bfloat16(cloud):
    """Its values as a network of half precision leaves them."""
    return np.asarray(jax.numpy.asarray(cloud, jax.numpy.bfloat16), np.float32)


CLOUDS = {
    "gaussian": gaussian(),
    "mean 10 x spread": gaussian() + np.float32(10),
    "mean 1000 x spread": gaussian() + np.float32(1000),
    "rogue coordinate": rogue(),
    "copies": with_copies(gaussian()),
    "curve": curve(),
    "bfloat16": in_bfloat16(gaussian() + 3),
    "bfloat16 copies": in_bfloat16(with_copies(gaussian(seed=5))),
}
WIDE = gaussian(51, 203)  # more dimensions than points
TOO_FEW = [  # distinct points, for a ratio of distances
    *(filled(gaussian(distinct, 3)[np.arange(POINTS) % distinct]) for distinct in (1, 2)),
    gaussian(1, 5),
]

# the members of the benchmarks' zoo, those of 512 dimensions in the width of the others: they fill
# 3 and 40 of them
ZOO = {name: member for name, member in zoo.ZOO.items() if len(member.eigenvalues) == WIDTH} | {
    "swiss roll": zoo.swiss_roll(WIDTH),
    "curved 5": zoo.torus(5, WIDTH, 0.0),
    "curved 5 with noise": zoo.torus(5, WIDTH, 1e-3),
}
IN_ZOO = {
    f"zoo: {name}": np.asarray(of.draw(np.random.default_rng(1), POINTS), np.float32)
    for name, of in ZOO.items()
}
EVERY = CLOUDS | IN_ZOO
