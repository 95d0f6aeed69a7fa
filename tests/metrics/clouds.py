"""Clouds that metrics must measure right, as float32 or bfloat16 arrays; and what leaves their geometry as it was."""

import jax.numpy as jnp
import numpy as np


def gaussian(points=301, width=37, seed=0):
    return np.random.default_rng(seed).normal(size=(points, width)).astype(np.float32)


def with_copies(cloud, share=0.2):
    """A share of the points overwritten by copies of others, the first of them by several of one."""
    copied = cloud.copy()
    count = int(share * len(cloud))
    copied[:count] = cloud[count : 2 * count]
    copied[:3] = cloud[-1]
    return copied


def crowded(cloud, crowd, apart):
    """In place of every point a crowd of them, at this share of the coordinates' spread from one another."""
    moved = np.random.default_rng(6).normal(size=(crowd, *cloud.shape)) * apart + cloud
    return moved.reshape(-1, cloud.shape[1]).astype(np.float32)


def curve(points=257, width=11):
    """A line bent into a helix: one dimension, so that neighbours are far closer than the cloud is wide."""
    t = np.random.default_rng(3).uniform(0, 3, points)
    x = np.zeros((points, width))
    x[:, 0], x[:, 1], x[:, 2] = np.cos(t), np.sin(t), t
    return (x @ rotation(width)).astype(np.float32)


def rogue():
    """One coordinate a hundred times the others."""
    cloud = gaussian(seed=4)
    cloud[:, 5] *= 100
    return cloud


def rotation(width, seed=0):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(width, width)))[0]


CLOUDS = {
    "gaussian": gaussian(),
    "more dimensions than points": gaussian(51, 203),
    "few points": gaussian(7, 3),
    "mean 10 x spread": gaussian() + np.float32(10),
    "mean 1000 x spread": gaussian() + np.float32(1000),
    "rogue coordinate": rogue(),
    "copies": with_copies(gaussian()),
    "curve": curve(),
    "bfloat16": jnp.asarray(gaussian() + 3, jnp.bfloat16),
    "bfloat16 copies": jnp.asarray(with_copies(gaussian(seed=5)), jnp.bfloat16),
}
